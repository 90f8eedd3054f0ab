// Each model is small, but has what a layout can get wrong: skips over several stages, a tensor
// with three users, batch normalisation, dropout, parts without parameters and frozen ones.
#include "trainer/exec/testing/tiny_models.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <memory>
#include <string>
#include <utility>

#include "trainer/exec/layers.h"

namespace forebay::train::testing {
namespace {

using Tensors = std::vector<torch::Tensor>;

torch::Tensor Normal(std::uint64_t seed, std::vector<std::int64_t> shape) {
  return torch::empty(shape).normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(seed));
}

// Classes that the input decides: the largest of the means of its first elements.
torch::Tensor Classes(const torch::Tensor& input, std::int64_t classes) {
  return input.flatten(1).narrow(1, 0, classes).argmax(1);
}

// Convolution, batch normalisation, ReLU; with dropout; in two or three dimensions.
class ConvBlock final : public Part {
 public:
  ConvBlock(int dimensions, std::int64_t in, std::int64_t out, std::int64_t stride, double rate)
      : dimensions_(dimensions), stride_(stride), rate_(rate) {
    std::vector<std::int64_t> shape = {out, in};
    shape.insert(shape.end(), static_cast<std::size_t>(dimensions), 3);
    weight_ = register_parameter("weight", torch::empty(shape));
    torch::nn::init::kaiming_normal_(weight_);
    norm_ = register_module("norm", std::make_shared<BatchNorm>(out));
  }

  // Several inputs are joined along the channels; a smaller one is repeated up to the size of
  // the last.
  torch::Tensor Forward(const Tensors& inputs, Pass& pass) override {
    Tensors joined;
    for (const torch::Tensor& input : inputs) {
      torch::Tensor grown = input;
      while (grown.size(2) < inputs.back().size(2)) {
        for (int axis = 0; axis < dimensions_; ++axis) {
          grown = grown.repeat_interleave(2, 2 + axis);
        }
      }
      joined.push_back(grown);
    }
    const torch::Tensor x = joined.size() == 1 ? joined[0] : torch::cat(joined, 1);
    torch::Tensor y = dimensions_ == 2
                          ? torch::conv2d(x, weight_, {}, stride_, 1)
                          : torch::conv3d(x, weight_, {}, stride_, 1);
    return Dropout(torch::relu(norm_->Forward(y, pass)), rate_, pass);
  }

 private:
  int dimensions_;
  std::int64_t stride_;
  double rate_;
  torch::Tensor weight_;
  std::shared_ptr<BatchNorm> norm_;
};

// The sum of all inputs, through a ReLU: a residual connection as a part.
class Join final : public Part {
 public:
  torch::Tensor Forward(const Tensors& inputs, Pass&) override {
    torch::Tensor sum = inputs[0];
    for (std::size_t at = 1; at < inputs.size(); ++at) sum = sum + inputs[at];
    return torch::relu(sum);
  }
};

// Has nothing to learn.
class Scale final : public Part {
 public:
  torch::Tensor Forward(const Tensors& inputs, Pass&) override { return inputs[0] * 0.5; }
};

// Weights that stay as they are first made.
class FrozenConv final : public Part {
 public:
  FrozenConv(std::int64_t in, std::int64_t out) {
    weight_ = register_parameter("weight", torch::empty({out, in, 3, 3}), false);
    torch::nn::init::kaiming_normal_(weight_);
  }
  torch::Tensor Forward(const Tensors& inputs, Pass&) override {
    return torch::relu(torch::conv2d(inputs[0], weight_, {}, 1, 1));
  }

 private:
  torch::Tensor weight_;
};

class Linear final : public Part {
 public:
  Linear(std::int64_t in, std::int64_t out, double rate) : rate_(rate) {
    linear_ = register_module("linear", torch::nn::Linear(in, out));
  }
  torch::Tensor Forward(const Tensors& inputs, Pass& pass) override {
    return linear_->forward(Dropout(inputs[0].flatten(1), rate_, pass));
  }

 private:
  double rate_;
  torch::nn::Linear linear_{nullptr};
};

// Patches of 4 x 4 pixels as tokens, with places.
class Patches final : public Part {
 public:
  explicit Patches(std::int64_t width) {
    patch_ = register_module(
        "patch", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, width, 4).stride(4)));
    place_ = register_parameter("place", torch::randn({1, 16, width}) * 0.02);
  }
  torch::Tensor Forward(const Tensors& inputs, Pass&) override {
    return patch_->forward(inputs[0]).flatten(2).transpose(1, 2) + place_;
  }

 private:
  torch::nn::Conv2d patch_{nullptr};
  torch::Tensor place_;
};

class Attention final : public Part {
 public:
  explicit Attention(std::int64_t width) : width_(width) {
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    qkv_ = register_module("qkv", torch::nn::Linear(width, 3 * width));
    out_ = register_module("out", torch::nn::Linear(width, width));
  }
  torch::Tensor Forward(const Tensors& inputs, Pass& pass) override {
    const torch::Tensor& x = inputs[0];
    const Tensors qkv = qkv_->forward(norm_->forward(x)).chunk(3, 2);
    const double scale = 1.0 / std::sqrt(static_cast<double>(width_));
    const torch::Tensor weights =
        torch::softmax(torch::matmul(qkv[0], qkv[1].transpose(1, 2)) * scale, 2);
    return x + out_->forward(torch::matmul(Dropout(weights, 0.1, pass), qkv[2]));
  }

 private:
  std::int64_t width_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear qkv_{nullptr};
  torch::nn::Linear out_{nullptr};
};

class Mlp final : public Part {
 public:
  explicit Mlp(std::int64_t width) {
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    in_ = register_module("in", torch::nn::Linear(width, 2 * width));
    out_ = register_module("out", torch::nn::Linear(2 * width, width));
  }
  torch::Tensor Forward(const Tensors& inputs, Pass& pass) override {
    const torch::Tensor hidden = torch::gelu(in_->forward(norm_->forward(inputs[0])));
    return inputs[0] + Dropout(out_->forward(hidden), 0.1, pass);
  }

 private:
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear in_{nullptr};
  torch::nn::Linear out_{nullptr};
};

class SquaredError final : public Loss {
 public:
  torch::Tensor Sum(const torch::Tensor& output, const torch::Tensor& target) const override {
    return (output - target).pow(2).sum();
  }
  Score Evaluate(const torch::Tensor& output, const torch::Tensor& target) const override {
    return {.sum = (output - target).abs().mean(1).sum().item<double>(),
            .samples = static_cast<std::uint64_t>(target.size(0))};
  }
};

template <typename T, typename... Arguments>
std::function<std::shared_ptr<Part>()> Maker(Arguments... arguments) {
  return [=] { return std::make_shared<T>(arguments...); };
}

TinyModel Residual() {
  TinyModel tiny;
  tiny.model = {.name = "tiny-resnet",
                .parts = {{.name = "stem", .make = Maker<ConvBlock>(2, 1, 6, 1, 0.0)},
                          {.name = "conv1", .make = Maker<ConvBlock>(2, 6, 6, 1, 0.1)},
                          {.name = "conv2", .make = Maker<ConvBlock>(2, 6, 6, 1, 0.0)},
                          // Three users of the stem: conv1, join1 and join2.
                          {.name = "join1", .make = Maker<Join>(), .takes = {"stem"}},
                          {.name = "conv3", .make = Maker<ConvBlock>(2, 6, 6, 1, 0.1)},
                          {.name = "join2", .make = Maker<Join>(), .takes = {"stem", "join1"}},
                          {.name = "head", .make = Maker<Linear>(6 * 64, 3, 0.2)}},
                .loss = MakeCrossEntropy(0.1)};
  tiny.input = [](std::uint64_t seed, std::uint32_t samples) {
    return Normal(seed, {samples, 1, 8, 8});
  };
  tiny.target = [input = tiny.input](std::uint64_t seed, std::uint32_t samples) {
    return Classes(input(seed, samples), 3);
  };
  return tiny;
}

TinyModel Transformer() {
  TinyModel tiny;
  tiny.model = {.name = "tiny-vit",
                .parts = {{.name = "patches", .make = Maker<Patches>(12)},
                          {.name = "attention1", .make = Maker<Attention>(12)},
                          {.name = "mlp1", .make = Maker<Mlp>(12)},
                          {.name = "attention2", .make = Maker<Attention>(12)},
                          {.name = "mlp2", .make = Maker<Mlp>(12)},
                          {.name = "head", .make = Maker<Linear>(12 * 16, 4, 0.1)}},
                .loss = MakeCrossEntropy(0)};
  tiny.input = [](std::uint64_t seed, std::uint32_t samples) {
    return Normal(seed, {samples, 1, 16, 16});
  };
  tiny.target = [input = tiny.input](std::uint64_t seed, std::uint32_t samples) {
    return Classes(input(seed, samples), 4);
  };
  return tiny;
}

TinyModel UNet() {
  TinyModel tiny;
  tiny.model = {.name = "tiny-unet3d",
                .parts = {{.name = "down1", .make = Maker<ConvBlock>(3, 1, 4, 1, 0.0)},
                          {.name = "down2", .make = Maker<ConvBlock>(3, 4, 6, 2, 0.0)},
                          {.name = "bottom", .make = Maker<ConvBlock>(3, 6, 8, 2, 0.1)},
                          {.name = "up2",
                           .make = Maker<ConvBlock>(3, 14, 6, 1, 0.0),
                           .takes = {"down2"}},
                          {.name = "up1",
                           .make = Maker<ConvBlock>(3, 10, 4, 1, 0.0),
                           .takes = {"down1"}},
                          {.name = "head", .make = Maker<Linear>(4 * 512, 3, 0.0)}},
                .loss = MakeCrossEntropy(0)};
  tiny.input = [](std::uint64_t seed, std::uint32_t samples) {
    return Normal(seed, {samples, 1, 8, 8, 8});
  };
  tiny.target = [input = tiny.input](std::uint64_t seed, std::uint32_t samples) {
    return Classes(input(seed, samples), 3);
  };
  return tiny;
}

TinyModel Regression() {
  TinyModel tiny;
  tiny.model = {.name = "tiny-cosmoflow",
                .parts = {{.name = "conv1", .make = Maker<ConvBlock>(3, 2, 4, 2, 0.0)},
                          {.name = "conv2", .make = Maker<ConvBlock>(3, 4, 8, 2, 0.0)},
                          {.name = "dense1", .make = Maker<Linear>(64, 16, 0.2)},
                          {.name = "dense2", .make = Maker<Linear>(16, 4, 0.2)}},
                .loss = std::make_shared<SquaredError>()};
  tiny.input = [](std::uint64_t seed, std::uint32_t samples) {
    return Normal(seed, {samples, 2, 8, 8, 8});
  };
  tiny.target = [input = tiny.input](std::uint64_t seed, std::uint32_t samples) {
    return input(seed, samples).flatten(2).mean(2).repeat({1, 2});
  };
  return tiny;
}

TinyModel FrozenBegin() {
  TinyModel tiny;
  tiny.model = {.name = "tiny-frozen",
                .parts = {{.name = "scale", .make = Maker<Scale>()},
                          {.name = "frozen1", .make = Maker<FrozenConv>(1, 4)},
                          {.name = "conv1", .make = Maker<ConvBlock>(2, 4, 6, 1, 0.1)},
                          {.name = "frozen2", .make = Maker<FrozenConv>(6, 4)},
                          {.name = "join", .make = Maker<Join>(), .takes = {"frozen1"}},
                          {.name = "head", .make = Maker<Linear>(4 * 64, 3, 0.0)}},
                .loss = MakeCrossEntropy(0)};
  tiny.input = [](std::uint64_t seed, std::uint32_t samples) {
    return Normal(seed, {samples, 1, 8, 8});
  };
  tiny.target = [input = tiny.input](std::uint64_t seed, std::uint32_t samples) {
    return Classes(input(seed, samples), 3);
  };
  return tiny;
}

}  // namespace

std::vector<std::function<TinyModel()>> TinyModels() {
  return {Residual, Transformer, UNet, Regression, FrozenBegin};
}

Model UntrainableModel() {
  return {.name = "tiny-untrainable",
          .parts = {{.name = "scale", .make = Maker<Scale>()},
                    {.name = "frozen", .make = Maker<FrozenConv>(1, 4)}},
          .loss = std::make_shared<SquaredError>()};
}

}  // namespace forebay::train::testing
