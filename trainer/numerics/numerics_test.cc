// Sums of gradients, optimisers, clipping and random keys against formulas in double precision,
// and the bits that must not depend on the layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "trainer/comm/collectives.h"
#include "trainer/numerics/finite.h"
#include "trainer/numerics/gradient_sum.h"
#include "trainer/numerics/optimiser.h"
#include "trainer/numerics/precision.h"
#include "trainer/numerics/random_key.h"

namespace forebay::train {
namespace {

constexpr std::size_t kFloats = 5003;
constexpr std::size_t kCut = 2500;

std::vector<float> Uneven(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(static_cast<std::int64_t>(random() % 20'001) - 10'000) * 1.37e-3F;
    if (random() % 5 == 0) value *= 1e5F;
  }
  return values;
}

// Of gradients `first` on; each comes in two pieces, the later one first.
std::vector<float> SumOf(std::size_t first, std::size_t micro_batches, GradientSum& sum) {
  for (std::size_t at = first; at < first + micro_batches; ++at) {
    const std::vector<float> gradient = Uneven(kFloats, at);
    sum.Add(kCut, std::span(gradient).subspan(kCut));
    sum.Add(0, std::span(gradient).first(kCut));
    sum.Next();
  }
  const std::span<float> total = sum.Finish();
  return {total.begin(), total.end()};
}

TEST(GradientSumTest, IsTheTreeOfTheReduction) {
  for (std::size_t leaves = 1; leaves <= 20; ++leaves) {
    std::vector<std::vector<float>> all;
    std::vector<float*> pointers;
    for (std::size_t leaf = 0; leaf < leaves; ++leaf) all.push_back(Uneven(kFloats, leaf));
    for (std::vector<float>& leaf : all) pointers.push_back(leaf.data());
    SumTree<float>(pointers, kFloats);
    GradientSum sum(kFloats);
    EXPECT_EQ(SumOf(0, leaves, sum), all[0]) << leaves;
  }
}

TEST(GradientSumTest, SharesOfAPowerOfTwoAreNodesOfTheWhole) {
  GradientSum sum(kFloats);
  const std::vector<float> whole = SumOf(0, 12, sum);
  std::vector<std::vector<float>> parts;
  std::vector<float*> pointers;
  for (std::size_t replica = 0; replica < 3; ++replica) {
    parts.push_back(SumOf(replica * 4, 4, sum));
  }
  for (std::vector<float>& part : parts) pointers.push_back(part.data());
  SumTree<float>(pointers, kFloats);
  EXPECT_EQ(parts[0], whole);
}

TEST(GradientSumTest, FromLeftToRightIsOneBufferAndAnotherSum) {
  GradientSum sum(kFloats, SumOrder::kLeftToRight);
  std::vector<float> expected = Uneven(kFloats, 0);
  for (std::size_t at = 1; at < 7; ++at) {
    const std::vector<float> gradient = Uneven(kFloats, at);
    for (std::size_t i = 0; i < kFloats; ++i) expected[i] += gradient[i];
  }
  EXPECT_EQ(SumOf(0, 7, sum), expected);
  EXPECT_EQ(SumOf(0, 7, sum), expected) << "the buffer is not used again";
  EXPECT_EQ(sum.buffers(), 1U);
  GradientSum tree(kFloats);
  EXPECT_NE(SumOf(0, 7, tree), expected) << "the gradients do not tell the orders apart";
}

TEST(GradientSumTest, PiecesThatAreZeroCount) {
  GradientSum sum(kFloats);
  for (std::size_t at = 0; at < 3; ++at) {
    const std::vector<float> gradient = Uneven(kFloats, at);
    sum.Add(0, std::span(gradient).first(kCut));
    sum.AddNothing(kCut, kFloats - kCut);
    sum.Next();
  }
  const std::span<float> total = sum.Finish();
  EXPECT_NE(total.front(), 0.0F);
  EXPECT_TRUE(std::ranges::all_of(total.subspan(kCut), [](float value) { return value == 0; }));
}

TEST(GradientSumTest, HoldsALogarithmOfBuffers) {
  GradientSum sum(kFloats);
  SumOf(0, 8, sum);
  const std::size_t buffers = sum.buffers();
  EXPECT_LE(buffers, 4U);
  SumOf(0, 8, sum);
  EXPECT_EQ(sum.buffers(), buffers) << "buffers are not used again";
}

TEST(GradientSumTest, WithoutGradientsTheSumIsZero) {
  GradientSum sum(3);
  for (const float value : sum.Finish()) EXPECT_EQ(value, 0.0F);
}

TEST(GradientSumTest, AStageWithoutParametersHasAnEmptySum) {
  GradientSum sum(0);
  for (int at = 0; at < 4; ++at) sum.Next();
  EXPECT_EQ(sum.micro_batches(), 4U);
  EXPECT_TRUE(sum.Finish().empty());
}

struct Trained {
  std::vector<float> weights;
  std::vector<std::vector<float>> states;
};

// `steps` updates of one array, cut into pieces at `cuts`.
Trained Train(const OptimiserOptions& options, const std::vector<std::size_t>& cuts) {
  constexpr std::size_t kCount = 1003;
  Trained trained{Uneven(kCount, 1), {}};
  trained.states.assign(options.optimiser->state_count(), std::vector<float>(kCount));
  for (std::uint64_t step = 1; step <= 5; ++step) {
    const std::vector<float> gradient = Uneven(kCount, 100 + step);
    std::size_t begin = 0;
    for (std::size_t cut = 0; cut <= cuts.size(); ++cut) {
      const std::size_t end = cut < cuts.size() ? cuts[cut] : kCount;
      std::vector<std::span<float>> states;
      for (auto& state : trained.states) {
        states.push_back(std::span(state).subspan(begin, end - begin));
      }
      UpdateWeights(options,
                    {.learning_rate = 0.0123, .weight_decay = 0.01, .gradient_scale = 0.7,
                     .number = step},
                    std::span(trained.weights).subspan(begin, end - begin),
                    std::span(gradient).subspan(begin, end - begin), states);
      begin = end;
    }
  }
  return trained;
}

TEST(OptimiserTest, BitsDoNotDependOnTheLayoutOfParameters) {
  for (const Optimiser& optimiser : Optimisers()) {
    const OptimiserOptions options{.optimiser = &optimiser};
    const Trained whole = Train(options, {});
    for (const auto& cuts : {std::vector<std::size_t>{1}, std::vector<std::size_t>{5, 18, 1000},
                             std::vector<std::size_t>{512, 515, 516, 517}}) {
      const Trained pieces = Train(options, cuts);
      EXPECT_EQ(pieces.weights, whole.weights);
      EXPECT_EQ(pieces.states, whole.states);
    }
  }
}

TEST(OptimiserTest, SgdIsItsFormula) {
  std::array<float, 1> weight = {2.0F};
  std::array<float, 1> velocity = {0.5F};
  const std::array<float, 1> gradient = {3.0F};
  const std::array<std::span<float>, 1> states = {velocity};
  UpdateWeights({.optimiser = FindOptimiser("sgd").value(), .momentum = 0.5},
                {.learning_rate = 0.25, .weight_decay = 0.5, .gradient_scale = 2, .number = 1},
                weight, gradient, states);
  EXPECT_EQ(velocity[0], 0.25F + 6.0F + 1.0F);
  EXPECT_EQ(weight[0], 2.0F - 0.25F * 7.25F);
}

TEST(OptimiserTest, AdamWIsItsFormula) {
  std::array<float, 1> weight = {2.0F};
  std::array<float, 1> mean = {0.1F};
  std::array<float, 1> square = {0.2F};
  const std::array<float, 1> gradient = {0.5F};
  const std::array<std::span<float>, 2> states = {mean, square};
  UpdateWeights({.optimiser = FindOptimiser("adamw").value()},
                {.learning_rate = 0.01, .weight_decay = 0.1, .gradient_scale = 1, .number = 3},
                weight, gradient, states);
  const double m = 0.1 * 0.9 + 0.5 * 0.1;
  const double v = 0.2 * 0.999 + 0.25 * 0.001;
  const double corrected = (m / (1 - std::pow(0.9, 3))) /
                           (std::sqrt(v / (1 - std::pow(0.999, 3))) + 1e-8);
  EXPECT_NEAR(weight[0], 2.0 * (1 - 0.001) - 0.01 * corrected, 1e-6);
  EXPECT_NEAR(mean[0], m, 1e-7);
  EXPECT_NEAR(square[0], v, 1e-7);
}

TEST(OptimiserTest, NamesAndStates) {
  EXPECT_EQ(FindOptimiser("sgd").value(), &Optimisers().front());
  EXPECT_EQ(OptimiserOptions().optimiser, &Optimisers().front());
  EXPECT_EQ(FindOptimiser("sgd").value()->state_count(), 1U);
  // Checkpoints name them so.
  const std::span<const std::string_view> states = FindOptimiser("adamw").value()->states;
  EXPECT_TRUE(std::ranges::equal(states, std::array{"exp_avg", "exp_avg_sq"}));
  const auto unknown = FindOptimiser("adam");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code(), ErrorCode::kInvalidArgument);
  for (const Optimiser& optimiser : Optimisers()) {
    EXPECT_NE(unknown.error().message().find(optimiser.name), std::string::npos);
  }
}

TEST(ClippingTest, NormsAreScaledToTheLimit) {
  const std::vector<float> values = {3, 4};
  EXPECT_EQ(SquaredNorm(values), 25.0);
  EXPECT_EQ(ClipScale(25.0, 1.0), 0.2);
  EXPECT_EQ(ClipScale(25.0, 5.0), 1.0);
  EXPECT_EQ(ClipScale(25.0, 0.0), 1.0);
  EXPECT_EQ(SquaredNorm({}), 0.0);
  EXPECT_NEAR(SquaredNorm(std::vector<float>(5000, 0.5F)), 1250.0, 1e-9);
}

template <typename Value>
void FindsEveryValueThatIsNotFinite() {
  using Limits = std::numeric_limits<Value>;
  std::vector<Value> values(10'000, Limits::max());
  values[1] = Limits::lowest();
  values[2] = Limits::denorm_min();
  values[3] = Value{0};
  EXPECT_EQ(FirstNotFinite(std::span<const Value>(values)), values.size());
  for (const Value bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
    for (const std::size_t at : {9'999U, 4'096U, 4'095U, 0U}) {
      const Value before = std::exchange(values[at], bad);
      EXPECT_EQ(FirstNotFinite(std::span<const Value>(values)), at);
      values[at] = before;
    }
  }
  EXPECT_EQ(FirstNotFinite(std::span<const Value>()), 0U);
}

TEST(FiniteTest, EveryValueThatIsNotFiniteIsFound) {
  FindsEveryValueThatIsNotFinite<float>();
  FindsEveryValueThatIsNotFinite<double>();
}

TEST(PrecisionTest, HalfPrecisionIsRefusedWithAReasonAndARemedy) {
  EXPECT_EQ(ParsePrecision("fp32").value(), Precision::kFp32);
  EXPECT_EQ(ParsePrecision("bf16").value(), Precision::kBf16);
  const auto half = ParsePrecision("fp16");
  ASSERT_FALSE(half.has_value());
  EXPECT_EQ(half.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(half.error().message().find("loss scaling"), std::string::npos);
  EXPECT_NE(half.error().message().find("\"bf16\""), std::string::npos);
  EXPECT_FALSE(ParsePrecision("fp64").has_value());
}

TEST(RandomKeyTest, EveryPartOfTheKeyCounts) {
  const std::uint64_t key = LayerSeed(1, 2, 3, "a");
  EXPECT_EQ(key, LayerSeed(1, 2, 3, "a"));
  for (const std::uint64_t other : {LayerSeed(2, 2, 3, "a"), LayerSeed(1, 3, 3, "a"),
                                    LayerSeed(1, 2, 4, "a"), LayerSeed(1, 2, 3, "b"),
                                    ParameterSeed(1, "a")}) {
    EXPECT_NE(key, other);
  }
  EXPECT_NE(ParameterSeed(1, "a"), ParameterSeed(1, "b"));
  EXPECT_NE(ParameterSeed(1, "a"), ParameterSeed(2, "a"));
}

}  // namespace
}  // namespace forebay::train
