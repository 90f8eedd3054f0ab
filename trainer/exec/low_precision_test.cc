// Training in bfloat16: as independent of the layout as in single precision, and near to it.
#include <gtest/gtest.h>

#include <cmath>

#include "trainer/exec/stage/autocast.h"
#include "trainer/exec/testing/layout_course.h"
#include "trainer/exec/torch_engine.h"

namespace forebay::train {
namespace {

using testing::LayoutOf;
using testing::OptionsOf;

HybridOptions LowPrecision() {
  HybridOptions options = OptionsOf("sgd", 0);
  options.stage.precision = Precision::kBf16;
  return options;
}

class LowPrecisionTest : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(SetTorchThreads(1).has_value()); }

  static testing::TinyModel Tiny() {
    return testing::TinyModels()[static_cast<std::size_t>(GetParam())]();
  }
};

TEST_P(LowPrecisionTest, EndsInTheSameWeightsUnderEveryLayout) {
  testing::ExpectSameUnderEveryLayout(Tiny(), LowPrecision(), 10);
}

TEST_P(LowPrecisionTest, LearnsWhatSinglePrecisionLearns) {
  const testing::TinyModel tiny = Tiny();
  const testing::Course alone{.layouts = {LayoutOf(1, {{0}}, "1f1b")}, .steps = 10};
  const testing::Trained low = Train(tiny, alone, LowPrecision());
  const testing::Trained single = Train(tiny, alone, OptionsOf("sgd", 0));
  EXPECT_NE(low.digest, single.digest);
  EXPECT_NEAR(low.last_loss, single.last_loss, 0.03 * single.first_loss);
  EXPECT_NEAR(low.evaluated, single.evaluated, 0.03 * single.evaluated);
}

INSTANTIATE_TEST_SUITE_P(TinyModels, LowPrecisionTest, ::testing::Range(0, 4));

// In the smallest ones: processors without arithmetic of bfloat16 take their time.
TEST(LowPrecisionMemory, MovedValuesEndInTheSameWeights) {
  ASSERT_TRUE(SetTorchThreads(1).has_value());
  for (const std::size_t which : {0U, 3U}) {
    testing::ExpectSameWhenMoved(testing::TinyModels()[which](), LowPrecision());
  }
}

TEST(LowPrecisionMessages, AreHalfAsLong) {
  ASSERT_TRUE(SetTorchThreads(1).has_value());
  const testing::TinyModel tiny = testing::TinyModels()[0]();
  const testing::Course halves{.layouts = {LayoutOf(1, {{0, 2}}, "1f1b")}, .steps = 1};
  const testing::Trained low = Train(tiny, halves, LowPrecision());
  const testing::Trained single = Train(tiny, halves, OptionsOf("sgd", 0));
  EXPECT_GT(low.activation_bytes, 0U);
  EXPECT_EQ(2 * low.activation_bytes, single.activation_bytes);
}

TEST(AutocastScopeTest, CastsOnlyWhileItLives) {
  const torch::Tensor x = torch::ones({4, 4});
  {
    const AutocastScope single(Precision::kFp32);
    EXPECT_EQ(torch::mm(x, x).scalar_type(), torch::kFloat32);
  }
  {
    const AutocastScope low(Precision::kBf16);
    EXPECT_EQ(torch::mm(x, x).scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(torch::mm(x, x).scalar_type(), torch::kFloat32);
}

}  // namespace
}  // namespace forebay::train
