// The same training under every layout, on threads: bit-identical weights.
#include <gtest/gtest.h>

#include "trainer/exec/testing/layout_course.h"
#include "trainer/exec/torch_engine.h"

namespace forebay::train {
namespace {

using testing::OptionsOf;

class LayoutIdentity : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(SetTorchThreads(1).has_value()); }

  void ExpectSame(const HybridOptions& options) {
    const auto which = static_cast<std::size_t>(GetParam());
    testing::ExpectSameUnderEveryLayout(testing::TinyModels()[which](), options);
  }
};

TEST_P(LayoutIdentity, SgdEndsInTheSameWeights) {
  ExpectSame(OptionsOf("sgd", 0));
}

TEST_P(LayoutIdentity, MovedValuesEndInTheSameWeights) {
  const auto which = static_cast<std::size_t>(GetParam());
  testing::ExpectSameWhenMoved(testing::TinyModels()[which](),
                               OptionsOf("sgd", 0));
}

TEST_P(LayoutIdentity, ClippedAdamWEndsInTheSameWeights) {
  ExpectSame(OptionsOf("adamw", 0.5));
}

// As on a GPU. The norm of a gradient may come out otherwise, so that only layouts are compared.
TEST_P(LayoutIdentity, SumsAndUpdatesByLibTorchEndInTheSameWeights) {
  const testing::TinyModel tiny = testing::TinyModels()[static_cast<std::size_t>(GetParam())]();
  const auto digest = [&](HybridOptions options, UpdateArithmetic arithmetic,
                          std::uint32_t replicas, const StageSplit& split) {
    options.stage.arithmetic = arithmetic;
    const testing::Course course{.layouts = {testing::LayoutOf(replicas, split, "1f1b")},
                                 .steps = 3};
    return Train(tiny, course, options).digest;
  };
  using enum UpdateArithmetic;
  const HybridOptions sgd = OptionsOf("sgd", 0);
  const std::uint64_t plain = digest(sgd, kPlain, 1, {{0}});
  EXPECT_EQ(digest(sgd, kLibTorch, 1, {{0}}), plain);
  EXPECT_EQ(digest(sgd, kLibTorch, 2, {{0, 2}}), plain);
  const HybridOptions clipped = OptionsOf("adamw", 0.5);
  EXPECT_EQ(digest(clipped, kLibTorch, 2, {{0, 2}}), digest(clipped, kLibTorch, 1, {{0}}));
}

INSTANTIATE_TEST_SUITE_P(TinyModels, LayoutIdentity, ::testing::Range(0, 5));

// What trainers with a layer of normalisation for each worker do.
TEST(LayoutIdentityTest, StatisticsOfTheFirstReplicaDependOnTheReplicas) {
  const testing::TinyModel tiny = testing::TinyModels()[0]();
  HybridOptions options = OptionsOf("sgd", 0);
  options.stage.first_replica_statistics = true;
  const auto train = [&](std::uint32_t replicas, const StageSplit& split) {
    const testing::Course course{.layouts = {testing::LayoutOf(replicas, split, "1f1b")},
                                 .steps = 2};
    return Train(tiny, course, options);
  };
  const testing::Trained alone = train(1, {{0}});
  EXPECT_EQ(train(1, {{0, 3}}).digest, alone.digest);
  const testing::Trained replicated = train(2, {{0}});
  EXPECT_NE(replicated.digest, alone.digest);
  EXPECT_NEAR(replicated.last_loss, alone.last_loss, 1e-9);  // weights are the same
  EXPECT_NE(replicated.evaluated, alone.evaluated);
}

// A stage that has nothing to learn, and one whose weights are frozen.
TEST(LayoutIdentityTest, StagesWithoutTrainedParametersPassOnWhatTheyMake) {
  const testing::TinyModel tiny = testing::TinyModels()[4]();
  const HybridOptions options = OptionsOf("adamw", 0.5);
  const auto train = [&](std::uint32_t replicas, const StageSplit& split) {
    const testing::Course course{.layouts = {testing::LayoutOf(replicas, split, "1f1b")},
                                 .steps = 3};
    return Train(tiny, course, options).digest;
  };
  const std::uint64_t alone = train(1, {{0}});
  EXPECT_EQ(train(1, {{0, 1}}), alone);
  EXPECT_EQ(train(2, {{0, 1, 2}}), alone);
}

TEST(LayoutIdentityTest, AModelThatHasNothingToLearnIsRefused) {
  const auto measure =
      MeasureModel(testing::UntrainableModel(), torch::zeros({2, 1, 4, 4}),
                   torch::zeros({2, 4, 4, 4}), [] { return std::uint64_t{0}; });
  ASSERT_FALSE(measure.has_value());
  EXPECT_EQ(measure.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(measure.error().message().find("no parameter that is trained"), std::string::npos)
      << measure.error().message();
}

TEST(LayoutIdentityTest, AnotherSeedEndsInOtherWeights) {
  const testing::TinyModel tiny = testing::TinyModels()[0]();
  HybridOptions options = OptionsOf("sgd", 0);
  const testing::Course course{.layouts = {testing::LayoutOf(1, {{0}}, "1f1b")},
                               .steps = 2};
  const testing::Trained first = Train(tiny, course, options);
  options.stage.seed = 6;
  EXPECT_NE(Train(tiny, course, options).digest, first.digest);
}

}  // namespace
}  // namespace forebay::train
