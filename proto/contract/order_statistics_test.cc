// Statistical tests of the order (docs/order.md, section 7, has the table). Every statistic
// is computed from fixed seeds, so a run is reproducible; it is normalised to a z score (for a
// chi-square by Wilson and Hilferty), accepted up to kZAccept in absolute value. The same
// statistic on a network with fewer rounds must exceed kZReject: a test that accepts
// everything would prove nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "proto/contract/order.h"
#include "proto/contract/order_mix.h"
#include "proto/contract/order_permutation.h"

namespace forebay {
namespace {

constexpr double kZAccept = 4.5;   // about 7 in 10^6 per statistic if the seeds were redrawn
constexpr double kZReject = 12.0;

// The key of trial `trial`, the way Order derives keys: folded, not counted.
std::uint64_t TrialKey(std::uint64_t trial) { return Absorb64(0x5EED, trial); }

double ZOfChiSquare(double chi_square, double degrees) {
  const double scaled = 2.0 / (9.0 * degrees);
  return (std::cbrt(chi_square / degrees) - (1.0 - scaled)) / std::sqrt(scaled);
}

double ChiSquareUniform(const std::vector<std::uint64_t>& counts) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), 0ULL));
  const double expected = total / static_cast<double>(counts.size());
  double chi_square = 0;
  for (const std::uint64_t count : counts) {
    const double difference = static_cast<double>(count) - expected;
    chi_square += difference * difference / expected;
  }
  return chi_square;
}

double ZUniform(const std::vector<std::uint64_t>& counts) {
  return ZOfChiSquare(ChiSquareUniform(counts), static_cast<double>(counts.size() - 1));
}

// Lehmer rank in [0, 120) of the relative order of five distinct values.
std::size_t PatternOf(const std::array<std::uint64_t, 5>& values) {
  std::size_t rank = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    std::size_t smaller = 0;
    for (std::size_t j = i + 1; j < 5; ++j) smaller += values[j] < values[i] ? 1U : 0U;
    rank = rank * (5 - i) + smaller;
  }
  return rank;
}

// What a statistic is computed of: n and the rounds of the network.
struct Subject {
  std::uint64_t size;
  unsigned rounds;
  std::uint64_t trials;
  KeyedPermutation Permutation(std::uint64_t trial) const {
    return KeyedPermutation(size, TrialKey(trial), rounds);
  }
};

std::vector<std::uint64_t> Image(const KeyedPermutation& permutation) {
  std::vector<std::uint64_t> image(permutation.size());
  std::iota(image.begin(), image.end(), 0ULL);
  permutation.Forward(image);
  return image;
}

// pattern5: relative order of the images of positions 0..4 over many keys; 120 cells.
double Pattern5(const Subject& subject) {
  std::vector<std::uint64_t> counts(120);
  for (std::uint64_t trial = 0; trial < subject.trials; ++trial) {
    const KeyedPermutation permutation = subject.Permutation(trial);
    std::array<std::uint64_t, 5> values = {0, 1, 2, 3, 4};
    permutation.Forward(values);
    ++counts[PatternOf(values)];
  }
  return ZUniform(counts);
}

// pair_gap: (image(1) - image(0)) mod n over many keys; n - 1 cells, at most 1024.
double PairGap(const Subject& subject, bool inverse) {
  const std::uint64_t cells = std::min<std::uint64_t>(subject.size - 1, 1024);
  std::vector<std::uint64_t> counts(cells);
  for (std::uint64_t trial = 0; trial < subject.trials; ++trial) {
    const KeyedPermutation permutation = subject.Permutation(trial);
    std::array<std::uint64_t, 2> values = {0, 1};
    if (inverse) {
      permutation.Inverse(values);
    } else {
      permutation.Forward(values);
    }
    const std::uint64_t gap =
        (values[1] + subject.size - values[0]) % subject.size - 1;  // [0, n - 1)
    ++counts[gap * cells / (subject.size - 1)];
  }
  return ZUniform(counts);
}

// epoch_gap: the same over all adjacent positions of whole epochs; 64 cells.
double EpochGap(const Subject& subject) {
  constexpr std::uint64_t kCells = 64;
  std::vector<std::uint64_t> counts(kCells);
  for (std::uint64_t trial = 0; trial < subject.trials; ++trial) {
    const std::vector<std::uint64_t> image = Image(subject.Permutation(trial));
    for (std::size_t p = 0; p + 1 < image.size(); ++p) {
      const std::uint64_t gap = (image[p + 1] + subject.size - image[p]) % subject.size - 1;
      ++counts[gap * kCells / (subject.size - 1)];
    }
  }
  return ZUniform(counts);
}

// serial: position bucket x index bucket, 16 x 16, by the high or the low bits.
double Serial(const Subject& subject, bool low_bits) {
  constexpr std::uint64_t kSide = 16;
  const std::uint64_t n = subject.size;
  double chi_square = 0;
  for (std::uint64_t trial = 0; trial < subject.trials; ++trial) {
    std::vector<std::uint64_t> counts(kSide * kSide);
    std::array<double, kSide> margin{};
    const std::vector<std::uint64_t> image = Image(subject.Permutation(trial));
    const auto bucket = [&](std::uint64_t x) { return low_bits ? x % kSide : x * kSide / n; };
    for (std::uint64_t p = 0; p < n; ++p) {
      ++counts[bucket(p) * kSide + bucket(image[p])];
      ++margin[bucket(p)];
    }
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const double expected = margin[i / kSide] * margin[i % kSide] / static_cast<double>(n);
      const double difference = static_cast<double>(counts[i]) - expected;
      chi_square += difference * difference / expected;
    }
  }
  // Both margins are fixed: (side - 1)^2 degrees, scaled by (n - 1) / n.
  const double degrees =
      static_cast<double>(subject.trials) * static_cast<double>((kSide - 1) * (kSide - 1));
  return ZOfChiSquare(chi_square * static_cast<double>(n - 1) / static_cast<double>(n), degrees);
}

// correlation: of x(p) and y(p) over an epoch, its square summed over the trials.
double Correlation(const Subject& subject, std::uint64_t lag) {
  double chi_square = 0;
  for (std::uint64_t trial = 0; trial < subject.trials; ++trial) {
    const std::vector<std::uint64_t> image = Image(subject.Permutation(trial));
    const auto n = static_cast<double>(subject.size);
    const double mean = (n - 1) / 2;
    const double variance = (n * n - 1) / 12;
    double sum = 0;
    for (std::size_t p = 0; p < image.size(); ++p) {
      const double x = lag == 0 ? static_cast<double>(p)
                                : static_cast<double>(image[(p + lag) % image.size()]);
      sum += (x - mean) * (static_cast<double>(image[p]) - mean);
    }
    const double z = sum / (n * variance) * std::sqrt(n - 1) + (lag == 0 ? 0 : 1 / std::sqrt(n));
    chi_square += z * z;
  }
  return ZOfChiSquare(chi_square, static_cast<double>(subject.trials));
}

// cycles: number of cycles; mean H_n, variance H_n - H_n^(2), summed over the trials.
double Cycles(std::uint64_t size, std::uint64_t trials,
              const std::function<std::vector<std::uint64_t>(std::uint64_t)>& image_of) {
  double mean = 0;
  double variance = 0;
  for (std::uint64_t i = 1; i <= size; ++i) {
    const auto x = static_cast<double>(i);
    mean += 1 / x;
    variance += 1 / x - 1 / (x * x);
  }
  double total = 0;
  for (std::uint64_t trial = 0; trial < trials; ++trial) {
    std::vector<std::uint64_t> image = image_of(trial);
    for (std::uint64_t start = 0; start < size; ++start) {
      if (image[start] == size) continue;  // already on a cycle
      ++total;
      for (std::uint64_t x = start; image[x] != size;) x = std::exchange(image[x], size);
    }
  }
  const auto count = static_cast<double>(trials);
  return (total - count * mean) / std::sqrt(count * variance);
}

// fixed_points: their number per epoch against Poisson(1); cells 0, 1, 2, 3, 4, more.
double FixedPoints(const Subject& subject) {
  std::array<double, 6> counts{};
  for (std::uint64_t trial = 0; trial < subject.trials; ++trial) {
    const std::vector<std::uint64_t> image = Image(subject.Permutation(trial));
    std::size_t fixed = 0;
    for (std::size_t p = 0; p < image.size(); ++p) fixed += image[p] == p ? 1U : 0U;
    ++counts[std::min<std::size_t>(fixed, 5)];
  }
  double chi_square = 0;
  double rest = 1;
  double probability = 1 / std::numbers::e;
  for (std::size_t i = 0; i < 6; ++i) {
    if (i > 0) probability /= static_cast<double>(i);
    const double expected = static_cast<double>(subject.trials) * (i < 5 ? probability : rest);
    rest -= probability;
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return ZOfChiSquare(chi_square, 5);
}

// avalanche: one bit of the position is flipped; how often each bit of the image flips. One
// cell per (position bit, image bit); n is a power of two, so that each flips half the time.
double Avalanche(const Subject& subject) {
  const auto bits = static_cast<unsigned>(std::countr_zero(subject.size));
  double chi_square = 0;
  for (unsigned flipped = 0; flipped < bits; ++flipped) {
    std::vector<std::uint64_t> flips(bits);
    for (std::uint64_t trial = 0; trial < subject.trials; ++trial) {
      const KeyedPermutation permutation = subject.Permutation(trial);
      const std::uint64_t p = Mix64(trial * 64 + flipped) % subject.size;
      const std::uint64_t change =
          permutation.Forward(p) ^ permutation.Forward(p ^ (1ULL << flipped));
      for (unsigned bit = 0; bit < bits; ++bit) flips[bit] += change >> bit & 1;
    }
    const auto trials = static_cast<double>(subject.trials);
    // Two distinct images differ in a given bit with probability (n / 2) / (n - 1).
    const double half = static_cast<double>(subject.size) / 2;
    const double expected = trials * half / (2 * half - 1);
    for (const std::uint64_t count : flips) {
      const double difference = static_cast<double>(count) - expected;
      chi_square += difference * difference / (trials / 4);
    }
  }
  return ZOfChiSquare(chi_square, static_cast<double>(bits * bits));
}

// The subjects of OrderSpec itself, and weakened ones.
Subject Shipped(std::uint64_t size, std::uint64_t trials) {
  return {size, KeyedPermutation::RoundsOf(size), trials};
}

using Statistic = std::function<double(const Subject&)>;

void ExpectAccepted(const Statistic& statistic, std::initializer_list<std::uint64_t> sizes,
                    std::uint64_t trials) {
  for (const std::uint64_t size : sizes) {
    EXPECT_LE(std::abs(statistic(Shipped(size, trials))), kZAccept) << "n " << size;
  }
}

void ExpectRejected(const Statistic& statistic, std::initializer_list<std::uint64_t> sizes,
                    unsigned rounds, std::uint64_t trials) {
  for (const std::uint64_t size : sizes) {
    EXPECT_GT(std::abs(statistic({size, rounds, trials})), kZReject)
        << "n " << size << " with " << rounds << " rounds";
  }
}

// Whole epochs are sampled by their number of positions.
constexpr std::uint64_t kEpochSizes[] = {1025, 60'000, 1'000'003};
constexpr std::uint64_t kPositions = 4'000'000;

void ExpectEpochsAcceptedAndTwoRoundsRejected(const Statistic& statistic) {
  for (const std::uint64_t size : kEpochSizes) {
    const std::uint64_t trials = kPositions / size + 1;
    EXPECT_LE(std::abs(statistic(Shipped(size, trials))), kZAccept) << "n " << size;
    EXPECT_GT(std::abs(statistic({size, 2, trials})), kZReject) << "n " << size;
  }
}

TEST(OrderStatisticsTest, Pattern5) {
  ExpectAccepted(Pattern5, {17, 33, 100, 513}, 1'000'000);
  ExpectRejected(Pattern5, {17, 33, 100}, 4, 1'000'000);
  ExpectRejected(Pattern5, {513}, 2, 1'000'000);
}

TEST(OrderStatisticsTest, PairGap) {
  const auto forward = [](const Subject& subject) { return PairGap(subject, false); };
  ExpectAccepted(forward, {17, 33, 100, 512, 513, 1025}, 1'000'000);
  ExpectRejected(forward, {17, 33, 100, 513, 1025}, 4, 1'000'000);
}

TEST(OrderStatisticsTest, PairGapOfTheInverse) {
  const auto inverse = [](const Subject& subject) { return PairGap(subject, true); };
  ExpectAccepted(inverse, {17, 33, 100, 512, 513, 1025}, 1'000'000);
  ExpectRejected(inverse, {17, 33, 100, 512, 513, 1025}, 4, 1'000'000);
}

TEST(OrderStatisticsTest, EpochGap) { ExpectEpochsAcceptedAndTwoRoundsRejected(EpochGap); }

TEST(OrderStatisticsTest, SerialByHighBits) {
  ExpectEpochsAcceptedAndTwoRoundsRejected(
      [](const Subject& subject) { return Serial(subject, false); });
}

TEST(OrderStatisticsTest, SerialByLowBits) {
  ExpectEpochsAcceptedAndTwoRoundsRejected(
      [](const Subject& subject) { return Serial(subject, true); });
}

TEST(OrderStatisticsTest, CorrelationOfPositionAndIndex) {
  ExpectEpochsAcceptedAndTwoRoundsRejected(
      [](const Subject& subject) { return Correlation(subject, 0); });
}

TEST(OrderStatisticsTest, CorrelationOfNeighbours) {
  ExpectEpochsAcceptedAndTwoRoundsRejected(
      [](const Subject& subject) { return Correlation(subject, 1); });
}

TEST(OrderStatisticsTest, FixedPoints) {
  ExpectAccepted(FixedPoints, {33, 100, 1025}, 40'000);
  ExpectRejected(FixedPoints, {33, 100}, 4, 40'000);
}

TEST(OrderStatisticsTest, Avalanche) {
  ExpectAccepted(Avalanche, {1ULL << 10, 1ULL << 16, 1ULL << 24, 1ULL << 34}, 20'000);
  ExpectRejected(Avalanche, {1ULL << 10, 1ULL << 16, 1ULL << 24, 1ULL << 34}, 2, 20'000);
}

// Few rounds do not show in the number of cycles; a rotation, which is a keyed bijection
// too, does.
TEST(OrderStatisticsTest, Cycles) {
  const auto shipped = [](std::uint64_t size, std::uint64_t trials) {
    return Cycles(size, trials,
                  [&](std::uint64_t trial) { return Image(Shipped(size, 1).Permutation(trial)); });
  };
  EXPECT_LE(std::abs(shipped(33, 20'000)), kZAccept);
  EXPECT_LE(std::abs(shipped(1025, 20'000)), kZAccept);
  EXPECT_LE(std::abs(shipped(60'000, 67)), kZAccept);
  const double rotation = Cycles(1025, 20'000, [](std::uint64_t trial) {
    std::vector<std::uint64_t> image(1025);
    for (std::uint64_t p = 0; p < 1025; ++p) image[p] = (p + TrialKey(trial)) % 1025;
    return image;
  });
  EXPECT_GT(std::abs(rotation), kZReject);
}

OrderSpec SpecOf(std::uint64_t seed, std::uint64_t size) {
  return {.seed = seed, .sample_count = size};
}

// epoch5: all 120 orders of five samples, seeds and epochs counted upwards as users do.
TEST(OrderStatisticsTest, EveryOrderOfFiveSamplesIsEquallyLikely) {
  std::vector<std::uint64_t> counts(120);
  std::vector<std::uint64_t> spoiled(120);
  for (std::uint64_t trial = 0; trial < 1'200'000; ++trial) {
    std::array<std::uint64_t, 5> values;
    const auto epoch = EpochId(static_cast<std::uint32_t>(trial % 100));
    Order(SpecOf(trial / 100, 5), epoch).Forward(Position(0), values);
    ++counts[PatternOf(values)];
    values = {0, 1, 2, 3, 4};
    for (std::uint64_t i = 0; i < 5; ++i) {
      std::swap(values[i], values[MulHigh64(DrawWord64(TrialKey(trial), i), 5)]);
    }
    ++spoiled[PatternOf(values)];
  }
  EXPECT_LE(std::abs(ZUniform(counts)), kZAccept);
  EXPECT_GT(ZUniform(spoiled), kZReject) << "the naive shuffle";
}

// key_avalanche: one bit of the seed or the epoch flips half of the bits of an image.
TEST(OrderStatisticsTest, EveryBitOfSeedAndEpochChangesHalfOfTheBits) {
  constexpr unsigned kBits = 20;
  constexpr std::uint64_t kTrials = 2000;
  const auto z = [](bool with_epoch) {
    double chi_square = 0;
    for (unsigned flipped = 0; flipped < 96; ++flipped) {
      std::array<std::uint64_t, kBits> flips{};
      for (std::uint64_t trial = 0; trial < kTrials; ++trial) {
        const std::uint64_t seed = trial * 3;
        const auto epoch = static_cast<std::uint32_t>(trial % 7);
        const std::uint64_t other_seed = flipped < 64 ? seed ^ (1ULL << flipped) : seed;
        const std::uint32_t other_epoch =
            flipped < 64 || !with_epoch ? epoch : epoch ^ (1U << (flipped - 64));
        const Position p(Mix64(trial) % (1ULL << kBits));
        const std::uint64_t change =
            Order(SpecOf(seed, 1ULL << kBits), EpochId(epoch)).Forward(p) ^
            Order(SpecOf(other_seed, 1ULL << kBits), EpochId(other_epoch)).Forward(p);
        for (unsigned bit = 0; bit < kBits; ++bit) flips[bit] += change >> bit & 1;
      }
      for (const std::uint64_t count : flips) {
        const double difference = static_cast<double>(count) - kTrials / 2.0;
        chi_square += difference * difference / (kTrials / 4.0);
      }
    }
    return ZOfChiSquare(chi_square, 96 * kBits);
  };
  EXPECT_LE(std::abs(z(true)), kZAccept);
  EXPECT_GT(z(false), kZReject) << "a key without the epoch";
}

// Positions at which successive epochs agree: on average one, for every epoch.
TEST(OrderStatisticsTest, SuccessiveEpochsAgreeByChanceOnly) {
  constexpr std::uint64_t kSize = 1000;
  constexpr std::uint32_t kEpochs = 2000;
  std::vector<std::uint64_t> last(kSize);
  std::vector<std::uint64_t> next(kSize);
  Order(SpecOf(1, kSize), EpochId(0)).Forward(Position(0), last);
  std::uint64_t equal = 0;
  for (std::uint32_t epoch = 1; epoch <= kEpochs; ++epoch) {
    Order(SpecOf(1, kSize), EpochId(epoch)).Forward(Position(0), next);
    for (std::size_t p = 0; p < kSize; ++p) equal += next[p] == last[p] ? 1U : 0U;
    std::swap(next, last);
  }
  EXPECT_LE(std::abs(static_cast<double>(equal) - kEpochs) / std::sqrt(kEpochs), kZAccept);
}

// short_run and first_run: 20 full runs of 5 and a short one of 3, one run per window.
TEST(OrderStatisticsTest, ShortRunAndFirstRunAreUniform) {
  std::vector<std::uint64_t> short_slot(21);
  std::vector<std::uint64_t> first_run(20);
  std::vector<std::uint64_t> kept_last(21);
  for (std::uint64_t seed = 0; seed < 100'000; ++seed) {
    OrderSpec spec = SpecOf(seed, 103);
    spec.shape = {OrderMode::kBlock, 5, 1};
    const Order order(spec, EpochId(0));
    const std::uint64_t slot = order.Inverse(100).value() / 5;
    ++short_slot[slot];
    ++kept_last[20];
    const std::uint64_t first = order.Forward(Position(slot == 0 ? 3 : 0)) / 5;
    ++first_run[first];
  }
  EXPECT_LE(std::abs(ZUniform(short_slot)), kZAccept);
  EXPECT_LE(std::abs(ZUniform(first_run)), kZAccept);
  EXPECT_GT(ZUniform(kept_last), kZReject);
}

OrderSpec PartialSpecOf(std::uint64_t seed, std::uint64_t size, std::uint32_t nodes,
                        std::uint32_t batch, std::uint32_t exchange_millionths) {
  OrderSpec spec = SpecOf(seed, size);
  spec.shape = {.mode = OrderMode::kPartial,
                .block_samples = 1,
                .canonical_nodes = nodes,
                .exchange_millionths = exchange_millionths,
                .global_batch = batch};
  return spec;
}

// partial_place: with the seed, the position of a sample takes every value equally often, with
// remainders in shares and steps. Within one seed it stays near its share.
TEST(OrderStatisticsTest, PartialPutsASampleAtEveryPositionEquallyOften) {
  constexpr std::uint64_t kSize = 103;
  std::vector<std::uint64_t> places(kSize);
  std::vector<std::uint64_t> samples(kSize);
  std::vector<std::uint64_t> one_seed(kSize);
  for (std::uint32_t trial = 0; trial < 200'000; ++trial) {
    const Order order(PartialSpecOf(trial / 4, kSize, 6, 24, 300'000), EpochId(trial % 4));
    ++places[order.Inverse(5).value()];
    ++samples[order.Forward(Position(102))];
    ++one_seed[Order(PartialSpecOf(1, kSize, 6, 24, 300'000), EpochId(trial)).Inverse(5).value()];
  }
  EXPECT_LE(std::abs(ZUniform(places)), kZAccept);
  EXPECT_LE(std::abs(ZUniform(samples)), kZAccept);
  EXPECT_GT(ZUniform(one_seed), kZReject) << "a sample without another home";
}

// partial_epoch5: with everything exchanged, the epochs of one seed have all 120 orders equally
// often, as in mode global; with a half exchanged they have not.
TEST(OrderStatisticsTest, PartialWithAWholeExchangeIsAGlobalShuffle) {
  const auto z = [](std::uint32_t exchange_millionths) {
    std::vector<std::uint64_t> counts(120);
    for (std::uint32_t epoch = 0; epoch < 600'000; ++epoch) {
      std::array<std::uint64_t, 5> values;
      Order(PartialSpecOf(3, 5, 2, 2, exchange_millionths), EpochId(epoch))
          .Forward(Position(0), values);
      ++counts[PatternOf(values)];
    }
    return ZUniform(counts);
  };
  EXPECT_LE(std::abs(z(1'000'000)), kZAccept);
  EXPECT_GT(z(500'000), kZReject) << "half of each share stays";
}

// Computes which node reads which sample in the epochs of one seed: node readers[i] reads sample i.
// There are 8 nodes with 25 samples each, of which each exchanges 5.
class PartialReaders {
 public:
  static constexpr std::uint32_t kNodes = 8;
  static constexpr std::uint32_t kShare = 25;
  static constexpr std::uint32_t kSize = kNodes * kShare;
  static constexpr double kExchanged = 0.2;

  static std::vector<std::uint32_t> Of(std::uint32_t exchange_millionths, std::uint32_t epoch) {
    std::vector<std::uint64_t> positions(kSize);
    std::iota(positions.begin(), positions.end(), 0ULL);
    Order(PartialSpecOf(11, kSize, kNodes, kNodes * 5, exchange_millionths), EpochId(epoch))
        .Inverse(positions);
    std::vector<std::uint32_t> readers(kSize);
    for (std::size_t i = 0; i < kSize; ++i) {
      readers[i] = static_cast<std::uint32_t>(positions[i] % (kNodes * 5) / 5);
    }
    return readers;
  }
  static std::vector<std::uint32_t> Homes() { return Of(0, 0); }
  static std::vector<std::uint32_t> InEpoch(std::uint32_t epoch) { return Of(200'000, epoch); }
};

// partial_moves: every sample moves equally often; partial_targets: from every node to every other
// one.
TEST(OrderStatisticsTest, PartialMovesEverySampleToEveryNodeEquallyOften) {
  constexpr std::uint32_t kEpochs = 20'000;
  const std::vector<std::uint32_t> homes = PartialReaders::Homes();
  const auto z = [&](const std::function<std::vector<std::uint32_t>(std::uint32_t)>& readers_in) {
    std::vector<double> moves(PartialReaders::kSize);
    std::vector<std::uint64_t> targets;  // without the diagonal
    std::array<std::array<std::uint64_t, PartialReaders::kNodes>, PartialReaders::kNodes> table{};
    for (std::uint32_t epoch = 0; epoch < kEpochs; ++epoch) {
      const std::vector<std::uint32_t> readers = readers_in(epoch);
      for (std::size_t i = 0; i < readers.size(); ++i) {
        if (readers[i] == homes[i]) continue;
        moves[i] += 1;
        ++table[homes[i]][readers[i]];
      }
    }
    // A sample of the pool can take 40 places, 5 of which belong to its own node.
    const double p = PartialReaders::kExchanged * 35 / 40;
    double chi_square = 0;
    for (const double count : moves) {
      chi_square += (count - kEpochs * p) * (count - kEpochs * p) / (kEpochs * p * (1 - p));
    }
    for (std::size_t from = 0; from < table.size(); ++from) {
      for (std::size_t to = 0; to < table.size(); ++to) {
        if (from != to) targets.push_back(table[from][to]);
      }
    }
    return std::pair(ZOfChiSquare(chi_square, PartialReaders::kSize), ZUniform(targets));
  };
  const auto [moves, targets] = z(PartialReaders::InEpoch);
  EXPECT_LE(std::abs(moves), kZAccept);
  EXPECT_LE(std::abs(targets), kZAccept);
  const auto [same_draw, same_targets] =
      z([](std::uint32_t) { return PartialReaders::InEpoch(0); });
  EXPECT_GT(same_draw, kZReject) << "a draw without the epoch";
  EXPECT_GT(same_targets, kZReject) << "an exchange without the epoch";
  const auto [drawn, to_the_next] = z([&](std::uint32_t epoch) {
    std::vector<std::uint32_t> readers = PartialReaders::InEpoch(epoch);
    for (std::size_t i = 0; i < readers.size(); ++i) {
      if (readers[i] != homes[i]) readers[i] = (homes[i] + 1) % PartialReaders::kNodes;
    }
    return readers;
  });
  EXPECT_LE(std::abs(drawn), kZAccept);
  EXPECT_GT(to_the_next, kZReject) << "an exchange with the next node only";
}

// partial_pattern5: the order in which a node reads five of its samples; partial_step: the step in
// which it reads one of them, the steps of this one and of another node's, and the steps in which
// it reads what comes from others.
TEST(OrderStatisticsTest, PartialNodesReadInRandomOrder) {
  const std::vector<std::uint32_t> homes = PartialReaders::Homes();
  const auto of_node_1 =
      static_cast<std::uint64_t>(std::ranges::find(homes, 1U) - homes.begin());
  std::array<std::uint64_t, 5> own;  // samples of node 0
  std::size_t found = 0;
  for (std::size_t i = 0; found < own.size(); ++i) {
    if (homes[i] == 0) own[found++] = i;
  }
  constexpr std::uint32_t kBatch = PartialReaders::kNodes * 5;
  const auto z = [&](bool with_epoch) {
    std::vector<std::uint64_t> patterns(120);
    std::vector<std::uint64_t> steps(5);
    std::vector<std::uint64_t> pairs(25);
    std::vector<std::uint64_t> foreign_steps(5);
    for (std::uint32_t trial = 0; trial < 200'000; ++trial) {
      const Order order(PartialSpecOf(11, PartialReaders::kSize, PartialReaders::kNodes, kBatch,
                                      200'000),
                        EpochId(with_epoch ? trial : 0));
      std::array<std::uint64_t, 5> positions = own;
      order.Inverse(positions);
      ++steps[positions[0] / kBatch];
      ++pairs[positions[0] / kBatch * 5 + order.Inverse(of_node_1).value() / kBatch];
      ++patterns[PatternOf(positions)];
      const Position first_of_node_0(trial % 5 * kBatch);
      if (homes[order.Forward(first_of_node_0)] != 0) ++foreign_steps[trial % 5];
    }
    return std::array{ZUniform(patterns), ZUniform(steps), ZUniform(pairs),
                      ZUniform(foreign_steps)};
  };
  for (const double accepted : z(true)) EXPECT_LE(std::abs(accepted), kZAccept);
  for (const double rejected : z(false)) EXPECT_GT(rejected, kZReject) << "keys without the epoch";
}

}  // namespace
}  // namespace forebay
