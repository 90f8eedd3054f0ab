// The loop over steps, and everything that happens between two of them: switches of layouts,
// evaluations, checkpoints, stops, progress lines. After each step all ranks exchange votes in one
// small reduction (Agree): whether a rank was asked to stop, whether rank 0's clock wants a
// checkpoint, how the checkpoint that is being written stands. Every decision follows from the sum,
// so all ranks take it at the same step, and no rank enters a collective call alone.
#include "trainer/core/loop/training_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "proto/contract/check.h"
#include "trainer/core/loop/rank_agreement.h"
#include "trainer/core/without_exceptions.h"

namespace forebay::train {
namespace {

constexpr std::size_t kMicroBatchesNamed = 4;  // in a message
// A run whose weights have diverged leaves out every step: it ends, instead of training nothing.
constexpr std::uint64_t kSkippedInARowMax = 100;

// What a checkpoint and the run that continues it must have in common.
template <typename T>
Status SameAsCheckpoint(const char* name, const T& here, const T& there) {
  if (here == there) return {};
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("the checkpoint's {} is {}, this run's {}", name, there, here));
}

// Not done at every step: one in hundreds has use for it.
std::vector<std::byte> Encoded(const std::optional<PositionToken>& token) {
  if (!token) return {};
  const auto bytes = token->Encode();
  return {bytes.begin(), bytes.end()};
}

// A full disk is no error of the run: the next checkpoint may find room.
std::string NotWritten(std::uint64_t step, const Error& error) {
  return fmt::format("checkpoint of step {} not written: {}", step, error.ToString());
}

}  // namespace

std::uint32_t EvaluationsLeft(const LoopOptions& options, std::uint32_t epoch) {
  // Evaluations after epochs that `every` divides, and one after the last epoch in any case.
  const std::uint32_t every = options.evaluate_every_epochs;
  if (every == 0 || epoch >= options.epochs) return 0;
  const std::uint32_t regular = options.epochs / every - epoch / every;
  return regular + (options.epochs % every != 0 ? 1 : 0);
}

TrainingLoop::TrainingLoop(const LoopOptions& options, const LoopParts& parts)
    : options_(options), parts_(parts), writer_(parts.communicator) {
  FOREBAY_CHECK(parts_.stop_requested && parts_.now_ns && parts_.print);
  if (parts_.feeds.trains()) steps_per_epoch_ = parts_.feeds.training().steps;
  // Known only now: the number of steps of an epoch is the data set's.
  options_.learning_rate.total_steps = steps_per_epoch_ * options_.epochs;
  for (const std::uint64_t epochs : options_.decay_epochs) {
    options_.learning_rate.decay_steps.push_back(epochs * steps_per_epoch_);
  }
  report_.ranks = parts_.communicator.size();
  report_.metric = parts_.engine.metric();
}

// The engine loads first: a checkpoint that it refuses leaves the loop at its beginning.
Status TrainingLoop::Resume(const CheckpointReader& stored) {
  const Checkpoint& checkpoint = stored.state();
  FOREBAY_TRY(SameAsCheckpoint("train.seed", options_.seed, checkpoint.seed));
  FOREBAY_TRY(
      SameAsCheckpoint("train.global_batch", options_.global_batch, checkpoint.global_batch));
  if (parts_.feeds.trains()) {
    FOREBAY_TRY(SameAsCheckpoint("global step",
                                 checkpoint.epoch * steps_per_epoch_ + checkpoint.step,
                                 checkpoint.global_step));
  }
  // Ranks read different tensors, and any of them may fail.
  FOREBAY_TRY(AgreeOn(WithoutExceptions(stored.folder().string(),
                                        [&] { return parts_.engine.Load(stored); }),
                      parts_.communicator));
  global_step_ = checkpoint.global_step;
  epoch_ = checkpoint.epoch;
  step_ = checkpoint.step;
  if (!checkpoint.position_token.empty()) {
    FOREBAY_ASSIGN(token_, PositionToken::Parse(checkpoint.position_token));
  }
  evaluation_pending_ = checkpoint.evaluation_pending;
  best_ = checkpoint.best;
  report_.first_global_step = global_step_;
  parts_.side_output.Note(parts_.metrics.Resumed(global_step_));
  return {};
}

// Whatever ends the run, a checkpoint that is being written is finished if the ranks can still do
// that together.
Result<TrainingReport> TrainingLoop::Run() {
  Result<TrainingReport> report = RunToEnd();
  // An error that all ranks have met at the same place leaves them in step, so that the checkpoint
  // that is being written can still be finished. After any other error the ranks may be anywhere,
  // and a collective call could wait for ever.
  const bool can_publish = ends_alike_ || parts_.communicator.size() == 1;
  if (report.has_value() || !can_publish || !writer_.busy()) return report;
  const Status drained = DrainCheckpoints();
  if (!drained.has_value()) parts_.print("checkpoint: " + drained.error().ToString());
  if (!report_.checkpoint.empty()) parts_.print("last checkpoint: " + report_.checkpoint);
  return report;
}

// The run itself. Every early return is an error, which Run may still accompany by a last
// checkpoint.
Result<TrainingReport> TrainingLoop::RunToEnd() {
  if (parts_.feeds.trains() && steps_per_epoch_ == 0) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("train.global_batch = {}: the training set has only {} samples",
                             options_.global_batch, parts_.feeds.training().samples));
  }
  parts_.side_output.Note(
      parts_.meter.BeginLayout(parts_.engine.layout(), parts_.engine.forecast()));
  const std::uint64_t started = parts_.now_ns();
  // checkpoint_every_minutes counts from here.
  saved_ns_ = started;
  // The run before was stopped between the end of an epoch and its evaluation.
  if (evaluation_pending_ && epoch_ > 0) {
    FOREBAY_TRY(Evaluate(epoch_ - 1));
    made_up_ = !evaluation_pending_;
  }
  // Each turn is one step and what is due after it.
  while (!stopped_ && !TargetReached() && parts_.feeds.trains() && epoch_ < options_.epochs) {
    // Before the step, so that a resumed run starts it on the layout that is due there.
    FOREBAY_TRY(Relayout());
    FOREBAY_ASSIGN(const StepEnd end, Step());
    if (end.epoch_done) FOREBAY_TRY(EndEpoch());
    if (end.epoch_done && EvaluationDue(epoch_ - 1)) {
      // A batch system that ends the job leaves no time for an evaluation; the next run makes
      // it up.
      evaluation_pending_ = stopped_;
      if (!stopped_) FOREBAY_TRY(Evaluate(epoch_ - 1));
    }
    const std::uint64_t every = options_.checkpoint_every_steps;
    // Not when the run stops: SaveLast writes that one.
    const bool due = end.checkpoint_due || (every != 0 && global_step_ % every == 0);
    if (due && !stopped_) FOREBAY_TRY(Save(parts_.checkpoints));
  }
  report_.target_reached = TargetReached();
  if (report_.target_reached && leads()) {
    parts_.print(fmt::format("{} {:.4f} after epoch {} reaches evaluation.target = {}",
                             report_.metric.name, best_->value, best_->epoch + 1,
                             *options_.target));
  }
  FOREBAY_TRY(SaveLast());
  // A feed that is left before its end has nothing to check.
  if (!stopped_ && epoch_ >= options_.epochs) FOREBAY_TRY(parts_.feeds.Finish());
  parts_.side_output.Note(parts_.engine.Finish());
  FOREBAY_TRY(SumUpRanks());
  // Collective: every rank contributes the tensors that it holds.
  FOREBAY_ASSIGN(report_.weights_digest, Digest());
  report_.layout = parts_.engine.layout();
  report_.loop_ns = parts_.now_ns() - started;
  report_.completed = !stopped_;
  return report_;
}

Status TrainingLoop::SumUpRanks() {
  parts_.side_output.Note(parts_.meter.Flush());
  FOREBAY_ASSIGN(report_.rank_totals, parts_.meter.Finish());
  std::array<double, 1> failures = {static_cast<double>(parts_.side_output.failures())};
  FOREBAY_TRY(parts_.communicator.AllReduceSum(std::span<double>(failures)));
  report_.output_failures = static_cast<std::uint64_t>(failures[0]);
  return {};
}

// The layout of the step that is due. Nothing is lost or repeated: the streams of the new layout
// begin at the token of the last step that was trained on.
Status TrainingLoop::Relayout() {
  const Layout due = options_.layouts.At(position());
  const Layout from = parts_.engine.layout();
  if (due == from) return {};
  const std::uint64_t started = parts_.now_ns();
  NoteStage(fmt::format("epoch {} step {}", epoch_ + 1, step_), "switch of layouts");
  FOREBAY_TRY(parts_.engine.Switch(due));
  // The engine has moved the weights before the streams are opened, because the feeds share
  // batches out by the new layout.
  FOREBAY_TRY(parts_.feeds.Open({.layout = due,
                                 .from = {epoch_, step_, Encoded(token_)},
                                 .training_epochs = options_.epochs - epoch_,
                                 .evaluations = EvaluationsLeft(options_, epoch_)}));
  parts_.side_output.Note(parts_.meter.BeginLayout(due, parts_.engine.forecast()));
  ++report_.switches;
  if (leads()) {
    parts_.print(fmt::format("epoch {}/{} step {}: layout {} (was {}), switched in {:.2f} s",
                             epoch_ + 1, options_.epochs, step_, ToString(due), ToString(from),
                             static_cast<double>(parts_.now_ns() - started) * 1e-9));
    if (options_.replicas_decide_sums && due.replicas != from.replicas) {
      parts_.print(fmt::format("warning: train.exactness = \"fast\" and {} replicas in place of "
                               "{}: the weights will depend on the layout",
                               due.replicas, from.replicas));
    }
  }
  return {};
}

void TrainingLoop::NoteStage(std::string context, std::string what) {
  parts_.communicator.progress().Enter(std::move(context));
  parts_.communicator.progress().At(std::move(what));
}

// Names what is not finite. An error, unless such steps are left out.
Status TrainingLoop::CheckOutcome(const BatchOutcome& outcome, double loss) {
  if (std::isfinite(loss) && !outcome.skipped) {
    skipped_in_a_row_ = 0;
    return {};
  }
  std::string what = fmt::format("the {} of epoch {} step {} is not finite",
                                 std::isfinite(loss) ? "gradient" : "loss", epoch_, step_);
  const std::size_t named = std::min(outcome.not_finite.size(), kMicroBatchesNamed);
  for (const std::uint32_t micro_batch : std::span(outcome.not_finite).first(named)) {
    // With positions one can find the samples: `forebay order` lists them.
    const std::uint64_t first = step_ * options_.global_batch +
                                std::uint64_t{micro_batch} * options_.layouts.micro_batch;
    what += fmt::format(", micro-batch {} (positions {} to {} of the epoch's order)",
                        micro_batch, first, first + options_.layouts.micro_batch - 1);
  }
  if (options_.skips_not_finite && outcome.skipped) {
    ++report_.skipped_steps;
    if (leads()) parts_.print(what + "; the step is left out");
    if (++skipped_in_a_row_ < kSkippedInARowMax) return {};
    what += fmt::format("; so were the {} steps before it, which were left out",
                        kSkippedInARowMax - 1);
  }
  // Loss and outcome are the same on all ranks, so that all of them end here.
  ends_alike_ = true;
  return Error(ErrorCode::kFailedPrecondition, what + "; lower train.learning_rate");
}

Result<std::uint64_t> TrainingLoop::Digest() {
  return WithoutExceptions("weights digest", [&] { return parts_.engine.Digest(); });
}

Status TrainingLoop::EndEpoch() {
  FOREBAY_ASSIGN(const std::uint64_t digest, Digest());
  // Rank 0 prints for all.
  if (leads()) {
    parts_.print(fmt::format("epoch {}/{} weights digest {:016x}  layout {}", epoch_,
                             options_.epochs, digest, ToString(parts_.engine.layout())));
  }
  return {};
}

// All ranks stop after the same step, begin checkpoints after the same step, and know together when
// one is written. Of the clocks rank 0's counts.
Result<TrainingLoop::Agreement> TrainingLoop::Agree(bool checkpoint_due) {
  // Four numbers in one reduction cost as much as one.
  const CheckpointWriter::Vote own = writer_.Ask();
  std::array<double, 4> votes = {parts_.stop_requested() ? 1.0 : 0.0,
                                 checkpoint_due && leads() ? 1.0 : 0.0, own.unfinished,
                                 own.failed};
  FOREBAY_TRY(parts_.communicator.AllReduceSum(std::span<double>(votes)));
  FOREBAY_ASSIGN(const std::optional<CheckpointWriter::Outcome> outcome,
                 writer_.Advance({.unfinished = votes[2], .failed = votes[3]}));
  if (outcome) Written(*outcome);
  return Agreement{.stop = votes[0] > 0, .checkpoint_due = votes[1] > 0};
}

// One training step: take the batch that is due, train on it, agree with the other ranks, and
// account for the time. The position advances only after the step has succeeded.
Result<TrainingLoop::StepEnd> TrainingLoop::Step() {
  // For the watchdog's messages.
  NoteStage(fmt::format("epoch {} step {}", epoch_ + 1, step_ + 1), "batch from the feed");
  const std::uint64_t asked = parts_.now_ns();
  FOREBAY_ASSIGN(const std::unique_ptr<FeedBatch> batch,
                 parts_.feeds.NextTraining(epoch_, step_));
  const std::uint64_t received = parts_.now_ns();
  StepFigures figures;
  figures.global_step = global_step_;
  figures.epoch = epoch_;
  figures.step = step_;
  // By the step since the start of the run, also in a resumed one.
  figures.learning_rate = options_.learning_rate.At(global_step_);
  FOREBAY_ASSIGN(const BatchOutcome outcome,
                 parts_.engine.TrainStep(*batch, figures.learning_rate));
  const std::uint64_t every_ns = options_.checkpoint_every_ns;
  FOREBAY_ASSIGN(const Agreement agreed,
                 Agree(every_ns != 0 && received - saved_ns_ >= every_ns));
  figures.loss = outcome.loss_sum / static_cast<double>(outcome.samples);
  const std::uint64_t done = parts_.now_ns();
  FOREBAY_TRY(CheckOutcome(outcome, figures.loss));
  if (report_.steps == 0) {
    // From opening the streams on: what a user waits before anything is trained.
    report_.first_batch_ns = received - parts_.opening_ns;
    report_.first_wait_ns = received - asked;
  }
  ++report_.steps;
  report_.samples += outcome.samples;
  report_.wait_ns += received - asked;
  report_.train_ns += done - asked;
  report_.last_loss = figures.loss;
  // Only now: a token stands behind a step that was trained on.
  token_ = batch->token;
  ++global_step_;
  ++step_;
  parts_.side_output.Note(parts_.metrics.Step(figures));
  Meter(figures, outcome.samples, received - asked, done - asked);
  // The window's figures are over all ranks; so this is collective when the window ends.
  FOREBAY_TRY(Progress(figures, received - asked, done - asked));
  stopped_ = agreed.stop;
  StepEnd end{.epoch_done = step_ == steps_per_epoch_, .checkpoint_due = agreed.checkpoint_due};
  if (end.epoch_done) {
    ++epoch_;
    step_ = 0;
  }
  return end;
}

// What the engine's step leaves of the whole is the wait for the last rank; an engine that tells
// nothing has computed.
void TrainingLoop::Meter(const StepFigures& figures, std::uint64_t samples,
                         std::uint64_t wait_ns, std::uint64_t step_ns) {
  StepAccount account = parts_.engine.last_step();
  const std::uint64_t known_ns = account.step_ns + wait_ns;
  const std::uint64_t ending_ns = step_ns > known_ns ? step_ns - known_ns : 0;
  account.at(account.step_ns == 0 ? TimeClass::kCompute : TimeClass::kIdle) += ending_ns;
  account.plan_ns += ending_ns;
  account.at(TimeClass::kWaitData) = wait_ns;
  account.step_ns = step_ns;
  account.Close();
  parts_.side_output.Note(parts_.meter.Step({.global_step = figures.global_step,
                                             .epoch = figures.epoch,
                                             .step = figures.step,
                                             .samples = samples},
                                            account));
}

// Sums up a window of steps, and prints a line when it is complete.
Status TrainingLoop::Progress(const StepFigures& figures, std::uint64_t wait_ns,
                            std::uint64_t step_ns) {
  ++window_.steps;
  window_.wait_ns += wait_ns;
  window_.step_ns += step_ns;
  // A step that was left out must not turn the mean of the window into NaN.
  if (std::isfinite(figures.loss)) window_.loss += figures.loss;
  // Also at the end of an epoch.
  if (window_.steps < options_.log_every_steps && figures.step + 1 != steps_per_epoch_) return {};
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
  parts_.side_output.Note(parts_.meter.Flush());
  FOREBAY_ASSIGN(const std::string times, parts_.meter.Window());
  if (leads()) parts_.print("  time of all ranks: " + times);
  return {};
}

bool TrainingLoop::EvaluationDue(std::uint32_t epoch) const {
  const std::uint32_t every = options_.evaluate_every_epochs;
  if (every == 0 || !parts_.feeds.evaluates()) return false;
  return (epoch + 1) % every == 0 || epoch + 1 == options_.epochs;
}

// Goes through the validation set. False where a signal stopped it on the way.
Result<bool> TrainingLoop::SumUp(EvaluationSums& sums) {
  const FeedExtent& extent = parts_.feeds.validation();
  // The validation feed's epochs are evaluations; each is read to its end.
  for (std::uint64_t step = 0; step < extent.steps; ++step) {
    const std::uint64_t asked = parts_.now_ns();
    NoteStage(fmt::format("evaluation step {}", step + 1), "batch from the feed");
    FOREBAY_ASSIGN(const std::unique_ptr<FeedBatch> batch, parts_.feeds.NextValidation(step));
    report_.wait_ns += parts_.now_ns() - asked;
    FOREBAY_ASSIGN(const BatchOutcome outcome, parts_.engine.EvaluateStep(*batch));
    sums.Add(outcome);
    FOREBAY_ASSIGN(const Agreement agreed, Agree(/*checkpoint_due=*/false));
    // Behind the last batch it is as good as done, and the next step asks again.
    if (agreed.stop && step + 1 < extent.steps) return false;
  }
  return true;
}

// An evaluation that a stop interrupts is pending, and the next run makes it up.
Status TrainingLoop::Evaluate(std::uint32_t epoch) {
  evaluation_pending_ = false;
  if (!parts_.feeds.evaluates()) return {};
  // The time of an evaluation belongs to no step.
  const std::uint64_t started = parts_.now_ns();
  EvaluationSums sums;
  FOREBAY_ASSIGN(const bool whole, SumUp(sums));
  if (!whole) {
    evaluation_pending_ = true;  // the next run makes it up
    stopped_ = true;
    return {};
  }
  FOREBAY_ASSIGN(EvaluationFigures figures, sums.Figures(parts_.feeds.validation().samples));
  figures.epoch = epoch;
  figures.seconds = static_cast<double>(parts_.now_ns() - started) * 1e-9;
  if (leads()) {
    parts_.print(fmt::format("epoch {}/{} test {} {:.4f}  loss {:.4f}  {} samples in {:.1f} s",
                             epoch + 1, options_.epochs, report_.metric.name, figures.score,
                             figures.loss, figures.samples, figures.seconds));
  }
  report_.evaluations.push_back(figures);
  parts_.side_output.Note(parts_.metrics.Evaluation(report_.metric, figures));
  return MarkBest(figures);
}

// A better evaluation than all before is remembered, and its checkpoint kept if that is wanted.
Status TrainingLoop::MarkBest(const EvaluationFigures& figures) {
  const Metric& metric = report_.metric;
  if (!std::isfinite(figures.score)) return {};
  // A best value of another metric, from before the loss was changed, is not comparable.
  const bool comparable = best_ && best_->metric == metric.name;
  if (comparable && !metric.Better(figures.score, best_->value)) return {};
  best_ = BestMark{
      .metric = std::string(metric.name), .value = figures.score, .epoch = figures.epoch};
  return options_.keeps_best ? Save(parts_.best) : Status();
}

// Also by an evaluation of the run that is resumed.
bool TrainingLoop::TargetReached() const {
  return options_.target && best_ && best_->metric == report_.metric.name &&
         report_.metric.Reaches(best_->value, *options_.target);
}

// What cannot be trained on is not saved: checkpoints from before stay the newest.
Status TrainingLoop::SaveEngine(const CheckpointPlace& place, Checkpoint& checkpoint) {
  FOREBAY_TRY(WithoutExceptions(PublishedFolder(place.folder, global_step_).string(),
                                [&] { return parts_.engine.Save(checkpoint); }));
  const Status finite = CheckFinite(checkpoint);
  if (finite.has_value()) return {};
  return Error(finite.error().code(),
               fmt::format("checkpoint of step {}: {}; nothing is saved, and those before stay. "
                           "Lower train.learning_rate and resume from one of them",
                           global_step_, finite.error().message()));
}

// Begins to write one, behind the one that is under way.
Status TrainingLoop::Save(const CheckpointPlace& place) {
  if (!options_.saves) return {};
  NoteStage(fmt::format("epoch {} step {}", epoch_ + 1, step_), "checkpoint");
  const std::uint64_t started = parts_.now_ns();
  FOREBAY_TRY(DrainCheckpoints());
  Checkpoint checkpoint;
  checkpoint.run = options_.run;
  checkpoint.resumed_from = options_.resumed_from;
  checkpoint.global_step = global_step_;
  checkpoint.epoch = epoch_;
  checkpoint.step = step_;
  checkpoint.seed = options_.seed;
  checkpoint.global_batch = options_.global_batch;
  checkpoint.evaluation_pending = evaluation_pending_;
  checkpoint.position_token = Encoded(token_);
  checkpoint.best = best_;
  checkpoint.configuration = options_.configuration;
  checkpoint.layout = ToString(parts_.engine.layout());
  // The engine copies the tensors, so that training goes on while they are written.
  const Status saved = AgreeOn(SaveEngine(place, checkpoint), parts_.communicator);
  if (!saved.has_value() && saved.error().code() == ErrorCode::kResourceExhausted) {
    // As with a full disk, there may be room for the next one.
    saved_ns_ = parts_.now_ns();
    save_error_ = saved.error();
    if (leads()) parts_.print(NotWritten(global_step_, saved.error()));
    return {};
  }
  // AgreeOn has given all ranks the same error.
  ends_alike_ = !saved.has_value();
  FOREBAY_TRY(saved);
  FOREBAY_TRY(writer_.Begin(std::move(checkpoint), place));
  const std::uint64_t done = parts_.now_ns();
  report_.checkpoint_ns += done - started;
  // One in `best` does not count as the regular checkpoint of this step.
  if (place.folder != parts_.checkpoints.folder) return {};
  saved_step_ = global_step_;
  saved_ns_ = done;
  return {};
}

// The last one must be written, unless the one before was of the same step. An evaluation that was
// made up changes what there is to do, though no step does.
Status TrainingLoop::SaveLast() {
  // One checkpoint is written at a time: a second one would double the memory of the copies.
  FOREBAY_TRY(DrainCheckpoints());
  const bool changed = report_.steps > 0 || made_up_;
  if (!options_.saves || !changed || saved_step_ == global_step_) return {};
  save_error_.reset();
  FOREBAY_TRY(Save(parts_.checkpoints));
  FOREBAY_TRY(DrainCheckpoints());
  return save_error_ ? Status(*save_error_) : Status();
}

Status TrainingLoop::DrainCheckpoints() {
  FOREBAY_ASSIGN(const std::optional<CheckpointWriter::Outcome> outcome, writer_.Finish());
  if (outcome) Written(*outcome);
  return {};
}

// A checkpoint is no longer under way: it is written, or it has failed and training goes on.
void TrainingLoop::Written(const CheckpointWriter::Outcome& outcome) {
  save_error_ = outcome.error;
  if (!outcome.error) {
    report_.checkpoint = outcome.path.string();
    return;
  }
  // It is not saved after all, so SaveLast will try again.
  if (saved_step_ == outcome.global_step) saved_step_.reset();
  // Who merely waited for the others has nothing to tell.
  if (outcome.error->code() == ErrorCode::kAborted) return;
  parts_.print(NotWritten(outcome.global_step, *outcome.error));
}

}  // namespace forebay::train
