#include "trainer/exec/step_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

namespace forebay::train {
namespace {

// Micro-batches of a replica, in multiples of its stages: at 4 a pipeline idles a fifth of the
// time.
constexpr std::uint32_t kEvaluationDepth = 4;

// Over memory of the batch, undefined where that is not what the model takes; or on a GPU.
struct StepTensors final : public PreparedBatch {
  torch::Tensor input;
  torch::Tensor target;
};

// Null where a part cannot be made.
std::shared_ptr<StepTensors> OnGpu(const ModelTask& task, DeviceFeed& feed,
                                   const FeedBatch& batch) {
  auto tensors = std::make_shared<StepTensors>();
  Status made;
  feed.Run(batch, [&] {
    made = [&]() -> Status {
      const torch::Device& gpu = feed.device();
      const std::uint32_t samples = batch.sample_count;
      if (batch.input.data != nullptr) {
        FOREBAY_ASSIGN(tensors->input, ToInput(task, batch.input, samples, nullptr, gpu));
      }
      if (batch.target.data != nullptr) {
        FOREBAY_ASSIGN(tensors->target, ToTarget(task, batch.target, samples, nullptr, gpu));
      }
      return {};
    }();
  });
  return made.has_value() ? tensors : nullptr;
}

}  // namespace

void StepSource::Prepare(const ModelTask& task, DeviceFeed* feed, FeedBatch& batch) {
  if (feed != nullptr) {
    batch.prepared = OnGpu(task, *feed, batch);
    if (batch.prepared) batch.hold.reset();
    return;
  }
  auto tensors = std::make_shared<StepTensors>();
  if (batch.input.data != nullptr && InputStays(task, batch.input)) {
    Result<torch::Tensor> input = ToInput(task, batch.input, batch.sample_count, batch.hold);
    if (input.has_value()) tensors->input = *std::move(input);
  }
  if (batch.target.data != nullptr && TargetStays(task, batch.target)) {
    Result<torch::Tensor> target = ToTarget(task, batch.target, batch.sample_count, batch.hold);
    if (target.has_value()) tensors->target = *std::move(target);
  }
  batch.prepared = std::move(tensors);
}

Result<std::vector<std::uint32_t>> TrainingCounts(const Layout& layout,
                                                  std::uint32_t micro_batches,
                                                  std::uint32_t micro_batch,
                                                  std::uint32_t share) {
  const std::uint32_t of_replica = micro_batches / layout.replicas;
  std::vector<std::uint32_t> own;
  std::uint32_t left = share;
  while (left > 0) {
    own.push_back(std::min(left, micro_batch));
    left -= own.back();
  }
  if (own.size() != of_replica) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("a replica's share of {} samples is {} micro-batches of {}, the "
                             "step has {}",
                             share, own.size(), micro_batch, of_replica));
  }
  std::vector<std::uint32_t> counts;
  for (std::uint32_t replica = 0; replica < layout.replicas; ++replica) {
    counts.insert(counts.end(), own.begin(), own.end());
  }
  return counts;
}

std::vector<std::uint32_t> EvaluationCounts(const Layout& layout, std::uint64_t samples) {
  const std::uint64_t pieces =
      layout.stages == 1 ? 1 : std::bit_ceil(kEvaluationDepth * layout.stages);
  std::vector<std::uint32_t> counts;
  for (std::uint64_t replica = 0; replica < layout.replicas; ++replica) {
    const std::uint64_t share = samples * (replica + 1) / layout.replicas -
                                samples * replica / layout.replicas;
    for (std::uint64_t piece = 0; piece < pieces; ++piece) {
      counts.push_back(static_cast<std::uint32_t>(share * (piece + 1) / pieces -
                                                  share * piece / pieces));
    }
  }
  return counts;
}

Result<StepSource> StepSource::Make(const ModelTask& task, const Layout& layout,
                                    std::uint32_t rank,
                                    const std::vector<std::uint32_t>& counts,
                                    DeviceFeed* feed, FeedBatch& batch, bool borrows) {
  StepSource source;
  if (feed != nullptr && !batch.prepared) Prepare(task, feed, batch);
  const std::shared_ptr<const void> hold = borrows ? batch.hold : nullptr;
  const std::shared_ptr<PreparedBatch> prepared = std::move(batch.prepared);
  StepTensors none;
  StepTensors& ready =
      (borrows || feed != nullptr) && prepared ? static_cast<StepTensors&>(*prepared) : none;
  source.place_ = {batch.epoch, batch.step, batch.evaluates ? 1U : 0U};
  const auto of_replica = static_cast<std::uint32_t>(counts.size()) / layout.replicas;
  source.first_ = layout.ReplicaOf(rank) * of_replica;
  source.offsets_ = {0};
  for (std::uint32_t at = 0; at < of_replica; ++at) {
    source.offsets_.push_back(source.offsets_.back() + counts[source.first_ + at]);
  }
  const std::uint32_t samples = batch.sample_count;
  if (source.offsets_.back() != samples) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("epoch {} step {} has {} samples for this rank, due were {}",
                             batch.epoch, batch.step, samples, source.offsets_.back()));
  }
  const std::uint32_t stage = layout.StageOf(rank);
  if (stage == 0) {
    if (ready.input.defined()) {
      source.inputs_ = std::move(ready.input);
    } else if (samples > 0) {
      FOREBAY_ASSIGN(source.inputs_, ToInput(task, batch.input, samples, hold));
    } else {
      source.inputs_ = ZeroInput(task, 0);
    }
  }
  if (stage + 1 == layout.stages) {
    if (ready.target.defined()) {
      source.targets_ = std::move(ready.target);
    } else if (samples > 0) {
      FOREBAY_ASSIGN(source.targets_, ToTarget(task, batch.target, samples, hold));
    } else {
      source.targets_ = ZeroTarget(task, 0);
    }
  }
  batch.hold.reset();
  if (feed != nullptr) {
    feed->Adopt(source.inputs_);
    feed->Adopt(source.targets_);
  }
  source.versions_ = source.Versions();
  return source;
}

std::array<std::uint32_t, 2> StepSource::Versions() const {
  // What _version() returns, without calling an operator.
  const auto of = [](const torch::Tensor& tensor) {
    return tensor.defined() ? tensor.unsafeGetTensorImpl()->version_counter().current_version()
                            : 0;
  };
  return {of(inputs_), of(targets_)};
}

Status StepSource::CheckUnwritten() const {
  const std::array<std::uint32_t, 2> now = Versions();
  if (now == versions_) return {};
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("the {} modified the {} of a step in place, which may lie in memory of "
                           "the daemon, or be needed again: let it work on a copy (clone())",
                           now[0] != versions_[0] ? "model's first part" : "loss",
                           now[0] != versions_[0] ? "input" : "target"));
}

Result<torch::Tensor> StepSource::Piece(const torch::Tensor& whole,
                                        std::uint32_t micro_batch) const {
  const std::size_t at = micro_batch - first_;
  if (!whole.defined() || at + 1 >= offsets_.size()) {
    return Error(ErrorCode::kInternal,
                 fmt::format("micro-batch {} was asked of a rank that has it not", micro_batch));
  }
  return whole.narrow(0, offsets_[at], offsets_[at + 1] - offsets_[at]);
}

Result<torch::Tensor> StepSource::Input(std::uint32_t micro_batch) {
  return Piece(inputs_, micro_batch);
}

Result<torch::Tensor> StepSource::Target(std::uint32_t micro_batch) {
  return Piece(targets_, micro_batch);
}

}  // namespace forebay::train
