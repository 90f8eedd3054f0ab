// Properties of Order: bijection and inverse in every mode, window locality, batched forms,
// epochs; shares, exchange and storage of mode partial. The vectors of docs/order.md are checked
// in tests/order.
#include "proto/contract/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/order_divider.h"
#include "proto/contract/order_mix.h"
#include "proto/contract/order_partial.h"
#include "proto/contract/order_steps.h"

namespace forebay {
namespace {

constexpr std::uint64_t kOne = 1;
constexpr std::uint64_t kMaxWord = ~std::uint64_t{0};

// Draws reproducible numbers for a case; the failing case prints its own number.
class CaseNumbers {
 public:
  explicit CaseNumbers(std::uint64_t test_case) : key_(Absorb64(0xCA5E, test_case)) {}
  std::uint64_t Below(std::uint64_t bound) { return MulHigh64(DrawWord64(key_, next_++), bound); }

 private:
  std::uint64_t key_;
  std::uint64_t next_ = 0;
};

OrderSpec GlobalSpec(std::uint64_t sample_count, std::uint64_t seed = 1) {
  return {.seed = seed, .sample_count = sample_count};
}

OrderSpec BlockSpec(std::uint64_t sample_count, std::uint64_t block_samples,
                    std::uint64_t window_runs, std::uint64_t seed = 1) {
  return {.seed = seed,
          .sample_count = sample_count,
          .shape = {OrderMode::kBlock, block_samples, window_runs}};
}

struct PartialNumbers {
  std::uint64_t n;
  std::uint32_t nodes;
  std::uint32_t batch;
  std::uint32_t exchange_millionths;
  std::uint64_t run = 1;
};

OrderSpec PartialSpec(const PartialNumbers& numbers, std::uint64_t seed = 1) {
  return {.seed = seed,
          .sample_count = numbers.n,
          .tail = TailPolicy::kShort,
          .shape = {.mode = OrderMode::kPartial,
                    .block_samples = numbers.run,
                    .canonical_nodes = numbers.nodes,
                    .exchange_millionths = numbers.exchange_millionths,
                    .global_batch = numbers.batch}};
}

std::vector<std::uint64_t> Epoch(const Order& order) {
  std::vector<std::uint64_t> indices(order.sample_count());
  order.Forward(Position(0), indices);
  return indices;
}

// Every index once, and every form of the function agrees with every other.
void ExpectBijection(const Order& order) {
  const std::uint64_t n = order.sample_count();
  const std::vector<std::uint64_t> indices = Epoch(order);
  std::vector<bool> seen(n);
  for (std::uint64_t p = 0; p < n; ++p) {
    ASSERT_LT(indices[p], n) << "position " << p;
    ASSERT_FALSE(seen[indices[p]]) << "index " << indices[p] << " twice, position " << p;
    seen[indices[p]] = true;
    ASSERT_EQ(order.Forward(Position(p)), indices[p]);
    ASSERT_EQ(order.Inverse(indices[p]), Position(p));
  }
  std::vector<std::uint64_t> positions = indices;
  order.Inverse(positions);
  std::vector<std::uint64_t> ascending(n);
  std::iota(ascending.begin(), ascending.end(), 0ULL);
  ASSERT_EQ(positions, ascending);
}

// inverse(forward(p)) == p and forward in range, by samples with both ends among them.
void ExpectInverseBySamples(const Order& order, CaseNumbers& numbers, int samples) {
  const std::uint64_t n = order.sample_count();
  for (int i = 0; i < samples; ++i) {
    const std::uint64_t p = i == 0 ? 0 : i == 1 ? n - 1 : numbers.Below(n);
    const std::uint64_t index = order.Forward(Position(p));
    ASSERT_LT(index, n);
    ASSERT_EQ(order.Inverse(index), Position(p)) << "n " << n << ", position " << p;
    ASSERT_EQ(order.Forward(order.Inverse(p)), p) << "n " << n << ", index " << p;
  }
}

TEST(OrderTest, GlobalIsBijectiveForEverySmallSize) {
  for (std::uint64_t n = 1; n <= 600; ++n) {
    SCOPED_TRACE(n);
    ExpectBijection(Order(GlobalSpec(n, n), EpochId(1)));
    if (HasFatalFailure()) return;
  }
}

TEST(OrderTest, GlobalIsBijectiveAroundPowersOfTwoAndAtPrimes) {
  for (const std::uint64_t n : {1021U, 1023U, 1024U, 1025U, 4093U, 4096U, 8191U, 8193U, 65535U,
                                65537U, 104729U, 131071U, 262145U}) {
    SCOPED_TRACE(n);
    ExpectBijection(Order(GlobalSpec(n), EpochId(0)));
    if (HasFatalFailure()) return;
  }
}

TEST(OrderTest, BlockIsBijectiveForEverySmallSizeRunAndWindow) {
  int cases = 0;
  for (std::uint64_t n = 1; n <= 40; ++n) {
    for (std::uint64_t block = 1; block <= n + 1; ++block) {
      for (std::uint64_t window = 1; window <= (n + block - 1) / block + 1; ++window) {
        SCOPED_TRACE(testing::Message() << "n " << n << " b " << block << " w " << window);
        ExpectBijection(Order(BlockSpec(n, block, window, n + block), EpochId(window & 3)));
        if (HasFatalFailure()) return;
        ++cases;
      }
    }
  }
  EXPECT_GT(cases, 3000);
}

TEST(OrderTest, PartialIsBijectiveForEverySmallSizeAndNumberOfNodes) {
  int cases = 0;
  for (std::uint64_t n = 1; n <= 36; ++n) {
    for (std::uint32_t nodes = 1; nodes <= n; ++nodes) {
      for (const std::uint32_t part : {1U, 3U}) {
        for (const std::uint32_t exchange : {0U, 100'000U, 500'000U, 1'000'000U}) {
          const PartialNumbers numbers = {n, nodes, nodes * part, exchange, 1 + n % 4};
          SCOPED_TRACE(testing::Message() << "n " << n << " M " << nodes << " B " << numbers.batch
                                          << " q " << exchange << " b " << numbers.run);
          ExpectBijection(Order(PartialSpec(numbers, n + nodes), EpochId(part)));
          if (HasFatalFailure()) return;
          ++cases;
        }
      }
    }
  }
  EXPECT_GT(cases, 5000);
}

TEST(OrderTest, RandomSpecsAreBijective) {
  for (std::uint64_t test_case = 0; test_case < 4000; ++test_case) {
    SCOPED_TRACE(testing::Message() << "case " << test_case);
    CaseNumbers numbers(test_case);
    const std::uint64_t n = 1 + numbers.Below(300);
    OrderSpec spec = GlobalSpec(n, numbers.Below(~0ULL));
    if (test_case % 4 != 0) {
      spec.shape = {OrderMode::kBlock, 1 + numbers.Below(40), 1 + numbers.Below(12)};
    }
    if (test_case % 4 == 1) {
      const auto nodes =
          static_cast<std::uint32_t>(1 + numbers.Below(std::min<std::uint64_t>(n, 64)));
      spec.shape = PartialSpec({n, nodes, nodes * static_cast<std::uint32_t>(1 + numbers.Below(9)),
                                static_cast<std::uint32_t>(numbers.Below(1'000'001)),
                                1 + numbers.Below(40)})
                       .shape;
    }
    ExpectBijection(Order(spec, EpochId(static_cast<std::uint32_t>(numbers.Below(1U << 30)))));
    if (HasFatalFailure()) return;
  }
}

TEST(OrderTest, RandomLargeSpecsAreInvertible) {
  for (std::uint64_t test_case = 0; test_case < 10'000; ++test_case) {
    SCOPED_TRACE(testing::Message() << "case " << test_case);
    CaseNumbers numbers(test_case);
    const std::uint64_t n = 1 + numbers.Below(1ULL << (1 + numbers.Below(40)));
    OrderSpec spec = GlobalSpec(n, numbers.Below(~0ULL));
    if (test_case % 3 != 0) {
      spec.shape = {OrderMode::kBlock, 1 + numbers.Below(1ULL << numbers.Below(41)),
                    1 + numbers.Below(1ULL << numbers.Below(41))};
    }
    if (test_case % 3 == 1) {
      const auto nodes = static_cast<std::uint32_t>(
          1 + numbers.Below(std::min<std::uint64_t>(n, 1ULL << numbers.Below(21))));
      const std::uint64_t part = 1 + numbers.Below(limits::kGlobalBatchMax / nodes);
      spec.shape = PartialSpec({n, nodes, nodes * static_cast<std::uint32_t>(part),
                                static_cast<std::uint32_t>(numbers.Below(1'000'001)),
                                1 + numbers.Below(1ULL << numbers.Below(33)) / 2})
                       .shape;
    }
    ASSERT_TRUE(spec.Validate().has_value());
    ExpectInverseBySamples(Order(spec, EpochId(7)), numbers, 8);
    if (HasFatalFailure()) return;
  }
}

TEST(OrderTest, InvertsAtTheGreatestSizes) {
  CaseNumbers numbers(0);
  for (const std::uint64_t n : {(kOne << 33) + 1, (kOne << 34) - 1, kOne << 34,
                                limits::kSampleCountMax - 1, limits::kSampleCountMax}) {
    ExpectInverseBySamples(Order(GlobalSpec(n), EpochId(3)), numbers, 2000);
    for (const std::uint64_t block : {1ULL, 255ULL, 1ULL << 20, (1ULL << 33) - 1, 1ULL << 40}) {
      for (const std::uint64_t window : {1ULL, 64ULL, 1ULL << 40}) {
        SCOPED_TRACE(testing::Message() << "n " << n << " b " << block << " w " << window);
        ExpectInverseBySamples(Order(BlockSpec(n, block, window), EpochId(3)), numbers, 200);
        if (HasFatalFailure()) return;
      }
    }
    for (const std::uint32_t nodes : {1U, 3U, 1U << 10, 1U << 20}) {
      const std::uint32_t batch = limits::kGlobalBatchMax / nodes * nodes;
      for (const std::uint32_t exchange : {0U, 1U, 333'333U, 1'000'000U}) {
        for (const std::uint64_t run : {1ULL, 4096ULL, (1ULL << 32) - 1}) {
          SCOPED_TRACE(testing::Message() << "n " << n << " M " << nodes << " q " << exchange);
          ExpectInverseBySamples(
              Order(PartialSpec({n, nodes, batch, exchange, run}), EpochId(3)), numbers, 200);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(OrderTest, SequentialIsTheIdentity) {
  OrderSpec spec = GlobalSpec(1000);
  spec.shape.mode = OrderMode::kSequential;
  const Order order(spec, EpochId(5));
  EXPECT_EQ(order.Forward(Position(417)), 417U);
  ExpectBijection(order);
  EXPECT_TRUE(std::ranges::is_sorted(Epoch(order)));
}

TEST(OrderTest, BatchesAgreeWithSingleCallsAcrossWindowsAndChunks) {
  for (const OrderSpec& spec : {GlobalSpec(5000), BlockSpec(5000, 7, 3), BlockSpec(5000, 64, 9),
                                BlockSpec(5003, 100, 7), BlockSpec(5003, 1000, 2),
                                PartialSpec({5003, 7, 7, 300'000}),
                                PartialSpec({5003, 10, 1000, 100'000, 64}),
                                PartialSpec({5003, 4999, 4999, 500'000})}) {
    const Order order(spec, EpochId(1));
    for (const std::size_t count : {0U, 1U, 3U, 4U, 5U, 63U, 64U, 65U, 200U}) {
      for (const std::uint64_t first : {0U, 1U, 699U, 4000U, 4800U}) {
        std::vector<std::uint64_t> indices(count);
        order.Forward(Position(first), indices);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(indices[i], order.Forward(Position(first + i))) << first << "+" << i;
        }
      }
    }
  }
}

TEST(OrderTest, BatchedInverseTakesIndicesInAnyOrder) {
  for (const OrderSpec& spec : {GlobalSpec(5000), BlockSpec(5003, 7, 3), BlockSpec(5003, 500, 2),
                                PartialSpec({5003, 7, 21, 300'000, 500})}) {
    const Order order(spec, EpochId(1));
    CaseNumbers numbers(spec.shape.block_samples);
    std::vector<std::uint64_t> values(777);
    for (std::uint64_t& value : values) value = numbers.Below(spec.sample_count);
    const std::vector<std::uint64_t> indices = values;
    order.Inverse(values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(Position(values[i]), order.Inverse(indices[i])) << i;
    }
  }
}

// The promise of block(b, w): whatever stretch of w * b positions begins at a window touches
// at most w runs, and only those.
TEST(OrderTest, BlockWindowsTouchOnlyTheirRuns) {
  const std::uint64_t block = 10;
  const std::uint64_t window = 4;
  for (std::uint64_t n : {400ULL, 403ULL, 397ULL, 409ULL}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const std::vector<std::uint64_t> indices =
          Epoch(Order(BlockSpec(n, block, window, seed), EpochId(0)));
      std::set<std::uint64_t> finished;
      std::set<std::uint64_t> open;
      std::size_t covered = 0;
      std::vector<std::uint64_t> left(n / block + 1, block);
      left[n / block] = n % block;
      for (const std::uint64_t index : indices) {
        const std::uint64_t run = index / block;
        ASSERT_FALSE(finished.contains(run)) << "run " << run << " comes back";
        open.insert(run);
        ASSERT_LE(open.size(), window);
        --left[run];
        ++covered;
        if (std::ranges::all_of(open, [&](std::uint64_t r) { return left[r] == 0; }) &&
            open.size() == window) {
          finished.merge(open);
          open.clear();
        }
      }
      ASSERT_EQ(covered, n);
    }
  }
}

TEST(OrderTest, ShortRunTakesEveryPlaceAmongTheRuns) {
  std::set<std::uint64_t> places;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Order order(BlockSpec(43, 10, 1, seed), EpochId(0));
    const std::uint64_t at = order.Inverse(42).value();
    places.insert((at + 7) / 10);
  }
  EXPECT_EQ(places.size(), 5U);
}

TEST(OrderTest, RunLengthAndWindowBeyondTheDataSetMeanOneWindow) {
  const Order huge(BlockSpec(100, 1ULL << 40, 1ULL << 40), EpochId(1));
  const Order exact(BlockSpec(100, 100, 1), EpochId(1));
  EXPECT_EQ(Epoch(huge), Epoch(exact));
}

// The samples that each canonical node reads in an epoch: parts of all steps, as ranks get them.
std::vector<std::set<std::uint64_t>> ReadByNode(const OrderSpec& spec, EpochId epoch) {
  const Order order(spec, epoch);
  const StepPlan plan = StepPlan::Create({.sample_count = spec.sample_count,
                                          .global_batch = spec.shape.global_batch,
                                          .ranks = spec.shape.canonical_nodes,
                                          .tail = spec.tail})
                            .value();
  std::vector<std::set<std::uint64_t>> read(spec.shape.canonical_nodes);
  for (std::uint64_t step = 0; step < plan.steps(); ++step) {
    for (std::uint64_t node = 0; node < read.size(); ++node) {
      const StepSlice slice = plan.RankSlice(StepId(step), node).value();
      for (std::uint64_t p = slice.first; p < slice.first + slice.count; ++p) {
        read[node].insert(order.Forward(Position(p)));
      }
    }
  }
  return read;
}

// Without an exchange, each node reads its home share, the same in every epoch.
std::vector<std::set<std::uint64_t>> HomeShares(OrderSpec spec) {
  spec.shape.exchange_millionths = 0;
  return ReadByNode(spec, EpochId(0));
}

constexpr PartialNumbers kPartials[] = {
    {1003, 8, 24, 300'000},       {1003, 8, 24, 1'000'000, 10}, {960, 8, 64, 125'000, 7},
    {37, 12, 48, 500'000},        {37, 37, 37, 1'000'000},      {1000, 1, 10, 200'000},
    {2048, 64, 128, 20'000, 100}, {777, 5, 1000, 999'999},
};

TEST(OrderTest, PartialKeepsEachNodesReadsWithinItsShareAndItsExchange) {
  for (const PartialNumbers& numbers : kPartials) {
    SCOPED_TRACE(testing::Message() << "n " << numbers.n << " M " << numbers.nodes);
    const OrderSpec spec = PartialSpec(numbers, 5);
    const auto homes = HomeShares(spec);
    std::uint64_t received = 0;
    for (std::uint32_t epoch = 0; epoch < 10; ++epoch) {
      const auto read = ReadByNode(spec, EpochId(epoch));
      for (std::uint32_t node = 0; node < numbers.nodes; ++node) {
        const std::uint64_t share = homes[node].size();
        ASSERT_EQ(share, numbers.n * (node + 1) / numbers.nodes - numbers.n * node / numbers.nodes);
        ASSERT_EQ(read[node].size(), share);
        // The storage bound: the share and what comes from others.
        std::set<std::uint64_t> stored = homes[node];
        stored.insert(read[node].begin(), read[node].end());
        const std::uint64_t exchanged =
            (share * numbers.exchange_millionths + 500'000) / 1'000'000;
        ASSERT_LE(stored.size(), share + exchanged);
        received += stored.size() - share;
      }
    }
    EXPECT_EQ(received > 0, numbers.nodes > 1);
  }
}

TEST(OrderTest, PartialWithoutExchangeKeepsTheSharesInEveryEpoch) {
  for (PartialNumbers numbers : kPartials) {
    numbers.exchange_millionths = 0;
    const OrderSpec spec = PartialSpec(numbers, 5);
    const auto homes = HomeShares(spec);
    for (std::uint32_t epoch = 1; epoch < 10; ++epoch) {
      ASSERT_EQ(ReadByNode(spec, EpochId(epoch)), homes);
    }
  }
}

// Which places are exchanged shows where two orders differ that differ in the exchange alone.
TEST(OrderTest, PartialExchangesTheSameNumberOfEachShareAndOfEachList) {
  for (const PartialNumbers& numbers : kPartials) {
    SCOPED_TRACE(testing::Message() << "n " << numbers.n << " M " << numbers.nodes);
    const auto order = [&](std::uint64_t exchange_millionths, std::uint64_t exchange_key) {
      return PartialOrder({.sample_count = numbers.n,
                           .run_samples = numbers.run,
                           .canonical_nodes = numbers.nodes,
                           .global_batch = numbers.batch,
                           .exchange_millionths = exchange_millionths,
                           .home_key = 1,
                           .draws_key = 2,
                           .exchange_key = exchange_key,
                           .lists_key = 3});
    };
    const PartialOrder stays = order(0, 0);
    const StepPlan plan = StepPlan::Create({.sample_count = numbers.n,
                                            .global_batch = numbers.batch,
                                            .ranks = numbers.nodes,
                                            .tail = TailPolicy::kShort})
                              .value();
    std::vector<std::uint64_t> node_of(numbers.n);  // of a position
    for (std::uint64_t step = 0; step < plan.steps(); ++step) {
      for (std::uint64_t node = 0; node < numbers.nodes; ++node) {
        const StepSlice slice = plan.RankSlice(StepId(step), node).value();
        std::fill_n(node_of.begin() + static_cast<std::ptrdiff_t>(slice.first), slice.count, node);
      }
    }
    std::vector<bool> moved(numbers.n);  // by position; the share's own order is that of `stays`
    for (std::uint64_t key = 0; key < 60; ++key) {
      const PartialOrder exchanges = order(numbers.exchange_millionths, key);
      for (std::uint64_t p = 0; p < numbers.n; ++p) {
        if (exchanges.Forward(p) != stays.Forward(p)) moved[p] = true;
      }
    }
    std::vector<std::uint64_t> shares(numbers.nodes);
    std::vector<std::uint64_t> left(numbers.nodes);
    for (std::uint64_t p = 0; p < numbers.n; ++p) {
      ++shares[node_of[p]];
      if (moved[p]) ++left[node_of[p]];
    }
    for (std::uint64_t node = 0; node < numbers.nodes; ++node) {
      ASSERT_EQ(left[node],
                (shares[node] * numbers.exchange_millionths + 500'000) / 1'000'000)
          << "node " << node;
    }
  }
}

TEST(OrderTest, PartialExchangesOtherSamplesInEveryEpoch) {
  const OrderSpec spec = PartialSpec({1000, 4, 40, 100'000});
  const auto homes = HomeShares(spec);
  std::set<std::set<std::uint64_t>> received;
  for (std::uint32_t epoch = 0; epoch < 20; ++epoch) {
    const auto read = ReadByNode(spec, EpochId(epoch));
    std::set<std::uint64_t> foreign;
    for (const std::uint64_t index : read[0]) {
      if (!homes[0].contains(index)) foreign.insert(index);
    }
    EXPECT_GE(foreign.size(), 8U) << "of 25 that are exchanged, a quarter comes back";
    received.insert(foreign);
    EXPECT_NE(Epoch(Order(spec, EpochId(epoch))), Epoch(Order(spec, EpochId(epoch + 1))));
  }
  EXPECT_EQ(received.size(), 20U);
}

// A node can keep whole runs: only those that a border between two shares cuts have two homes.
TEST(OrderTest, PartialHomeSharesAreMadeOfRuns) {
  for (const std::uint64_t run : {2ULL, 10ULL, 100ULL, 5000ULL}) {
    const OrderSpec spec = PartialSpec({1003, 8, 24, 0, run});
    std::set<std::pair<std::uint64_t, std::uint64_t>> parts;  // run, node
    const auto homes = HomeShares(spec);
    for (std::uint64_t node = 0; node < homes.size(); ++node) {
      for (const std::uint64_t index : homes[node]) parts.insert({index / run, node});
    }
    EXPECT_LE(parts.size(), (1003 + run - 1) / run + 7) << "run " << run;
  }
}

TEST(OrderTest, EpochSeedAndSizeEachChangeTheOrder) {
  const std::vector<std::uint64_t> base = Epoch(Order(GlobalSpec(1000, 1), EpochId(0)));
  EXPECT_EQ(base, Epoch(Order(GlobalSpec(1000, 1), EpochId(0))));
  EXPECT_NE(base, Epoch(Order(GlobalSpec(1000, 1), EpochId(1))));
  EXPECT_NE(base, Epoch(Order(GlobalSpec(1000, 2), EpochId(0))));
  std::vector<std::uint64_t> other = Epoch(Order(GlobalSpec(1001, 1), EpochId(0)));
  other.resize(1000);
  std::size_t equal = 0;
  for (std::size_t p = 0; p < 1000; ++p) equal += base[p] == other[p] ? 1U : 0U;
  EXPECT_LT(equal, 10U) << "sizes that share a network must not share its keys";
}

TEST(OrderTest, FirstEpochMayHaveItsOwnShape) {
  OrderSpec spec = GlobalSpec(500, 9);
  spec.first_epoch_shape = OrderShape{.mode = OrderMode::kSequential};
  EXPECT_EQ(Order(spec, EpochId(0)).mode(), OrderMode::kSequential);
  EXPECT_EQ(Order(spec, EpochId(1)).mode(), OrderMode::kGlobal);
  EXPECT_TRUE(std::ranges::is_sorted(Epoch(Order(spec, EpochId(0)))));
  EXPECT_EQ(Epoch(Order(spec, EpochId(1))), Epoch(Order(GlobalSpec(500, 9), EpochId(1))));
}

TEST(OrderTest, TransformSeedDependsOnSeedEpochAndSampleOnly) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (std::uint32_t epoch = 0; epoch < 20; ++epoch) {
      for (std::uint64_t sample = 0; sample < 20; ++sample) {
        seeds.insert(TransformSeed(seed, EpochId(epoch), SampleId(sample)));
      }
    }
  }
  EXPECT_EQ(seeds.size(), 8000U);
  EXPECT_EQ(TransformSeed(1, EpochId(2), SampleId(3)), TransformSeed(1, EpochId(2), SampleId(3)));
}

TEST(InvariantDividerTest, AgreesWithDivision) {
  for (std::uint64_t test_case = 0; test_case < 10'000; ++test_case) {
    CaseNumbers numbers(test_case);
    const std::uint64_t divisor = 1 + numbers.Below(1ULL << (1 + numbers.Below(63)));
    const InvariantDivider by(divisor);
    for (const std::uint64_t dividend :
         {std::uint64_t{0}, divisor - 1, divisor, divisor + 1, numbers.Below(kOne << 42),
          (kOne << 42) / divisor * divisor, kOne << 42, numbers.Below(kMaxWord),
          kMaxWord / divisor * divisor, kMaxWord / divisor * divisor - 1, kMaxWord}) {
      ASSERT_EQ(by.Divide(dividend).quotient, dividend / divisor) << dividend << "/" << divisor;
      ASSERT_EQ(by.Divide(dividend).remainder, dividend % divisor);
    }
  }
}

TEST(OrderDeathTest, RefusesPositionsAndIndicesBeyondTheEpoch) {
  const Order order(GlobalSpec(10), EpochId(0));
  std::vector<std::uint64_t> two(2);
  EXPECT_DEATH(order.Forward(Position(10)), "CHECK failed");
  EXPECT_DEATH(static_cast<void>(order.Inverse(10)), "CHECK failed");
  EXPECT_DEATH(order.Forward(Position(9), two), "CHECK failed");
  EXPECT_DEATH(order.Forward(Position(~0ULL), two), "CHECK failed");
  two = {3, 10};
  EXPECT_DEATH(order.Inverse(two), "CHECK failed");
}

TEST(OrderDeathTest, RefusesAnInvalidSpec) {
  EXPECT_DEATH(Order(GlobalSpec(0), EpochId(0)), "CHECK failed");
}

}  // namespace
}  // namespace forebay
