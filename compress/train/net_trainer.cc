// Trains one network with LibTorch: Adam on the bits that errors take under a logistic density,
// whose centre and scale the network predicts. In the last third of the steps weights and
// activations are rounded as the integer network will round them, and gradients pass straight
// through. Export gives the integers. This is the only file of compress/ that includes LibTorch.
#include "compress/train/net_trainer.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>

namespace forebay::compress {
namespace {

// Powers of two between the integers of a network and the real numbers of training: an input of 8
// is 1.0, a hidden value of 32 is; the first output is in fours of a sample's step, of which an
// integer counts sixteenths; the second is the logarithm of the density's scale plus 2.5, in
// 32nds.
constexpr int kInputBits = 3;
constexpr int kHiddenBits = 5;
constexpr int kCorrectionScaleBits = 2;
constexpr int kEnergyBits = 5;
constexpr double kEnergyOffset = 2.5;
constexpr double kHiddenMax = 255.0 / (1 << kHiddenBits);
constexpr double kWeightMax = 127;
constexpr int kWeightBitsMin = 3, kWeightBitsMax = 16;

struct Layer {
  torch::Tensor weight, bias;  // [outputs][inputs], [outputs]
};

// Each output's largest power of two by which its weights stay within int8: [outputs].
torch::Tensor WeightBits(const torch::Tensor& weight) {
  const torch::Tensor largest = torch::detach(weight).abs().amax(1).clamp_min(1e-6);
  return torch::floor(torch::log2(kWeightMax / largest)).clamp(kWeightBitsMin, kWeightBitsMax);
}

// `exact` with the gradient of `smooth`.
torch::Tensor StraightThrough(const torch::Tensor& exact, const torch::Tensor& smooth) {
  return smooth + torch::detach(exact - smooth);
}

// Rounds halves up with floor(x + 0.5), because that is what adding half and shifting does to the
// integers.
torch::Tensor RoundTo(const torch::Tensor& value, int bits) {
  const double scale = std::ldexp(1.0, bits);
  return StraightThrough(torch::floor(value * scale + 0.5) / scale, value);
}

class Net {
 public:
  Net(std::uint32_t inputs, const std::vector<std::uint32_t>& hidden) {
    std::vector<std::uint32_t> widths = hidden;
    widths.push_back(kPredictorOutputs);
    for (const std::uint32_t width : widths) {
      // As LibTorch's own linear layers begin.
      const double bound = 1.0 / std::sqrt(static_cast<double>(inputs));
      layers_.push_back({torch::empty({width, inputs}).uniform_(-bound, bound),
                         torch::empty({width}).uniform_(-bound, bound)});
      inputs = width;
    }
    for (Layer& layer : layers_) {
      layer.weight.requires_grad_();
      layer.bias.requires_grad_();
    }
  }

  std::vector<torch::Tensor> Parameters() const {
    std::vector<torch::Tensor> all;
    for (const Layer& layer : layers_) {
      all.push_back(layer.weight);
      all.push_back(layer.bias);
    }
    return all;
  }

  // `rounded`: as the integer network computes.
  torch::Tensor Forward(torch::Tensor x, bool rounded) const {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      torch::Tensor weight = layers_[i].weight;
      if (rounded) {
        const torch::Tensor scale = torch::exp2(WeightBits(weight)).unsqueeze(1);
        weight = StraightThrough(
            torch::clamp(torch::round(weight * scale), -kWeightMax, kWeightMax) / scale, weight);
      }
      x = torch::addmm(layers_[i].bias, x, weight.t());
      if (i + 1 == layers_.size()) break;
      if (rounded) x = RoundTo(x, kHiddenBits);
      // Hidden values are bytes in the integer network. Training clamps from the start, so that
      // rounding later does not meet values that it cannot represent.
      x = torch::clamp(x, 0.0, kHiddenMax);
    }
    return x;
  }

  // Weights are cut to what int8 holds at the fewest bits that shifts allow for.
  void Confine() {
    const torch::NoGradGuard no_gradient;
    const double most = kWeightMax / (1 << kWeightBitsMin);
    for (Layer& layer : layers_) layer.weight.clamp_(-most, most);
  }

  std::vector<PredictorLayer> Export() const {
    std::vector<PredictorLayer> all;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      all.push_back(ExportLayer(layers_[i], i == 0 ? kInputBits : kHiddenBits,
                                i + 1 == layers_.size()));
    }
    return all;
  }

 private:
  static PredictorLayer ExportLayer(const Layer& layer, int input_bits, bool last) {
    const torch::NoGradGuard no_gradient;
    PredictorLayer out;
    out.outputs = static_cast<std::uint32_t>(layer.weight.size(0));
    out.inputs = static_cast<std::uint32_t>(layer.weight.size(1));
    const torch::Tensor bits = WeightBits(layer.weight);
    for (std::int64_t o = 0; o < layer.weight.size(0); ++o) {
      const int weight_bits = static_cast<int>(bits[o].item<float>());
      // Outputs: a correction in sixteenths of fours, an energy in 32nds.
      const int output_bits = !last    ? kHiddenBits
                              : o == 0 ? kCorrectionBits + kCorrectionScaleBits
                                       : kEnergyBits;
      const double scale = std::ldexp(1.0, weight_bits);
      for (std::int64_t i = 0; i < layer.weight.size(1); ++i) {
        const double weight = std::round(layer.weight[o][i].item<double>() * scale);
        out.weights.push_back(
            static_cast<std::int8_t>(std::clamp(weight, -kWeightMax, kWeightMax)));
      }
      // The integer network gives the logarithm plus an offset; training works without the offset.
      const double bias = layer.bias[o].item<double>() + (last && o == 1 ? kEnergyOffset : 0.0);
      const double limit = kPredictorBiasMax;
      out.bias.push_back(static_cast<std::int32_t>(std::clamp(
          std::round(std::ldexp(bias, weight_bits + input_bits)), -limit, limit)));
      out.shift.push_back(
          static_cast<std::uint8_t>(weight_bits + input_bits - output_bits));
    }
    return out;
  }

  std::vector<Layer> layers_;
};

// Mean bits of the errors under a logistic density whose mass is that of a step of width one.
torch::Tensor MeanBits(const torch::Tensor& outputs, const torch::Tensor& errors) {
  // The integral of the density over the step is a difference of two sigmoids. It is bounded from
  // below, because the logarithm of 0 would make the gradient useless.
  const torch::Tensor distance = errors - outputs.select(1, 0) * (1 << kCorrectionScaleBits);
  const torch::Tensor rate = torch::exp(-outputs.select(1, 1));
  const torch::Tensor mass = torch::sigmoid((distance + 0.5) * rate) -
                             torch::sigmoid((distance - 0.5) * rate);
  return -torch::log2(mass.clamp_min(1e-7)).mean();
}

// Rises over the first twentieth, falls as a cosine to nothing.
double LearningRate(const NetOptions& options, std::int64_t step, std::int64_t steps) {
  const double at = static_cast<double>(step) / static_cast<double>(steps);
  if (at < 0.05) return options.learning_rate * (0.1 + 0.9 * at / 0.05);
  return options.learning_rate * (0.5 + 0.5 * std::cos((at - 0.05) / 0.95 * 3.14159265358979)) +
         1e-5;
}

TrainedNet Train(const TrainingRows& rows, const NetOptions& options, const EpochReport& report) {
  torch::manual_seed(options.seed);
  at::set_num_threads(static_cast<int>(options.threads));
  const auto count = static_cast<std::int64_t>(rows.rows());
  // LibTorch only reads what it is lent here.
  const torch::Tensor values = torch::from_blob(
      const_cast<std::uint8_t*>(rows.values.data()), {count, rows.inputs}, torch::kUInt8);
  const torch::Tensor errors = torch::from_blob(
      const_cast<std::int8_t*>(rows.errors.data()), {count}, torch::kInt8);
  Net net(rows.inputs, options.hidden);
  torch::optim::Adam optimizer(net.Parameters(), torch::optim::AdamOptions(1e-3));
  const auto batch = std::min<std::int64_t>(options.batch_rows, count);
  // Rows that do not fill a batch are left out of this epoch; the next one draws another order.
  const std::int64_t epoch_steps = count / batch;
  const std::int64_t steps = epoch_steps * options.epochs;
  TrainedNet trained;
  std::int64_t step = 0;
  for (std::uint32_t epoch = 1; epoch <= options.epochs; ++epoch) {
    const torch::Tensor order = torch::randperm(count);
    double sum = 0;
    for (std::int64_t i = 0; i < epoch_steps; ++i, ++step) {
      const torch::Tensor chosen = order.slice(0, i * batch, (i + 1) * batch);
      const torch::Tensor x =
          (values.index_select(0, chosen).to(torch::kFloat) - 128.0) / (1 << kInputBits);
      const torch::Tensor wanted = errors.index_select(0, chosen).to(torch::kFloat);
      for (auto& group : optimizer.param_groups()) {
        group.options().set_lr(LearningRate(options, step, steps));
      }
      const torch::Tensor bits = MeanBits(net.Forward(x, step * 3 >= steps * 2), wanted);
      optimizer.zero_grad();
      bits.backward();
      optimizer.step();
      // After each step, because the optimizer knows no bounds.
      net.Confine();
      sum += bits.item<double>();
    }
    trained.bits_per_pixel = sum / static_cast<double>(epoch_steps);
    report(epoch, trained.bits_per_pixel);
  }
  trained.layers = net.Export();
  return trained;
}

}  // namespace

Result<TrainedNet> TrainNet(const TrainingRows& rows, const NetOptions& options,
                            const EpochReport& report) {
  constexpr std::size_t kRowsMin = 1024;
  if (rows.rows() < kRowsMin) {
    return Error(ErrorCode::kInvalidArgument,
                 "training: only " + std::to_string(rows.rows()) + " pixels; at least " +
                     std::to_string(kRowsMin) + " are needed");
  }
  if (options.hidden.size() + 1 > kPredictorLayersMax || options.epochs == 0 ||
      options.batch_rows == 0 ||
      std::ranges::any_of(options.hidden, [](std::uint32_t width) {
        // Without a sign, so a width of 0 is refused as well.
        return width - 1 >= kPredictorWidthMax;
      })) {
    return Error(ErrorCode::kInvalidArgument,
                 "training: at most " + std::to_string(kPredictorLayersMax - 1) +
                     " hidden layers of 1 to " + std::to_string(kPredictorWidthMax) +
                     " outputs, and at least one epoch");
  }
  try {
    // LibTorch reports errors by exceptions, and this project does not: they end here.
    return Train(rows, options, report);
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, std::string("LibTorch: ") + error.what());
  }
}

}  // namespace forebay::compress
