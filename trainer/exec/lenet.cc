#include "trainer/exec/lenet.h"

#include <memory>

namespace forebay::train {
namespace {

// The weights of a torch layer as a part's own, so that they are called "conv1.weight".
class Weights : public Part {
 protected:
  template <typename Layer>
  void Take(const Layer& layer) {
    weight_ = register_parameter("weight", layer->weight);
    bias_ = register_parameter("bias", layer->bias);
  }

  torch::Tensor weight_;
  torch::Tensor bias_;
};

class Convolution final : public Weights {
 public:
  Convolution(std::int64_t in, std::int64_t out) {
    Take(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kKernel).padding(kKernel / 2)));
  }

  torch::Tensor Forward(const std::vector<torch::Tensor>& inputs, Pass&) override {
    const torch::Tensor x = torch::conv2d(inputs[0], weight_, bias_, 1, kKernel / 2);
    // Pooling before the ReLU gives the same values as after it, with a quarter of its work.
    return torch::relu(torch::max_pool2d(x, 2));
  }

 private:
  static constexpr std::int64_t kKernel = 5;
};

class Linear final : public Weights {
 public:
  Linear(std::int64_t in, std::int64_t out, bool last) : last_(last) {
    Take(torch::nn::Linear(in, out));
  }

  torch::Tensor Forward(const std::vector<torch::Tensor>& inputs, Pass&) override {
    const torch::Tensor x = torch::nn::functional::linear(inputs[0].flatten(1), weight_, bias_);
    return last_ ? x : torch::relu(x);
  }

 private:
  bool last_;
};

}  // namespace

std::vector<ModelPart> LeNetParts(const LeNetOptions& options) {
  const std::int64_t channels = options.channels;
  const std::int64_t inputs = options.inputs;
  const std::int64_t pooled = 2 * channels * (options.height / 4) * (options.width / 4);
  const std::int64_t hidden = options.hidden;
  const std::int64_t classes = options.classes;
  return {
      {.name = "conv1", .make = [=] { return std::make_shared<Convolution>(inputs, channels); }},
      {.name = "conv2",
       .make = [=] { return std::make_shared<Convolution>(channels, 2 * channels); }},
      {.name = "linear1",
       .make = [=] { return std::make_shared<Linear>(pooled, hidden, false); }},
      {.name = "linear2",
       .make = [=] { return std::make_shared<Linear>(hidden, classes, true); }},
  };
}

}  // namespace forebay::train
