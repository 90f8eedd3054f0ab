// Each family's micro model under every layout: bit-identical weights.
#include <gtest/gtest.h>

#include "trainer/exec/testing/layout_course.h"
#include "trainer/exec/torch_engine.h"
#include "trainer/models/model_request.h"
#include "trainer/models/testing/synthetic_samples.h"

namespace forebay::train {
namespace {

testing::TinyModel TinyOf(const std::string& name) {
  const ModelSizes sizes = ResolveModel({.name = name}).value();
  testing::TinyModel tiny;
  tiny.model = MakeModel({.name = name}).value();
  tiny.input = [sizes](std::uint64_t seed, std::uint32_t samples) {
    return testing::NormalSamples(sizes.shape, samples, seed);
  };
  tiny.target = [sizes](std::uint64_t seed, std::uint32_t samples) {
    return testing::LearnableTargets(
        sizes, testing::NormalSamples(sizes.shape, samples, seed));
  };
  return tiny;
}

class ModelLayouts : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(SetTorchThreads(1).has_value()); }
};

TEST_P(ModelLayouts, EndInTheSameWeights) {
  testing::ExpectSameUnderEveryLayout(TinyOf(GetParam()),
                                      testing::OptionsOf("adamw", 0.5));
}

TEST_P(ModelLayouts, MovedValuesEndInTheSameWeights) {
  testing::ExpectSameWhenMoved(TinyOf(GetParam()), testing::OptionsOf("sgd", 0));
}

INSTANTIATE_TEST_SUITE_P(Micro, ModelLayouts,
                         ::testing::Values("lenet-micro", "resnet-micro",
                                           "resnet-bottleneck-micro", "vit-micro",
                                           "unet3d-micro", "cosmoflow-micro"));

}  // namespace
}  // namespace forebay::train
