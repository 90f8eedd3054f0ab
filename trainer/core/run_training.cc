#include "trainer/core/run_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "proto/contract/limits.h"
#include "trainer/core/checkpoint_folder.h"

namespace forebay::train {
namespace {

constexpr const char* kBestFolder = "best";
constexpr double kNsPerMinute = 60e9;

// Rank 0 looks, so that all ranks resume from the same one even while it is being replaced.
Result<std::string> ChooseResumePath(const TrainConfig& config, const RunParts& parts) {
  const CheckpointConfig& wanted = config.checkpoint;
  std::vector<std::string> skipped;
  const auto name_skipped = [&] {
    for (const std::string& line : skipped) parts.print("checkpoint passed over: " + line);
  };
  if (wanted.resume != "auto") {
    const auto found = FindCheckpoint(wanted.resume, skipped);
    name_skipped();
    if (!found.has_value()) return found.error().WithContext("checkpoint.resume");
    return found->string();
  }
  if (wanted.checkpoint_dir.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "checkpoint.resume = \"auto\": needs checkpoint.checkpoint_dir");
  }
  std::error_code code;
  std::optional<std::filesystem::path> newest;
  if (std::filesystem::exists(wanted.checkpoint_dir, code)) {
    FOREBAY_ASSIGN(newest, NewestCheckpoint(wanted.checkpoint_dir, skipped));
  }
  name_skipped();
  if (!newest) parts.print("no intact checkpoint yet: starting afresh");
  return newest ? newest->string() : std::string();
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

LearningRateSchedule::Shape ShapeOf(const std::string& schedule) {
  using Shape = LearningRateSchedule::Shape;
  if (schedule == "constant") return Shape::kConstant;
  if (schedule == "step") return Shape::kStep;
  return schedule == "polynomial" ? Shape::kPolynomial : Shape::kCosine;
}

// "30,60,80".
Result<std::vector<std::uint64_t>> DecayEpochs(const OptimiserConfig& train) {
  std::vector<std::uint64_t> epochs;
  const char* at = train.decay_epochs.data();
  const char* const end = at + train.decay_epochs.size();
  while (at != end) {
    std::uint32_t epoch = 0;
    const auto [next, error] = std::from_chars(at, end, epoch);
    const bool ends_well = next == end || (*next == ',' && next + 1 != end);
    if (error != std::errc() || !ends_well || epoch == 0) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("train.decay_epochs = \"{}\": must be numbers from 1 on, such as "
                               "\"30,60,80\"",
                               train.decay_epochs));
    }
    epochs.push_back(epoch);
    at = next == end ? end : next + 1;
  }
  return epochs;
}

// Where the loss curve goes: the folder of metrics has one, too.
std::string LossCurvePath(const RunConfig& run) {
  if (!run.metrics_file.empty() || run.metrics_dir.empty()) return run.metrics_file;
  return (std::filesystem::path(run.metrics_dir) / kLossCurveFile).string();
}

// The run's folders of checkpoints; those that are written to are rank 0's to open.
class CheckpointPlaces {
 public:
  Status Open(const CheckpointConfig& config, bool leads) {
    regular_.folder = config.checkpoint_dir;
    best_.folder = regular_.folder / kBestFolder;
    if (!leads) return {};
    FOREBAY_ASSIGN(folders_[0],
                   CheckpointFolder::Open(regular_.folder, ToU64(config.checkpoints_kept)));
    regular_.publisher = &*folders_[0];
    if (!config.keep_best) return {};
    FOREBAY_ASSIGN(folders_[1], CheckpointFolder::Open(best_.folder, 1));
    best_.publisher = &*folders_[1];
    return {};
  }

  const CheckpointPlace& regular() const { return regular_; }
  const CheckpointPlace& best() const { return best_; }

 private:
  std::array<std::optional<CheckpointFolder>, 2> folders_;
  CheckpointPlace regular_;
  CheckpointPlace best_;
};

}  // namespace

Status CheckRanks(const TrainConfig& config, std::uint32_t ranks) {
  FOREBAY_TRY(LoopOptionsOf(config, ranks));
  return {};
}

Result<LoopOptions> LoopOptionsOf(const TrainConfig& config, std::uint32_t ranks) {
  const OptimiserConfig& train = config.train;
  LoopOptions options;
  FOREBAY_ASSIGN(options.layouts, MakeLayoutPlan(config, ranks));
  FOREBAY_ASSIGN(options.decay_epochs, DecayEpochs(train));
  options.epochs = ToU32(train.epochs);
  options.global_batch = ToU32(train.global_batch);
  options.seed = ToU64(train.seed);
  options.learning_rate.shape = ShapeOf(train.schedule);
  options.learning_rate.peak = train.learning_rate;
  options.learning_rate.last = train.final_learning_rate;
  options.learning_rate.power = train.polynomial_power;
  options.learning_rate.decay_factor = train.decay_factor;
  options.learning_rate.warmup_steps = ToU64(train.warmup_steps);
  options.skips_not_finite = train.nan_policy == "skip";
  options.saves = !config.checkpoint.checkpoint_dir.empty();
  options.evaluate_every_epochs = ToU32(config.evaluation.evaluate_every_epochs);
  if (config.evaluation.target != 0) options.target = config.evaluation.target;
  options.checkpoint_every_steps = ToU64(config.checkpoint.checkpoint_every_steps);
  options.checkpoint_every_ns =
      static_cast<std::uint64_t>(config.checkpoint.checkpoint_every_minutes * kNsPerMinute);
  options.keeps_best = options.saves && config.checkpoint.keep_best;
  options.configuration = ToToml(config);
  options.log_every_steps = ToU64(config.run.log_every_steps);
  return options;
}

Result<std::optional<CheckpointReader>> FindResume(const TrainConfig& config,
                                                   const RunParts& parts) {
  if (config.checkpoint.resume.empty()) return std::optional<CheckpointReader>();
  std::string path;
  if (parts.communicator.rank() == 0) {
    FOREBAY_ASSIGN(path, ChooseResumePath(config, parts));
  }
  FOREBAY_ASSIGN(path, AgreeOnPath(std::move(path), parts.communicator));
  if (path.empty()) return std::optional<CheckpointReader>();
  FOREBAY_ASSIGN(CheckpointReader reader, CheckpointReader::Open(path));
  if (parts.communicator.rank() == 0) {
    parts.print(fmt::format("resuming at epoch {} step {} from {}", reader.state().epoch + 1,
                            reader.state().step, path));
  }
  return std::optional<CheckpointReader>(std::move(reader));
}

Result<TrainingReport> RunTraining(const TrainConfig& config, const RunParts& parts) {
  FOREBAY_ASSIGN(const LoopOptions options, LoopOptionsOf(config, parts.communicator.size()));
  const bool leads = parts.communicator.rank() == 0;
  FOREBAY_ASSIGN(const std::optional<CheckpointReader> resume, FindResume(config, parts));
  const std::uint64_t opening_ns = parts.now_ns();
  FeedRequest request;
  RunPosition position;
  if (resume) {
    const Checkpoint& state = resume->state();
    request.from = {state.epoch, state.step, state.position_token};
    position = {state.epoch, state.step, state.global_step};
  }
  request.layout = options.layouts.At(position);
  if (request.layout != parts.engine.layout()) {
    FOREBAY_TRY(parts.engine.Switch(request.layout));
  }
  if (position.epoch < options.epochs) request.training_epochs = options.epochs - position.epoch;
  request.evaluations = EvaluationsLeft(options, position.epoch) +
                        (resume && resume->state().evaluation_pending ? 1 : 0);
  LayoutFeeds feeds(parts.feeds, parts.communicator,
                    [&engine = parts.engine](FeedBatch& batch) { engine.Prepare(batch); });
  FOREBAY_TRY(feeds.Open(request));

  CheckpointPlaces places;
  if (options.saves) FOREBAY_TRY(places.Open(config.checkpoint, leads));
  FOREBAY_ASSIGN(StepMeter meter, StepMeter::Open({.folder = config.run.metrics_dir,
                                                   .append = resume.has_value(),
                                                   .peak_gflops = parts.peak_gflops},
                                                  parts.communicator));
  FOREBAY_ASSIGN(MetricsFile metrics,
                 MetricsFile::Open(leads ? LossCurvePath(config.run) : "", resume.has_value()));
  TrainingLoop loop(options, {.engine = parts.engine,
                              .communicator = parts.communicator,
                              .metrics = metrics,
                              .meter = meter,
                              .feeds = feeds,
                              .checkpoints = places.regular(),
                              .best = places.best(),
                              .stop_requested = parts.stop_requested,
                              .now_ns = parts.now_ns,
                              .print = parts.print,
                              .opening_ns = opening_ns});
  if (resume) FOREBAY_TRY(loop.Resume(*resume));
  return loop.Run();
}

}  // namespace forebay::train
