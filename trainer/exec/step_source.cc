// A batch of a replica becomes one input and one target tensor; micro-batches are views of them.
// Tensors are made ahead of time on the reading thread (Prepare) if that is possible without
// copying, or on a GPU; otherwise at the beginning of the step (Make). Whether the model wrote to a
// tensor is told by its version counter, which every in-place operation increments.
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

// An operator call would cost microseconds in every step.
std::uint32_t TimesWritten(const torch::Tensor& tensor) {
  // What _version() returns, without calling an operator.
  return tensor.defined() ? tensor.unsafeGetTensorImpl()->version_counter().current_version() : 0;
}

}  // namespace

// Of a whole step. Prepared ones that the step is still to make are undefined.
struct StepSource::Tensors final : public PreparedBatch {
  std::array<std::uint32_t, 2> TimesWrittenTo() const {
    return {TimesWritten(input), TimesWritten(target)};
  }

  torch::Tensor input;
  torch::Tensor target;
  std::array<std::uint32_t, 2> versions = {};  // what TimesWrittenTo said when they were made
};

// Null where a part cannot be made.
std::shared_ptr<StepSource::Tensors> StepSource::OnGpu(const ModelTask& task, DeviceFeed& feed,
                                                       const FeedBatch& batch) {
  auto tensors = std::make_shared<Tensors>();
  Status made;
  feed.Run(batch, [&] {
    // The feed's callback returns nothing, so the result is kept outside.
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
  if (!made.has_value()) return nullptr;
  tensors->versions = tensors->TimesWrittenTo();
  return tensors;
}

// Whatever can be done without copying is done now. The batch's memory is released if nothing needs
// it any more.
void StepSource::Prepare(const ModelTask& task, DeviceFeed* feed, FeedBatch& batch) {
  if (feed != nullptr) {
    batch.prepared = OnGpu(task, *feed, batch);
    if (batch.prepared) batch.hold.reset();
    return;
  }
  auto tensors = std::make_shared<Tensors>();
  bool is_whole = true;
  if (batch.input.data != nullptr) {
    if (InputStays(task, batch.input)) {
      Result<torch::Tensor> input = ToInput(task, batch.input, batch.sample_count, batch.hold);
      if (input.has_value()) tensors->input = *std::move(input);
    }
    is_whole = tensors->input.defined();
  }
  if (batch.target.data != nullptr) {
    if (TargetStays(task, batch.target)) {
      Result<torch::Tensor> target = ToTarget(task, batch.target, batch.sample_count, batch.hold);
      if (target.has_value()) tensors->target = *std::move(target);
    }
    is_whole = is_whole && tensors->target.defined();
  }
  tensors->versions = tensors->TimesWrittenTo();
  batch.prepared = std::move(tensors);
  if (is_whole) batch.hold.reset();
}

// All replicas have the same micro-batches.
Result<std::vector<std::uint32_t>> TrainingCounts(const Layout& layout,
                                                  std::uint32_t micro_batches,
                                                  std::uint32_t micro_batch,
                                                  std::uint32_t share) {
  const std::uint32_t of_replica = micro_batches / layout.replicas;
  std::vector<std::uint32_t> own;
  // All micro-batches are full but the last one.
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

// Divides the samples among replicas and then among micro-batches, each time as evenly as possible.
std::vector<std::uint32_t> EvaluationCounts(const Layout& layout, std::uint32_t micro_batch,
                                            std::uint64_t samples) {
  // Replicas' shares differ by one sample at most, and so do pieces of a share.
  const std::uint64_t largest_share = (samples + layout.replicas - 1) / layout.replicas;
  // Without stages there is no pipeline to fill.
  const std::uint64_t depth = layout.stages == 1 ? 1 : kEvaluationDepth * layout.stages;
  // A power of two, because plans demand it where there are several replicas.
  const std::uint64_t pieces =
      std::bit_ceil(std::max(depth, (largest_share + micro_batch - 1) / micro_batch));
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

// Which of the step's micro-batches this rank computes, and where each begins in its share.
StepCut::StepCut(const Layout& layout, std::uint32_t rank, std::vector<std::uint32_t> all_counts)
    : counts(std::move(all_counts)) {
  const std::uint32_t stage = layout.StageOf(rank);
  takes_input = stage == 0;
  takes_target = stage + 1 == layout.stages;
  const auto of_replica = static_cast<std::uint32_t>(counts.size()) / layout.replicas;
  first = layout.ReplicaOf(rank) * of_replica;
  offsets = {0};
  for (std::uint32_t at = 0; at < of_replica; ++at) {
    samples += counts[first + at];
    offsets.push_back(samples);
  }
}

// What this finds in memory that a step's computation has pushed out of the caches is what a step
// waits for: it makes nothing that Prepare, or the step before, can have made.
Result<StepSource> StepSource::Make(const ModelTask& task, const StepCut& cut, DeviceFeed* feed,
                                    FeedBatch& batch, bool borrows) {
  const std::uint32_t samples = batch.sample_count;
  if (cut.samples != samples) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("epoch {} step {} has {} samples for this rank, due were {}",
                             batch.epoch, batch.step, samples, cut.samples));
  }
  // Nobody read ahead.
  if (feed != nullptr && !batch.prepared) Prepare(task, feed, batch);
  StepSource source(cut);
  source.place_ = {batch.epoch, batch.step, batch.evaluates ? 1U : 0U};
  // Keeps the memory that is copied.
  std::shared_ptr<PreparedBatch> prepared = std::move(batch.prepared);
  const std::shared_ptr<const void> hold = std::move(batch.hold);
  if (prepared && (borrows || feed != nullptr)) {
    source.tensors_ = std::static_pointer_cast<Tensors>(std::move(prepared));
  } else {
    source.tensors_ = std::make_shared<Tensors>();
  }
  Tensors& tensors = *source.tensors_;
  // Tensors that Prepare has made are used as they are. Tensors that it could not make, or that
  // may not be borrowed yet, are made here.
  const bool makes_input = cut.takes_input && !tensors.input.defined();
  const bool makes_target = cut.takes_target && !tensors.target.defined();
  const std::shared_ptr<const void> lender = borrows ? hold : nullptr;
  if (makes_input && samples > 0) {
    FOREBAY_ASSIGN(tensors.input, ToInput(task, batch.input, samples, lender));
  } else if (makes_input) {
    tensors.input = ZeroInput(task, 0);
  }
  if (makes_target && samples > 0) {
    FOREBAY_ASSIGN(tensors.target, ToTarget(task, batch.target, samples, lender));
  } else if (makes_target) {
    tensors.target = ZeroTarget(task, 0);
  }
  if (makes_input || makes_target) tensors.versions = tensors.TimesWrittenTo();
  if (feed != nullptr) {
    feed->Adopt(tensors.input);
    feed->Adopt(tensors.target);
  }
  return source;
}

// Compares version counters, which costs nothing.
Status StepSource::CheckUnwritten() const {
  const std::array<std::uint32_t, 2> now = tensors_->TimesWrittenTo();
  if (now == tensors_->versions) return {};
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("the {} modified the {} of a step in place, which may lie in memory of "
                           "the daemon, or be needed again: let it work on a copy (clone())",
                           now[0] != tensors_->versions[0] ? "model's first part" : "loss",
                           now[0] != tensors_->versions[0] ? "input" : "target"));
}

// A view: micro-batches are consecutive samples of one tensor.
Result<torch::Tensor> StepSource::Piece(const torch::Tensor& whole,
                                        std::uint32_t micro_batch) const {
  const std::vector<std::int64_t>& offsets = cut_->offsets;
  const std::size_t at = micro_batch - cut_->first;
  if (!whole.defined() || at + 1 >= offsets.size()) {
    return Error(ErrorCode::kInternal,
                 fmt::format("micro-batch {} was asked of a rank that has it not", micro_batch));
  }
  return whole.narrow(0, offsets[at], offsets[at + 1] - offsets[at]);
}

Result<torch::Tensor> StepSource::Input(std::uint32_t micro_batch) {
  return Piece(tensors_->input, micro_batch);
}

Result<torch::Tensor> StepSource::Target(std::uint32_t micro_batch) {
  return Piece(tensors_->target, micro_batch);
}

}  // namespace forebay::train
