#include "trainer/core/run_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "proto/contract/limits.h"
#include "trainer/core/checkpoint_folder.h"

namespace forebay::train {
namespace {

// Rank 0 looks, so that all ranks resume from the same file even while it is being replaced.
Result<std::string> ChooseResumePath(const TrainConfig& config, const RunParts& parts) {
  const CheckpointConfig& wanted = config.checkpoint;
  if (wanted.resume != "auto") return wanted.resume;
  if (wanted.checkpoint_dir.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "checkpoint.resume = \"auto\": needs checkpoint.checkpoint_dir");
  }
  FOREBAY_ASSIGN(const CheckpointFolder folder,
                 CheckpointFolder::Open(wanted.checkpoint_dir,
                                        static_cast<std::uint64_t>(wanted.checkpoints_kept)));
  std::vector<std::string> skipped;
  FOREBAY_ASSIGN(const std::optional<CheckpointFolder::Found> found, folder.Newest(skipped));
  for (const std::string& line : skipped) parts.print("checkpoint passed over: " + line);
  if (!found) parts.print("no intact checkpoint yet: starting afresh");
  return found ? found->path.string() : std::string();
}

Result<std::string> AgreeOnPath(std::string path, Communicator& communicator) {
  std::vector<std::byte> text(limits::kPathBytesMax + 1);
  if (path.size() >= text.size()) {
    return Error(ErrorCode::kInvalidArgument, "checkpoint.resume: the path is too long");
  }
  std::memcpy(text.data(), path.data(), path.size());
  FOREBAY_TRY(communicator.Broadcast(text, 0));
  const auto end = std::ranges::find(text, std::byte{0});
  return std::string(reinterpret_cast<const char*>(text.data()),
                     static_cast<std::size_t>(end - text.begin()));
}

std::uint32_t ToU32(std::int64_t checked) { return static_cast<std::uint32_t>(checked); }
std::uint64_t ToU64(std::int64_t checked) { return static_cast<std::uint64_t>(checked); }

}  // namespace

Status CheckRanks(const TrainConfig& config, std::uint32_t ranks) {
  if (ToU64(config.train.global_batch) % ranks == 0) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("train.global_batch = {}: {} ranks do not divide it",
                           config.train.global_batch, ranks));
}

LoopOptions LoopOptionsOf(const TrainConfig& config) {
  const OptimiserConfig& train = config.train;
  LoopOptions options;
  options.epochs = ToU32(train.epochs);
  options.global_batch = ToU32(train.global_batch);
  options.seed = ToU64(train.seed);
  options.learning_rate.shape = train.schedule == "constant"
                                    ? LearningRateSchedule::Shape::kConstant
                                    : LearningRateSchedule::Shape::kCosine;
  options.learning_rate.peak = train.learning_rate;
  options.learning_rate.last = train.final_learning_rate;
  options.learning_rate.warmup_steps = ToU64(train.warmup_steps);
  options.evaluate_every_epochs = ToU32(config.evaluation.evaluate_every_epochs);
  options.checkpoint_every_steps = ToU64(config.checkpoint.checkpoint_every_steps);
  options.log_every_steps = ToU64(config.run.log_every_steps);
  return options;
}

Result<std::optional<Checkpoint>> FindResume(const TrainConfig& config, const RunParts& parts) {
  if (config.checkpoint.resume.empty()) return std::optional<Checkpoint>();
  std::string path;
  if (parts.communicator.rank() == 0) {
    FOREBAY_ASSIGN(path, ChooseResumePath(config, parts));
  }
  FOREBAY_ASSIGN(path, AgreeOnPath(std::move(path), parts.communicator));
  if (path.empty()) return std::optional<Checkpoint>();
  FOREBAY_ASSIGN(Checkpoint checkpoint, ReadCheckpoint(path));
  if (parts.communicator.rank() == 0) {
    parts.print(fmt::format("resuming at epoch {} step {} from {}", checkpoint.epoch + 1,
                            checkpoint.step, path));
  }
  return std::optional<Checkpoint>(std::move(checkpoint));
}

Result<TrainingReport> RunTraining(const TrainConfig& config, const RunParts& parts) {
  FOREBAY_TRY(CheckRanks(config, parts.communicator.size()));
  const bool leads = parts.communicator.rank() == 0;
  const LoopOptions options = LoopOptionsOf(config);
  FOREBAY_ASSIGN(const std::optional<Checkpoint> resume, FindResume(config, parts));
  const std::uint64_t opening_ns = parts.now_ns();
  FeedPosition from;
  if (resume) from = {resume->epoch, resume->step, resume->position_token};

  std::unique_ptr<Feed> training;
  if (from.epoch < options.epochs) {
    FOREBAY_ASSIGN(training, parts.feeds.OpenTraining(from, options.epochs - from.epoch));
  }
  std::unique_ptr<Feed> validation;
  const std::uint32_t evaluations = EvaluationsLeft(options, from.epoch) +
                                    (resume && resume->evaluation_pending ? 1 : 0);
  if (evaluations > 0) {
    FOREBAY_ASSIGN(validation, parts.feeds.OpenValidation(evaluations));
  }
  std::optional<CheckpointFolder> checkpoints;
  if (leads && !config.checkpoint.checkpoint_dir.empty()) {
    FOREBAY_ASSIGN(checkpoints,
                   CheckpointFolder::Open(config.checkpoint.checkpoint_dir,
                                          ToU64(config.checkpoint.checkpoints_kept)));
  }
  FOREBAY_ASSIGN(MetricsFile metrics,
                 MetricsFile::Open(leads ? config.run.metrics_file : "", resume.has_value()));
  TrainingLoop loop(options, {.engine = parts.engine,
                              .communicator = parts.communicator,
                              .metrics = metrics,
                              .training = training.get(),
                              .validation = validation.get(),
                              .checkpoints = checkpoints ? &*checkpoints : nullptr,
                              .stop_requested = parts.stop_requested,
                              .now_ns = parts.now_ns,
                              .print = parts.print,
                              .opening_ns = opening_ns});
  if (resume) FOREBAY_TRY(loop.Resume(*resume));
  return loop.Run();
}

}  // namespace forebay::train
