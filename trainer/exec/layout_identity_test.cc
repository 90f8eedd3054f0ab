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
  ExpectSame(OptionsOf(OptimiserKind::kSgd, 0));
}

TEST_P(LayoutIdentity, MovedValuesEndInTheSameWeights) {
  const auto which = static_cast<std::size_t>(GetParam());
  testing::ExpectSameWhenMoved(testing::TinyModels()[which](),
                               OptionsOf(OptimiserKind::kSgd, 0));
}

TEST_P(LayoutIdentity, ClippedAdamWEndsInTheSameWeights) {
  ExpectSame(OptionsOf(OptimiserKind::kAdamW, 0.5));
}

INSTANTIATE_TEST_SUITE_P(TinyModels, LayoutIdentity, ::testing::Range(0, 4));

TEST(LayoutIdentityTest, AnotherSeedEndsInOtherWeights) {
  const testing::TinyModel tiny = testing::TinyModels()[0]();
  HybridOptions options = OptionsOf(OptimiserKind::kSgd, 0);
  const testing::Course course{.layouts = {testing::LayoutOf(1, {{0}}, Schedule::k1f1b)},
                               .steps = 2};
  const testing::Trained first = Train(tiny, course, options);
  options.stage.seed = 6;
  EXPECT_NE(Train(tiny, course, options).digest, first.digest);
}

}  // namespace
}  // namespace forebay::train
