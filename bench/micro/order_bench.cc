// Measures Order: start-up, forward and inverse, one position at a time and in batches, over sizes
// of the data set at which the permutation has different costs. The goal is 20 million forward or
// inverse per second and core at the worst n <= 2^34, and a start-up cost that does not depend on
// n, because a stream of 10^10 samples should open as fast as one of a thousand.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "proto/contract/order.h"

namespace forebay {
namespace {

// As many samples as a large minibatch has, or an extent of small samples.
constexpr std::uint64_t kBatchSamples = 4096;

// A global order, or one of runs of 256 samples that are shuffled within windows of 64 runs. The
// second one costs more, because each position goes through two permutations.
OrderSpec SpecOf(std::uint64_t sample_count, bool block) {
  OrderSpec spec{.seed = 7, .sample_count = sample_count};
  if (block) spec.shape = {OrderMode::kBlock, 256, 64};
  return spec;
}

// The arguments of a benchmark as Sizes sets them: n, then whether the order has blocks.
Order OrderOf(const benchmark::State& state) {
  const auto sample_count = static_cast<std::uint64_t>(state.range(0));
  return Order(SpecOf(sample_count, state.range(1) != 0), EpochId(1));
}

// 64 canonical nodes, of which each has `part` samples of a step; a tenth is exchanged.
Order PartialOrderOf(const benchmark::State& state) {
  constexpr std::uint32_t kNodes = 64;
  OrderSpec spec{.seed = 7, .sample_count = static_cast<std::uint64_t>(state.range(0))};
  spec.shape = {.mode = OrderMode::kPartial,
                .block_samples = 1024,
                .canonical_nodes = kNodes,
                .exchange_millionths = 100'000,
                .global_batch = kNodes * static_cast<std::uint32_t>(state.range(1))};
  return Order(spec, EpochId(1));
}

// Walks over [0, n) with a stride of a third of it, so that consecutive calls are for different
// runs and windows, and nothing that one call has derived serves the next.
class Walk {
 public:
  explicit Walk(std::uint64_t sample_count)
      : sample_count_(sample_count), stride_(sample_count / 3 + 1) {}
  std::uint64_t Next() {
    at_ += stride_;
    // A remainder would need a division, whose cost would be measured too.
    if (at_ >= sample_count_) at_ -= sample_count_;
    return at_;
  }

 private:
  std::uint64_t sample_count_;
  std::uint64_t stride_;
  std::uint64_t at_ = 0;
};

// Makes an order and asks it for one position, so that work which the constructor might put off is
// measured too. Each iteration has another epoch, as in a training run.
void BM_StartUp(benchmark::State& state) {
  const auto sample_count = static_cast<std::uint64_t>(state.range(0));
  const OrderSpec spec = SpecOf(sample_count, state.range(1) != 0);
  std::uint32_t epoch = 0;
  for (auto _ : state) {
    const Order order(spec, EpochId(epoch++));
    benchmark::DoNotOptimize(order.Forward(Position(0)));
  }
}

// Throughput of single calls: they do not depend on each other, so the processor overlaps them.
void Forward(benchmark::State& state, const Order& order) {
  Walk walk(order.sample_count());
  for (auto _ : state) benchmark::DoNotOptimize(order.Forward(Position(walk.Next())));
  state.SetItemsProcessed(state.iterations());
}

// Latency of a single call: each one needs the result of the one before, so nothing overlaps.
void BM_ForwardDependent(benchmark::State& state) {
  const Order order = OrderOf(state);
  std::uint64_t at = 0;
  for (auto _ : state) {
    // The step keeps the walk off the short cycles of the permutation.
    at = order.Forward(Position(at)) + 1;
    if (at == order.sample_count()) at = 0;
  }
  benchmark::DoNotOptimize(at);
  state.SetItemsProcessed(state.iterations());
}

// Throughput of single inverse calls: the position at which a sample comes.
void Inverse(benchmark::State& state, const Order& order) {
  Walk walk(order.sample_count());
  for (auto _ : state) benchmark::DoNotOptimize(order.Inverse(walk.Next()));
  state.SetItemsProcessed(state.iterations());
}

// Consecutive positions, as the daemon asks for those of a minibatch. The last ones of the epoch
// are taken, because the last window, which may be short, is among them.
void ForwardBatch(benchmark::State& state, const Order& order) {
  std::vector<std::uint64_t> batch(std::min(kBatchSamples, order.sample_count()));
  for (auto _ : state) {
    order.Forward(Position(order.sample_count() - batch.size()), batch);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(batch.size()));
}

// The indices of one extent, as eviction asks for their next use. Inverse overwrites its input, so
// each iteration fills the batch again, which costs little beside the inverse.
void InverseBatch(benchmark::State& state, const Order& order) {
  std::vector<std::uint64_t> batch(std::min(kBatchSamples, order.sample_count()));
  for (auto _ : state) {
    std::iota(batch.begin(), batch.end(), order.sample_count() - batch.size());
    order.Inverse(batch);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(batch.size()));
}

void BM_Forward(benchmark::State& state) { Forward(state, OrderOf(state)); }
void BM_Inverse(benchmark::State& state) { Inverse(state, OrderOf(state)); }
void BM_ForwardBatch(benchmark::State& state) { ForwardBatch(state, OrderOf(state)); }
void BM_InverseBatch(benchmark::State& state) { InverseBatch(state, OrderOf(state)); }
void BM_PartialForward(benchmark::State& state) { Forward(state, PartialOrderOf(state)); }
void BM_PartialInverse(benchmark::State& state) { Inverse(state, PartialOrderOf(state)); }
void BM_PartialForwardBatch(benchmark::State& state) {
  ForwardBatch(state, PartialOrderOf(state));
}
void BM_PartialInverseBatch(benchmark::State& state) {
  InverseBatch(state, PartialOrderOf(state));
}

// A small data set and the largest one of the goal. With one sample of a node in a step, neighbours
// in a batch belong to different nodes, so each of them needs another node's permutation; with 64,
// a permutation serves many of them.
void PartialSizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"n", "part"});
  for (const std::int64_t part : {1, 64}) {
    for (const std::int64_t sample_count : {std::int64_t{60'000}, (std::int64_t{1} << 34) - 1}) {
      benchmark->Args({sample_count, part});
    }
  }
}

// Sizes around the borders of the algorithm (docs/order.md, section 3): up to 16 a table is
// shuffled, up to 512 the network has 12 rounds, above that 8. Its domain is larger than n by less
// than the square root of n, and results outside [0, n) are mapped again, which happens most often
// at 17 and 33. 2^34 - 1 is the largest n of the goal, 2^40 the largest one of the format.
void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"n", "block"});
  for (const std::int64_t block : {0, 1}) {
    for (const std::int64_t sample_count :
         {std::int64_t{5}, std::int64_t{17}, std::int64_t{33}, std::int64_t{512},
          std::int64_t{513}, std::int64_t{60'000}, std::int64_t{1} << 30,
          (std::int64_t{1} << 33) + 1, (std::int64_t{1} << 34) - 1, std::int64_t{1} << 40}) {
      benchmark->Args({sample_count, block});
    }
  }
}

BENCHMARK(BM_StartUp)->Apply(Sizes);
BENCHMARK(BM_Forward)->Apply(Sizes);
BENCHMARK(BM_ForwardDependent)->Apply(Sizes);
BENCHMARK(BM_Inverse)->Apply(Sizes);
BENCHMARK(BM_ForwardBatch)->Apply(Sizes);
BENCHMARK(BM_InverseBatch)->Apply(Sizes);
BENCHMARK(BM_PartialForward)->Apply(PartialSizes);
BENCHMARK(BM_PartialInverse)->Apply(PartialSizes);
BENCHMARK(BM_PartialForwardBatch)->Apply(PartialSizes);
BENCHMARK(BM_PartialInverseBatch)->Apply(PartialSizes);

}  // namespace
}  // namespace forebay
