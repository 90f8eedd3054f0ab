#include "trainer/exec/torch_engine.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/exec/lenet.h"

namespace forebay::train {
namespace {

constexpr const char* kMomentum = "momentum";

// Runs `work`, which may throw, and returns its exception as an Error.
template <typename Work>
auto Guarded(const char* what, Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, fmt::format("{}: {}", what, error.what()));
  }
}

Result<torch::ScalarType> ToScalarType(Dtype dtype) {
  switch (dtype) {
    case Dtype::kU8: return torch::kUInt8;
    case Dtype::kI8: return torch::kInt8;
    case Dtype::kI16: return torch::kInt16;
    case Dtype::kI32: return torch::kInt32;
    case Dtype::kI64: return torch::kInt64;
    case Dtype::kF32: return torch::kFloat32;
    default:
      return Error(ErrorCode::kUnimplemented,
                   fmt::format("elements of type {} are not trained on", DtypeName(dtype)));
  }
}

// A tensor over the feed's own memory: valid while the batch is held, and never written to.
Result<torch::Tensor> Borrow(const FeedTensor& view) {
  FOREBAY_ASSIGN(const torch::ScalarType type, ToScalarType(view.dtype));
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = DtypeBytes(view.dtype);
  for (const std::uint64_t extent : view.shape) {
    shape.push_back(static_cast<std::int64_t>(extent));
    bytes *= extent;
  }
  if (bytes != view.bytes) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("a tensor of {} bytes came with {}", bytes, view.bytes));
  }
  return torch::from_blob(const_cast<std::byte*>(view.data), shape, type);
}

struct Sample {
  torch::Tensor images;  // {n, 1, 28, 28} float, standardised
  torch::Tensor labels;  // {n} int64
};

struct NamedWeight {
  std::string name;
  torch::Tensor value;  // a view of the flat weights
  std::int64_t offset = 0;
};

class TorchEngine final : public Engine {
 public:
  TorchEngine(const TrainConfig& config, Communicator& communicator)
      : config_(config),
        communicator_(communicator),
        net_({.channels = config.model.channels,
              .hidden = config.model.hidden,
              .classes = config.model.classes}) {
    Flatten();
  }

  Status ShareWeights() {
    return communicator_.Broadcast(std::as_writable_bytes(Floats(weights_)), 0);
  }

  Result<BatchOutcome> TrainStep(FeedBatch& batch, double learning_rate) override {
    return Guarded("training step", [&] { return Train(batch, learning_rate); });
  }

  Result<BatchOutcome> EvaluateStep(FeedBatch& batch) override {
    if (batch.sample_count == 0) return BatchOutcome{};
    return Guarded("evaluation step", [&] { return Evaluate(batch); });
  }

  Status Save(Checkpoint& checkpoint) const override;
  Status Load(const Checkpoint& checkpoint) override;

 private:
  static std::span<float> Floats(const torch::Tensor& flat) {
    return {flat.data_ptr<float>(), static_cast<std::size_t>(flat.numel())};
  }
  std::string Description() const {
    return fmt::format("{} channels={} hidden={} classes={}", config_.model.architecture,
                       config_.model.channels, config_.model.hidden, config_.model.classes);
  }
  void Flatten();
  Result<Sample> Prepare(FeedBatch& batch) const;
  Result<BatchOutcome> Train(FeedBatch& batch, double learning_rate);
  Result<BatchOutcome> Evaluate(FeedBatch& batch);

  TrainConfig config_;
  Communicator& communicator_;
  LeNet net_;
  std::vector<NamedWeight> named_;
  torch::Tensor weights_;   // flat, as the two below
  torch::Tensor gradient_;
  torch::Tensor momentum_;
};

// Moves the parameters, and the gradients autograd accumulates into, to flat buffers.
void TorchEngine::Flatten() {
  const torch::NoGradGuard no_grad;
  std::int64_t total = 0;
  for (const auto& item : net_.named_parameters()) total += item.value().numel();
  weights_ = torch::zeros({total});
  gradient_ = torch::zeros({total});
  momentum_ = torch::zeros({total});
  std::int64_t offset = 0;
  for (auto& item : net_.named_parameters()) {
    torch::Tensor& parameter = item.value();
    torch::Tensor view =
        weights_.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    view.copy_(parameter);
    parameter.set_data(view);
    parameter.mutable_grad() =
        gradient_.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    named_.push_back({item.key(), view, offset});
    offset += parameter.numel();
  }
}

Result<Sample> TorchEngine::Prepare(FeedBatch& batch) const {
  const std::int64_t samples = batch.sample_count;
  FOREBAY_ASSIGN(const torch::Tensor pixels, Borrow(batch.input));
  FOREBAY_ASSIGN(const torch::Tensor labels, Borrow(batch.target));
  if (pixels.numel() != samples * kLeNetSide * kLeNetSide || labels.numel() != samples) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{} samples came with {} pixels and {} labels; {} takes {}x{} "
                             "one-channel images and one label each",
                             samples, pixels.numel(), labels.numel(),
                             config_.model.architecture, kLeNetSide, kLeNetSide));
  }
  // The conversions copy, so the feed's memory can go back at once. (x / scale - mean) / stddev
  // in one pass over the floats.
  const double scale = batch.input.dtype == Dtype::kU8 ? 255.0 : 1.0;
  const double factor = 1.0 / (scale * config_.model.input_stddev);
  Sample sample;
  sample.images = pixels.to(torch::kFloat32, /*non_blocking=*/false, /*copy=*/true)
                      .mul_(factor)
                      .sub_(config_.model.input_mean / config_.model.input_stddev)
                      .view({samples, 1, kLeNetSide, kLeNetSide});
  sample.labels =
      labels.to(torch::kInt64, /*non_blocking=*/false, /*copy=*/true).view({samples});
  batch.hold.reset();
  return sample;
}

Result<BatchOutcome> TorchEngine::Train(FeedBatch& batch, double learning_rate) {
  FOREBAY_ASSIGN(const Sample sample, Prepare(batch));
  gradient_.zero_();
  const torch::Tensor loss =
      torch::nn::functional::cross_entropy(net_.Forward(sample.images), sample.labels);
  loss.backward();
  const torch::NoGradGuard no_grad;
  if (communicator_.size() > 1) {
    FOREBAY_TRY(communicator_.AllReduceSum(Floats(gradient_)));
    gradient_.mul_(1.0 / communicator_.size());
  }
  gradient_.add_(weights_, config_.train.weight_decay);
  momentum_.mul_(config_.train.momentum).add_(gradient_);
  weights_.add_(momentum_, -learning_rate);
  return BatchOutcome{.loss_sum = loss.item<double>() * batch.sample_count,
                      .correct = 0,
                      .samples = batch.sample_count};
}

Result<BatchOutcome> TorchEngine::Evaluate(FeedBatch& batch) {
  const torch::NoGradGuard no_grad;
  FOREBAY_ASSIGN(const Sample sample, Prepare(batch));
  const torch::Tensor logits = net_.Forward(sample.images);
  const torch::Tensor loss = torch::nn::functional::cross_entropy(
      logits, sample.labels,
      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  const torch::Tensor correct = logits.argmax(1).eq(sample.labels).sum();
  return BatchOutcome{.loss_sum = loss.item<double>(),
                      .correct = static_cast<std::uint64_t>(correct.item<std::int64_t>()),
                      .samples = batch.sample_count};
}

Status TorchEngine::Save(Checkpoint& checkpoint) const {
  checkpoint.model = Description();
  checkpoint.optimiser = "sgd";
  checkpoint.optimiser_states = {kMomentum};
  checkpoint.tensors.clear();
  const auto add = [&checkpoint, this](const torch::Tensor& flat, const std::string& suffix) {
    for (const NamedWeight& weight : named_) {
      const auto values = Floats(flat).subspan(static_cast<std::size_t>(weight.offset),
                                               static_cast<std::size_t>(weight.value.numel()));
      CheckpointTensor tensor;
      tensor.name = weight.name + suffix;
      for (const std::int64_t extent : weight.value.sizes()) {
        tensor.shape.push_back(static_cast<std::uint64_t>(extent));
      }
      const auto raw = std::as_bytes(values);
      tensor.bytes.assign(raw.begin(), raw.end());
      checkpoint.tensors.push_back(std::move(tensor));
    }
  };
  add(weights_, "");
  add(momentum_, std::string("/") + kMomentum);
  return {};
}

Status TorchEngine::Load(const Checkpoint& checkpoint) {
  if (checkpoint.model != Description() || checkpoint.optimiser != "sgd") {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("the checkpoint is of \"{}\" with {}, this run of \"{}\" with sgd",
                             checkpoint.model, checkpoint.optimiser, Description()));
  }
  // All are checked before the first is copied: a failed load leaves the engine as it was.
  std::vector<std::pair<std::span<float>, const CheckpointTensor*>> copies;
  for (const NamedWeight& weight : named_) {
    const auto offset = static_cast<std::size_t>(weight.offset);
    const auto count = static_cast<std::size_t>(weight.value.numel());
    for (const bool is_state : {false, true}) {
      const std::string name = weight.name + (is_state ? std::string("/") + kMomentum : "");
      const CheckpointTensor* const tensor = checkpoint.Find(name);
      if (tensor == nullptr || tensor->dtype != "F32" ||
          tensor->bytes.size() != count * sizeof(float)) {
        return Error(ErrorCode::kFailedPrecondition,
                     fmt::format("the checkpoint has no tensor {} of {} floats", name, count));
      }
      copies.emplace_back(Floats(is_state ? momentum_ : weights_).subspan(offset, count), tensor);
    }
  }
  for (const auto& [values, tensor] : copies) {
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> MakeTorchEngine(const TrainConfig& config,
                                                Communicator& communicator) {
  return Guarded("building the network", [&]() -> Result<std::unique_ptr<Engine>> {
    torch::manual_seed(static_cast<std::uint64_t>(config.train.seed));
    auto engine = std::make_unique<TorchEngine>(config, communicator);
    FOREBAY_TRY(engine->ShareWeights());
    return std::unique_ptr<Engine>(std::move(engine));
  });
}

}  // namespace forebay::train
