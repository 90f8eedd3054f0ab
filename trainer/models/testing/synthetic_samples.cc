// Samples are normal numbers from a seed. Targets follow from the samples by a rule that a network
// can learn, so that a falling loss means something.
#include "trainer/models/testing/synthetic_samples.h"

namespace forebay::train::testing {

torch::Tensor NormalSamples(const std::vector<std::int64_t>& shape, std::uint32_t samples,
                            std::uint64_t seed) {
  std::vector<std::int64_t> sizes = shape;
  sizes.insert(sizes.begin(), samples);
  return torch::empty(sizes).normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(seed));
}

torch::Tensor LearnableTargets(const ModelSizes& sizes, const torch::Tensor& input) {
  if (sizes.loss == "cross-entropy") {
    return input.flatten(1).narrow(1, 0, sizes.outputs).argmax(1);
  }
  if (sizes.loss == "dice-cross-entropy") {
    const torch::Tensor voxels = input.select(1, 0);
    return voxels.gt(-0.5).to(torch::kLong) + voxels.gt(0.5).to(torch::kLong);
  }
  return torch::tanh(input.flatten(1).narrow(1, 0, sizes.outputs));
}

}  // namespace forebay::train::testing
