// ScriptedEngine: a model of one number, for testing the loop without LibTorch. Its loss
// depends on every sample it ever saw and in which order, so that any slip shows.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <span>

#include "proto/contract/checksum.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/loop/engine.h"

namespace forebay::train::testing {

class ScriptedEngine final : public Engine {
 public:
  std::optional<std::uint64_t> infinite_loss_at_step;  // counted from the engine's birth
  std::optional<std::uint64_t> poisoned_by_step;  // likewise: leaves a state that is no number
  std::optional<std::uint64_t> leaves_out_from_step;  // likewise: and all later steps
  bool fails_to_finish = false;
  bool scores_state = false;  // evaluations judge the state, and come out now better, now worse
  // Called first by Save, Load and Digest, to throw.
  std::function<void()> before_save, before_load, before_digest;
  std::uint64_t faults = 0;
  Metric judged_by;  // the share of samples of class 0, whatever it is called

  Metric metric() const override { return judged_by; }
  Status Switch(const Layout&) override {
    return Error(ErrorCode::kUnimplemented, "a scripted engine has one layout");
  }

  Result<BatchOutcome> TrainStep(FeedBatch& batch, double learning_rate) override {
    double mean = 0;
    for (std::uint64_t i = 0; i < batch.input.bytes; ++i) {
      mean += std::to_integer<int>(batch.input.data[i]) * (1.0 + static_cast<double>(i % 7));
    }
    mean /= static_cast<double>(batch.input.bytes) * 255.0;
    batch.hold.reset();
    BatchOutcome outcome;
    outcome.samples = batch.sample_count;
    outcome.loss_sum = std::abs(mean - state_) * batch.sample_count;
    state_ += learning_rate * (mean - state_);
    if (poisoned_by_step == steps_) {
      ++faults;
      state_ = std::numeric_limits<double>::quiet_NaN();
    }
    if (leaves_out_from_step && steps_ >= *leaves_out_from_step) {
      ++faults;
      outcome.skipped = true;
    }
    if (infinite_loss_at_step == steps_++) {
      ++faults;
      outcome.loss_sum = std::numeric_limits<double>::infinity();
    }
    return outcome;
  }

  Result<BatchOutcome> EvaluateStep(FeedBatch& batch) override {
    BatchOutcome outcome;
    outcome.samples = batch.sample_count;
    for (std::uint64_t i = 0; i < batch.target.bytes; ++i) {
      if (batch.target.data[i] == std::byte{0}) ++outcome.score_sum;
    }
    outcome.loss_sum = state_ * batch.sample_count;
    if (scores_state) outcome.score_sum = std::fmod(std::abs(state_) * 1e4, 1) * batch.sample_count;
    batch.hold.reset();
    return outcome;
  }

  Status Save(Checkpoint& checkpoint) override {
    if (before_save) before_save();
    checkpoint.model = "scripted";
    checkpoint.optimiser = "none";
    CheckpointTensor tensor;
    tensor.name = "state";
    tensor.dtype = "F64";
    tensor.shape = {1};
    tensor.bytes.resize(sizeof(state_));
    std::memcpy(tensor.bytes.data(), &state_, sizeof(state_));
    checkpoint.tensors = {tensor};
    return {};
  }

  Status Load(const CheckpointReader& checkpoint) override {
    if (before_load) before_load();
    const TensorEntry* const entry = checkpoint.Find("state");
    if (entry == nullptr || entry->end - entry->begin != sizeof(state_)) {
      return Error(ErrorCode::kFailedPrecondition, "not a scripted checkpoint");
    }
    return checkpoint.Read("state", std::as_writable_bytes(std::span(&state_, 1)));
  }

  Status Finish() override {
    if (!fails_to_finish) return {};
    return Error(ErrorCode::kResourceExhausted, "trace.json: No space left on device");
  }

  Result<std::uint64_t> Digest() override {
    if (before_digest) before_digest();
    return Checksum(std::as_bytes(std::span(&state_, 1)));
  }

 private:
  double state_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace forebay::train::testing
