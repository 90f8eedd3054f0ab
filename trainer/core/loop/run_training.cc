// Wires one run: from the configuration to the options of the loop, from the checkpoint to the
// place where streams are opened, and from both to a TrainingLoop. The order matters. Everything
// that can be wrong is checked before the folder of checkpoints is changed.
#include "trainer/core/loop/run_training.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "proto/contract/check.h"
#include "trainer/core/config/config_changes.h"
#include "trainer/core/config/number_list.h"
#include "trainer/core/loop/rank_agreement.h"
#include "trainer/core/loop/run_start.h"
#include "trainer/core/metrics/side_output.h"

namespace forebay::train {
namespace {

constexpr double kNsPerMinute = 60e9;

// The table of keys has checked the ranges.
std::uint32_t ToU32(std::int64_t checked) { return static_cast<std::uint32_t>(checked); }
std::uint64_t ToU64(std::int64_t checked) { return static_cast<std::uint64_t>(checked); }

// Reads "30,60,80". The loop turns epochs into steps when it knows the data set.
Result<std::vector<std::uint64_t>> DecayEpochs(const RecipeConfig& train) {
  const auto epochs = ParseNumbers<std::uint32_t>(train.decay_epochs, ',');
  if (!epochs || std::ranges::find(*epochs, 0U) != epochs->end()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("train.decay_epochs = \"{}\": must be numbers from 1 on, such as "
                             "\"30,60,80\"",
                             train.decay_epochs));
  }
  return std::vector<std::uint64_t>(epochs->begin(), epochs->end());
}

// Where the loss curve goes: the folder of metrics has one, too.
std::string LossCurvePath(const RunConfig& run) {
  if (!run.metrics_file.empty() || run.metrics_dir.empty()) return run.metrics_file;
  return (std::filesystem::path(run.metrics_dir) / kLossCurveFile).string();
}

// A table of the same, for spreadsheets and data frames.
std::string ScalarsPath(const RunConfig& run) {
  if (run.metrics_dir.empty()) return {};
  return (std::filesystem::path(run.metrics_dir) / kScalarsFile).string();
}

// Both are without a file where the disk does not take one now. A mistake in the path ends every
// rank.
Result<StepMeter> OpenMeter(const RunConfig& run, bool append, const RunParts& parts,
                            SideOutput& side_output) {
  MeterOptions options{
      .folder = run.metrics_dir, .append = append, .peak_gflops = parts.peak_gflops};
  Result<StepMeter> meter = StepMeter::Open(options, parts.communicator);
  const Status opened = meter.has_value() ? Status() : Status(meter.error());
  const bool goes_without = !opened.has_value() && SideOutput::IsOfTheDisk(opened.error());
  FOREBAY_TRY(AgreeOn(goes_without ? Status() : opened, parts.communicator));
  if (!goes_without) return meter;
  side_output.Note(opened);
  options.folder.clear();
  return StepMeter::Open(options, parts.communicator);
}

// As OpenMeter: a disk that does not take the file now is no reason not to train.
Result<MetricsFile> OpenMetrics(const RunConfig& run, bool append, const RunParts& parts,
                                SideOutput& side_output) {
  // Only rank 0 writes the loss curve.
  Result<MetricsFile> metrics = MetricsFile();
  if (parts.communicator.rank() == 0) {
    metrics = MetricsFile::Open(LossCurvePath(run), append, ScalarsPath(run));
  }
  const Status opened = metrics.has_value() ? Status() : Status(metrics.error());
  const bool goes_without = !opened.has_value() && SideOutput::IsOfTheDisk(opened.error());
  FOREBAY_TRY(AgreeOn(goes_without ? Status() : opened, parts.communicator));
  if (!goes_without) return metrics;
  side_output.Note(opened);
  return MetricsFile();
}

// What a run does with the checkpoints that are there already.
Status CheckStart(const CheckpointConfig& config) {
  if (config.resume == "auto" && config.checkpoint_dir.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "checkpoint.resume = \"auto\": needs checkpoint.checkpoint_dir");
  }
  if (!config.new_run) return {};
  if (config.checkpoint_dir.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "checkpoint.new_run = true: needs checkpoint.checkpoint_dir");
  }
  if (config.resume != "auto") return {};
  return Error(ErrorCode::kInvalidArgument,
               "checkpoint.new_run = true: starts another run, checkpoint.resume = \"auto\" goes "
               "on with the one that is there; leave one of them out, or name the checkpoint");
}

// Where this run is not as the one before was; on rank 0.
void PrintChanges(const TrainConfig& config, const Checkpoint& state, const Layout& layout,
                  const std::function<void(const std::string&)>& print) {
  const std::vector<std::string> changes = ConfigChanges(state.configuration, ToToml(config));
  if (!changes.empty()) print("this run's configuration is not the checkpoint's (then -> now):");
  for (const std::string& change : changes) print("  " + change);
  if (config.train.exactness != "fast" || state.layout.empty()) return;
  const std::string replicas = fmt::format("{} x ", layout.replicas);
  if (state.layout.starts_with(replicas)) return;
  print(fmt::format("warning: train.exactness = \"fast\": the checkpoint was made under layout {}, "
                    "this run goes on under {}: the weights will depend on the layout",
                    state.layout, ToString(layout)));
}

}  // namespace

// Forms the options and drops them: a wrong value is found before the daemon is asked for
// anything.
Status CheckRanks(const TrainConfig& config, std::uint32_t ranks) {
  FOREBAY_TRY(LoopOptionsOf(config, ranks));
  return {};
}

// Everything that the loop needs to know of the configuration, checked.
Result<LoopOptions> LoopOptionsOf(const TrainConfig& config, std::uint32_t ranks) {
  const RecipeConfig& train = config.train;
  LoopOptions options;
  FOREBAY_TRY(CheckStart(config.checkpoint));
  FOREBAY_ASSIGN(options.layouts, MakeLayoutPlan(config, ranks));
  FOREBAY_ASSIGN(options.decay_epochs, DecayEpochs(train));
  FOREBAY_ASSIGN(options.learning_rate.shape, FindLearningRateShape(train.schedule));
  options.epochs = ToU32(train.epochs);
  options.global_batch = ToU32(train.global_batch);
  options.seed = ToU64(train.seed);
  options.learning_rate.peak = train.learning_rate;
  options.learning_rate.last = train.final_learning_rate;
  options.learning_rate.power = train.polynomial_power;
  options.learning_rate.decay_factor = train.decay_factor;
  options.learning_rate.warmup_steps = ToU64(train.warmup_steps);
  options.replicas_decide_sums = train.exactness == "fast";
  options.skips_not_finite = train.nan_policy == "skip";
  options.saves = !config.checkpoint.checkpoint_dir.empty();
  options.evaluate_every_epochs = ToU32(config.evaluation.evaluate_every_epochs);
  if (config.evaluation.target != 0) options.target = config.evaluation.target;
  options.checkpoint_every_steps = ToU64(config.checkpoint.checkpoint_every_steps);
  options.checkpoint_every_ns =
      static_cast<std::uint64_t>(config.checkpoint.checkpoint_every_minutes * kNsPerMinute);
  // Without a folder there is nowhere to keep it.
  options.keeps_best = options.saves && config.checkpoint.keep_best;
  options.configuration = ToToml(config);
  options.log_every_steps = ToU64(config.run.log_every_steps);
  return options;
}

// The name of a run, at random, so that runs on different machines do not share one.
std::uint64_t DrawRun() {
  std::uint64_t value = 0;
  FOREBAY_CHECK(::getrandom(&value, sizeof(value), 0) == sizeof(value));
  return value;
}

// In this order: options, lock, checkpoint, layout, feeds, output files, loop. The folder of
// checkpoints is claimed last.
Result<TrainingReport> RunTraining(const TrainConfig& config, const RunParts& parts) {
  FOREBAY_ASSIGN(LoopOptions options, LoopOptionsOf(config, parts.communicator.size()));
  const StartParts start_parts{.communicator = parts.communicator,
                               .print = parts.print,
                               .draw_run = parts.draw_run};
  RunFolders folders;
  // Before the folder is looked at, so that what is found there stays true.
  if (options.saves) FOREBAY_TRY(folders.Lock(config.checkpoint, parts.communicator));
  FOREBAY_ASSIGN(const RunStart start, FindRunStart(config.checkpoint, start_parts));
  const std::optional<CheckpointReader>& resume = start.checkpoint;
  options.run = start.run;
  options.resumed_from = start.resumed_from;
  const std::uint64_t opening_ns = parts.now_ns();
  FeedRequest request;
  RunPosition position;
  if (resume) {
    const Checkpoint& state = resume->state();
    request.from = {state.epoch, state.step, state.position_token};
    position = {state.epoch, state.step, state.global_step};
  }
  request.layout = options.layouts.At(position);
  if (resume && parts.communicator.rank() == 0) {
    PrintChanges(config, resume->state(), request.layout, parts.print);
  }
  // The engine starts on the first layout of the plan; a resumed run may stand behind a switch.
  if (request.layout != parts.engine.layout()) {
    FOREBAY_TRY(parts.engine.Switch(request.layout));
  }
  if (position.epoch < options.epochs) request.training_epochs = options.epochs - position.epoch;
  // An evaluation that the run before did not finish is one more.
  request.evaluations = EvaluationsLeft(options, position.epoch) +
                        (resume && resume->state().evaluation_pending ? 1 : 0);
  // Prepare runs on the thread that reads ahead, beside the step.
  LayoutFeeds feeds(parts.feeds, parts.communicator,
                    [&engine = parts.engine](FeedBatch& batch) { engine.Prepare(batch); });
  FOREBAY_TRY(feeds.Open(request));

  if (options.saves) FOREBAY_TRY(folders.Open(config.checkpoint, parts.communicator));
  SideOutput side_output(parts.communicator.rank(), parts.print);
  FOREBAY_ASSIGN(StepMeter meter, OpenMeter(config.run, resume.has_value(), parts, side_output));
  FOREBAY_ASSIGN(MetricsFile metrics,
                 OpenMetrics(config.run, resume.has_value(), parts, side_output));
  TrainingLoop loop(options, {.engine = parts.engine,
                              .communicator = parts.communicator,
                              .metrics = metrics,
                              .meter = meter,
                              .side_output = side_output,
                              .feeds = feeds,
                              .checkpoints = folders.regular(),
                              .best = folders.best(),
                              .stop_requested = parts.stop_requested,
                              .now_ns = parts.now_ns,
                              .print = parts.print,
                              .opening_ns = opening_ns});
  if (resume) FOREBAY_TRY(loop.Resume(*resume));
  if (options.saves) FOREBAY_TRY(folders.Claim(config.checkpoint, start, start_parts));
  return loop.Run();
}

}  // namespace forebay::train
