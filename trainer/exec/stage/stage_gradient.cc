// Two implementations of one arithmetic: plain floats on a processor, tensors by LibTorch on a GPU.
// Both sum in the same tree with the same roundings. A GPU's sum is copied to the host to be
// reduced over replicas, because transports send from host memory, and back before the update.
#include "trainer/exec/stage/stage_gradient.h"

#include <algorithm>
#include <utility>

#include "trainer/numerics/finite.h"

namespace forebay::train {
namespace {

constexpr std::size_t kFloatsTogether = std::size_t{16} << 20;  // that are updated at once, or more

// Where each part's gradient begins, and, last, where all end.
std::vector<std::size_t> OffsetsOf(const std::vector<HeldPart*>& held) {
  std::vector<std::size_t> offsets = {0};
  for (const HeldPart* part : held) offsets.push_back(offsets.back() + part->floats());
  return offsets;
}

}  // namespace

StageGradient::StageGradient(std::vector<HeldPart*> parts, SumOrder order,
                             UpdateArithmetic arithmetic, const torch::Device& device)
    : parts_(std::move(parts)), offsets_(OffsetsOf(parts_)), floats_(offsets_.back(), order) {
  if (arithmetic == UpdateArithmetic::kLibTorch || !device.is_cpu()) {
    tensors_.emplace(offsets_.back(), order, TensorMemory(device));
  }
}

void StageGradient::Take(std::size_t at) {
  // One of the two exists: tensors_ where LibTorch does the arithmetic.
  if (tensors_) {
    parts_[at]->GiveGradients(*tensors_, offsets_[at]);
  } else {
    parts_[at]->GiveGradients(floats_, offsets_[at]);
  }
}

void StageGradient::EndMicroBatch(std::uint32_t micro_batches) {
  if (tensors_) {
    tensors_->Next();
    // The tree is complete only with the last micro-batch.
    if (tensors_->micro_batches() == micro_batches) tensor_sum_ = tensors_->Finish();
  } else {
    floats_.Next();
    if (floats_.micro_batches() == micro_batches) sum_ = floats_.Finish();
  }
}

// Collectives begin in the order of the plan, so buckets are cut off one after the other.
std::span<float> StageGradient::NextBucket(std::size_t floats) {
  if (tensors_ && reduced_ == 0) {
    // Once for all buckets: each copy from the GPU waits for it.
    reduced_copy_ = tensor_sum_.cpu();
    sum_ = {reduced_copy_.data_ptr<float>(), offsets_.back()};
  }
  // The last bucket is smaller.
  const std::span<float> bucket =
      sum_.subspan(reduced_, std::min(floats, sum_.size() - reduced_));
  reduced_ += bucket.size();
  return bucket;
}

const torch::Tensor& StageGradient::Whole() {
  // The reductions have written into the host's copy; the first use afterwards brings it back.
  if (reduced_copy_.defined()) tensor_sum_.copy_(reduced_copy_);
  reduced_copy_ = torch::Tensor();
  return tensor_sum_;
}

torch::Tensor StageGradient::TensorOf(std::size_t at) {
  return Whole().narrow(0, static_cast<std::int64_t>(offsets_[at]),
                        static_cast<std::int64_t>(parts_[at]->floats()));
}

std::span<const float> StageGradient::FloatsOf(std::size_t at) const {
  return sum_.subspan(offsets_[at], parts_[at]->floats());
}

double StageGradient::SquaredNormOf(std::size_t at) {
  return tensors_ ? SquaredNorm(TensorOf(at)) : SquaredNorm(FloatsOf(at));
}

bool StageGradient::IsFinite() {
  // At once, because each answer waits for the GPU.
  if (tensors_) return train::IsFinite(Whole());
  for (std::size_t at = 0; at < parts_.size(); ++at) {
    if (FirstNotFinite(FloatsOf(at)) != parts_[at]->floats()) return false;
  }
  return true;
}

void StageGradient::Update(const OptimiserOptions& options, const UpdateStep& step) {
  if (!tensors_) {
    for (std::size_t at = 0; at < parts_.size(); ++at) {
      parts_[at]->Update(options, step, FloatsOf(at));
    }
    return;
  }
  // Many tensors at once, because a GPU is then given few operations; not all, because the formulas
  // take memory of their size.
  UpdateStep without_decay = step;
  without_decay.weight_decay = 0;
  TensorsToUpdate decaying;
  TensorsToUpdate constant;
  std::size_t floats = 0;
  for (std::size_t at = 0; at < parts_.size(); ++at) {
    parts_[at]->AddTrained(TensorOf(at), decaying, constant);
    floats += parts_[at]->floats();
    if (floats < kFloatsTogether && at + 1 < parts_.size()) continue;
    UpdateTensors(options, step, std::exchange(decaying, {}));
    UpdateTensors(options, without_decay, std::exchange(constant, {}));
    floats = 0;
  }
}

}  // namespace forebay::train
