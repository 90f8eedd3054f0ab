// Losses over one sample each, summed over the micro-batch; the trainer divides by the samples of
// the step. Each has the metric that evaluations report. No operation here has a backward pass that
// is not deterministic on a GPU.
#include "trainer/models/sample_losses.h"

namespace forebay::train {
namespace {

// Where the target is each class: {n, classes, voxels} of zeros and ones. By comparison, because
// scattering is not deterministic on every device.
torch::Tensor ClassMasks(const torch::Tensor& target, const torch::Tensor& output) {
  const torch::Tensor classes =
      torch::arange(output.size(1), target.options()).reshape({1, output.size(1), 1});
  const torch::Tensor truth = target.reshape({output.size(0), 1, -1});
  TORCH_CHECK(truth.numel() * output.size(1) == output.numel(),
              "a target of another size than the output");
  return truth.eq(classes).to(output.scalar_type());
}

// 2 |A and B| / (|A| + |B|) of every sample and every class but the background: {n, classes - 1}.
torch::Tensor DiceOf(const torch::Tensor& share, const torch::Tensor& truth) {
  // Without it a class that is neither there nor found would be 0 / 0; with it, it counts as
  // found.
  constexpr double kSmooth = 1e-6;
  const std::int64_t classes = share.size(1);
  const torch::Tensor found = share.narrow(1, 1, classes - 1);
  const torch::Tensor wanted = truth.narrow(1, 1, classes - 1);
  return (2.0 * (found * wanted).sum(2) + kSmooth) / (found.sum(2) + wanted.sum(2) + kSmooth);
}

// The mean of Dice and of cross entropy over voxels, as in MLPerf's 3D U-Net; the metric is Dice.
class DiceCrossEntropy final : public Loss {
 public:
  torch::Tensor Sum(const torch::Tensor& output, const torch::Tensor& target) const override {
    const torch::Tensor truth = ClassMasks(target, output);
    // Logarithms first: the exponential of them is more accurate than the logarithm of a softmax.
    const torch::Tensor log_share = torch::log_softmax(output.flatten(2), 1);
    const torch::Tensor cross_entropy =
        -(truth * log_share).sum() / static_cast<double>(truth.size(2));
    const torch::Tensor dice = DiceOf(log_share.exp(), truth);
    return 0.5 * (cross_entropy + (1.0 - dice).mean(1).sum());
  }

  Score Evaluate(const torch::Tensor& output, const torch::Tensor& target) const override {
    const torch::Tensor truth = ClassMasks(target, output);
    const torch::Tensor likeliest = ClassMasks(output.flatten(2).argmax(1), output);
    return {.sum = DiceOf(likeliest, truth).mean(1).sum().item<double>(),
            .samples = static_cast<std::uint64_t>(output.size(0))};
  }
};

// Mean over the numbers of a sample. Evaluations report the absolute error in either case, so that
// both losses can be compared.
class NumberError final : public Loss {
 public:
  explicit NumberError(bool is_squared) : is_squared_(is_squared) {}

  torch::Tensor Sum(const torch::Tensor& output, const torch::Tensor& target) const override {
    const torch::Tensor error = output - target.reshape(output.sizes());
    return (is_squared_ ? error.square() : error.abs()).flatten(1).mean(1).sum();
  }

  Score Evaluate(const torch::Tensor& output, const torch::Tensor& target) const override {
    const torch::Tensor error = (output - target.reshape(output.sizes())).abs();
    return {.sum = error.flatten(1).mean(1).sum().item<double>(),
            .samples = static_cast<std::uint64_t>(output.size(0))};
  }

 private:
  bool is_squared_;
};

using Shape = std::vector<std::int64_t>;

// Shapes of a sample's target: a class, numbers, or a class for each voxel.
Shape ClassIndex(const ModelSizes&) { return {}; }
Shape Numbers(const ModelSizes& sizes) { return {sizes.outputs}; }
Shape Voxels(const ModelSizes& sizes) { return {sizes.shape.begin() + 1, sizes.shape.end()}; }

}  // namespace

// The metric of cross entropy is the usual one, accuracy.
const LossKind kCrossEntropy = {
    .name = "cross-entropy",
    .make =
        [](const ModelSizes& sizes) {
          const auto smoothing = sizes.settings.find(std::string(kLabelSmoothing.name));
          return MakeCrossEntropy(smoothing == sizes.settings.end() ? 0 : smoothing->second);
        },
    .target_shape = &ClassIndex,
    .metric = {}};
const LossKind kDiceCrossEntropy = {
    .name = "dice-cross-entropy",
    .make = [](const ModelSizes&) { return MakeDiceCrossEntropy(); },
    .target_shape = &Voxels,
    .metric = {.name = "dice", .higher_is_better = true}};
const LossKind kSquaredError = {.name = "squared-error",
                                .make = [](const ModelSizes&) { return MakeSquaredError(); },
                                .target_shape = &Numbers,
                                .metric = {.name = "mae", .higher_is_better = false}};
const LossKind kAbsoluteError = {.name = "absolute-error",
                                 .make = [](const ModelSizes&) { return MakeAbsoluteError(); },
                                 .target_shape = &Numbers,
                                 .metric = {.name = "mae", .higher_is_better = false}};

std::shared_ptr<Loss> MakeDiceCrossEntropy() { return std::make_shared<DiceCrossEntropy>(); }

std::shared_ptr<Loss> MakeSquaredError() { return std::make_shared<NumberError>(true); }

std::shared_ptr<Loss> MakeAbsoluteError() { return std::make_shared<NumberError>(false); }

}  // namespace forebay::train
