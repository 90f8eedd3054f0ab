// Each family's micro model under every layout: bit-identical weights.
#include <gtest/gtest.h>

#include "trainer/exec/testing/layout_course.h"
#include "trainer/exec/torch_engine.h"
#include "trainer/models/model_request.h"

namespace forebay::train {
namespace {

torch::Tensor Samples(const std::vector<std::int64_t>& shape, std::uint64_t seed,
                      std::uint32_t samples) {
  std::vector<std::int64_t> sizes = shape;
  sizes.insert(sizes.begin(), samples);
  return torch::empty(sizes).normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(seed));
}

// What the input decides: the class of a sample, of each voxel, or numbers.
torch::Tensor Targets(const ModelSizes& sizes, const torch::Tensor& input) {
  if (sizes.loss == "cross-entropy") {
    return input.flatten(1).narrow(1, 0, sizes.outputs).argmax(1);
  }
  if (sizes.loss == "dice-cross-entropy") {
    const torch::Tensor voxels = input.select(1, 0);
    return voxels.gt(-0.5).to(torch::kLong) + voxels.gt(0.5).to(torch::kLong);
  }
  return torch::tanh(input.flatten(1).narrow(1, 0, sizes.outputs));
}

testing::TinyModel TinyOf(const std::string& name) {
  const ModelSizes sizes = ResolveModel({.name = name}).value();
  testing::TinyModel tiny;
  tiny.model = MakeModel({.name = name}).value();
  tiny.input = [sizes](std::uint64_t seed, std::uint32_t samples) {
    return Samples(sizes.shape, seed, samples);
  };
  tiny.target = [sizes](std::uint64_t seed, std::uint32_t samples) {
    return Targets(sizes, Samples(sizes.shape, seed, samples));
  };
  return tiny;
}

class ModelLayouts : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(SetTorchThreads(1).has_value()); }
};

TEST_P(ModelLayouts, EndInTheSameWeights) {
  testing::ExpectSameUnderEveryLayout(TinyOf(GetParam()),
                                      testing::OptionsOf(OptimiserKind::kAdamW, 0.5));
}

TEST_P(ModelLayouts, MovedValuesEndInTheSameWeights) {
  testing::ExpectSameWhenMoved(TinyOf(GetParam()), testing::OptionsOf(OptimiserKind::kSgd, 0));
}

INSTANTIATE_TEST_SUITE_P(Micro, ModelLayouts,
                         ::testing::Values("lenet-micro", "resnet-micro",
                                           "resnet-bottleneck-micro", "vit-micro",
                                           "unet3d-micro", "cosmoflow-micro"));

}  // namespace
}  // namespace forebay::train
