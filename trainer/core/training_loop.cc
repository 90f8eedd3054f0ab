#include "trainer/core/training_loop.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "proto/contract/check.h"

namespace forebay::train {
namespace {

template <typename T>
Status SameAsCheckpoint(const char* name, const T& here, const T& there) {
  if (here == there) return {};
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("the checkpoint's {} is {}, this run's {}", name, there, here));
}

}  // namespace

std::uint32_t EvaluationsLeft(const LoopOptions& options, std::uint32_t epoch) {
  const std::uint32_t every = options.evaluate_every_epochs;
  if (every == 0 || epoch >= options.epochs) return 0;
  const std::uint32_t regular = options.epochs / every - epoch / every;
  return regular + (options.epochs % every != 0 ? 1 : 0);
}

TrainingLoop::TrainingLoop(const LoopOptions& options, const LoopParts& parts)
    : options_(options), parts_(parts) {
  FOREBAY_CHECK(parts_.stop_requested && parts_.now_ns && parts_.print);
  if (parts_.training != nullptr) steps_per_epoch_ = parts_.training->steps_per_epoch();
  options_.learning_rate.total_steps = steps_per_epoch_ * options_.epochs;
  report_.ranks = parts_.communicator.size();
}

Status TrainingLoop::Resume(const Checkpoint& checkpoint) {
  FOREBAY_TRY(SameAsCheckpoint("train.seed", options_.seed, checkpoint.seed));
  FOREBAY_TRY(
      SameAsCheckpoint("train.global_batch", options_.global_batch, checkpoint.global_batch));
  if (parts_.training != nullptr) {
    FOREBAY_TRY(SameAsCheckpoint("global step",
                                 checkpoint.epoch * steps_per_epoch_ + checkpoint.step,
                                 checkpoint.global_step));
  }
  FOREBAY_TRY(parts_.engine.Load(checkpoint));
  global_step_ = checkpoint.global_step;
  epoch_ = checkpoint.epoch;
  step_ = checkpoint.step;
  token_ = checkpoint.position_token;
  evaluation_pending_ = checkpoint.evaluation_pending;
  report_.first_global_step = global_step_;
  return parts_.metrics.Resumed(global_step_);
}

Result<TrainingReport> TrainingLoop::Run() {
  if (parts_.training != nullptr && steps_per_epoch_ == 0) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("train.global_batch = {}: the training set has only {} samples",
                             options_.global_batch, parts_.training->sample_count()));
  }
  const std::uint64_t started = parts_.now_ns();
  if (evaluation_pending_ && epoch_ > 0) FOREBAY_TRY(Evaluate(epoch_ - 1));
  std::optional<std::uint64_t> saved_step;
  bool stopped = false;
  while (!stopped && parts_.training != nullptr && epoch_ < options_.epochs) {
    FOREBAY_ASSIGN(const StepEnd end, Step());
    stopped = end.stop;
    if (end.epoch_done && EvaluationDue(epoch_ - 1)) {
      // A batch system that ends the job leaves no time for an evaluation; the next run makes
      // it up.
      if (stopped) {
        evaluation_pending_ = true;
      } else {
        FOREBAY_TRY(Evaluate(epoch_ - 1));
      }
    }
    const std::uint64_t every = options_.checkpoint_every_steps;
    if (!stopped && every != 0 && global_step_ % every == 0) {
      const Status saved = Save();
      if (saved.has_value()) {
        saved_step = global_step_;
      } else {
        parts_.print("checkpoint not written, training goes on: " + saved.error().ToString());
      }
    }
  }
  if (report_.steps > 0 && saved_step != global_step_) FOREBAY_TRY(Save());
  if (!stopped) FOREBAY_TRY(FinishFeeds());
  report_.loop_ns = parts_.now_ns() - started;
  report_.completed = !stopped;
  return report_;
}

Result<FeedBatch> TrainingLoop::NextBatch() {
  FOREBAY_ASSIGN(std::optional<FeedBatch> batch, parts_.training->Next());
  if (!batch) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("the training feed ended before epoch {} step {}", epoch_, step_));
  }
  FOREBAY_TRY(CheckBatch(*batch));
  return *std::move(batch);
}

Status TrainingLoop::CheckBatch(const FeedBatch& batch) const {
  if (batch.epoch != epoch_ || batch.step != step_) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("the feed delivered epoch {} step {}, due was epoch {} step {}",
                             batch.epoch, batch.step, epoch_, step_));
  }
  const std::uint32_t due = options_.global_batch / parts_.communicator.size();
  if (batch.sample_count != due) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("epoch {} step {} has {} samples for this rank, due were {}",
                             epoch_, step_, batch.sample_count, due));
  }
  return {};
}

Result<TrainingLoop::StepEnd> TrainingLoop::Step() {
  const std::uint64_t asked = parts_.now_ns();
  FOREBAY_ASSIGN(FeedBatch batch, NextBatch());
  const std::uint64_t received = parts_.now_ns();
  StepFigures figures;
  figures.global_step = global_step_;
  figures.epoch = epoch_;
  figures.step = step_;
  figures.learning_rate = options_.learning_rate.At(global_step_);
  FOREBAY_ASSIGN(const BatchOutcome outcome,
                 parts_.engine.TrainStep(batch, figures.learning_rate));
  // The stop flag travels with the loss, so that all ranks stop after the same step.
  std::array<double, 3> agreed = {outcome.loss_sum, static_cast<double>(outcome.samples),
                                  parts_.stop_requested() ? 1.0 : 0.0};
  FOREBAY_TRY(parts_.communicator.AllReduceSum(std::span<double>(agreed)));
  figures.loss = agreed[0] / agreed[1];
  const std::uint64_t done = parts_.now_ns();
  if (!std::isfinite(figures.loss)) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("the loss of epoch {} step {} is not finite; lower "
                             "train.learning_rate",
                             epoch_, step_));
  }
  if (report_.steps == 0) {
    report_.first_batch_ns = received - parts_.opening_ns;
    report_.first_wait_ns = received - asked;
  }
  ++report_.steps;
  report_.samples += static_cast<std::uint64_t>(agreed[1]);
  report_.wait_ns += received - asked;
  report_.train_ns += done - asked;
  report_.last_loss = figures.loss;
  token_ = std::move(batch.token);
  ++global_step_;
  ++step_;
  FOREBAY_TRY(parts_.metrics.Step(figures));
  Progress(figures, received - asked, done - asked);
  StepEnd end{.stop = agreed[2] > 0, .epoch_done = step_ == steps_per_epoch_};
  if (end.epoch_done) {
    ++epoch_;
    step_ = 0;
  }
  return end;
}

void TrainingLoop::Progress(const StepFigures& figures, std::uint64_t wait_ns,
                            std::uint64_t step_ns) {
  ++window_.steps;
  window_.wait_ns += wait_ns;
  window_.step_ns += step_ns;
  window_.loss += figures.loss;
  if (window_.steps < options_.log_every_steps && figures.step + 1 != steps_per_epoch_) return;
  const double seconds = static_cast<double>(window_.step_ns) * 1e-9;
  const double steps = static_cast<double>(window_.steps);
  if (leads()) {
    parts_.print(fmt::format(
        "epoch {}/{} step {}/{}  loss {:.4f}  lr {:.4f}  {:.0f} samples/s  stall {:.1f} %",
        figures.epoch + 1, options_.epochs, figures.step + 1, steps_per_epoch_,
        window_.loss / steps, figures.learning_rate,
        seconds > 0 ? steps * options_.global_batch / seconds : 0.0,
        seconds > 0 ? static_cast<double>(window_.wait_ns) * 1e-7 / seconds : 0.0));
  }
  window_ = {};
}

bool TrainingLoop::EvaluationDue(std::uint32_t epoch) const {
  const std::uint32_t every = options_.evaluate_every_epochs;
  if (every == 0 || parts_.validation == nullptr) return false;
  return (epoch + 1) % every == 0 || epoch + 1 == options_.epochs;
}

Status TrainingLoop::Evaluate(std::uint32_t epoch) {
  evaluation_pending_ = false;
  if (parts_.validation == nullptr) return {};
  const std::uint64_t started = parts_.now_ns();
  std::array<double, 3> sums = {0, 0, 0};
  for (std::uint64_t step = 0; step < parts_.validation->steps_per_epoch(); ++step) {
    const std::uint64_t asked = parts_.now_ns();
    FOREBAY_ASSIGN(std::optional<FeedBatch> batch, parts_.validation->Next());
    report_.wait_ns += parts_.now_ns() - asked;
    if (!batch || batch->step != step) {
      return Error(ErrorCode::kDataLoss,
                   fmt::format("the validation feed lost its step {}", step));
    }
    FOREBAY_ASSIGN(const BatchOutcome outcome, parts_.engine.EvaluateStep(*batch));
    sums[0] += outcome.loss_sum;
    sums[1] += static_cast<double>(outcome.correct);
    sums[2] += static_cast<double>(outcome.samples);
  }
  FOREBAY_TRY(parts_.communicator.AllReduceSum(std::span<double>(sums)));
  EvaluationFigures figures;
  figures.epoch = epoch;
  figures.samples = static_cast<std::uint64_t>(sums[2]);
  if (figures.samples != parts_.validation->sample_count()) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("{} of {} validation samples were evaluated", figures.samples,
                             parts_.validation->sample_count()));
  }
  figures.loss = sums[0] / sums[2];
  figures.accuracy = sums[1] / sums[2];
  figures.seconds = static_cast<double>(parts_.now_ns() - started) * 1e-9;
  if (leads()) {
    parts_.print(fmt::format(
        "epoch {}/{} test accuracy {:.4f}  loss {:.4f}  {} samples in {:.1f} s", epoch + 1,
        options_.epochs, figures.accuracy, figures.loss, figures.samples, figures.seconds));
  }
  report_.evaluations.push_back(figures);
  return parts_.metrics.Evaluation(figures);
}

Status TrainingLoop::Save() {
  if (parts_.checkpoints == nullptr) return {};
  Checkpoint checkpoint;
  checkpoint.global_step = global_step_;
  checkpoint.epoch = epoch_;
  checkpoint.step = step_;
  checkpoint.seed = options_.seed;
  checkpoint.global_batch = options_.global_batch;
  checkpoint.evaluation_pending = evaluation_pending_;
  checkpoint.position_token = token_;
  FOREBAY_TRY(parts_.engine.Save(checkpoint));
  FOREBAY_ASSIGN(const std::filesystem::path path, parts_.checkpoints->Save(checkpoint));
  report_.checkpoint = path.string();
  return {};
}

Status TrainingLoop::FinishFeeds() {
  for (Feed* const feed : {parts_.training, parts_.validation}) {
    if (feed == nullptr) continue;
    FOREBAY_ASSIGN(const std::optional<FeedBatch> beyond, feed->Next());
    if (beyond) {
      return Error(ErrorCode::kDataLoss,
                   fmt::format("the feed goes on beyond its last epoch: epoch {} step {}",
                               beyond->epoch, beyond->step));
    }
    FOREBAY_TRY(feed->Finish());
  }
  return {};
}

}  // namespace forebay::train
