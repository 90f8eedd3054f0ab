// The configuration of the checkpoint's run is the default for everything, so that the command
// needs no flags but those that differ here. What belongs to training (layout, memory, checkpoints,
// metrics) is reset first. Evaluation goes through the same engine and feeds as in training.
#include "trainer/core/loop/evaluate_checkpoint.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/core/checkpoint/checkpoint_folder.h"
#include "trainer/core/checkpoint/checkpoint_reader.h"
#include "trainer/core/feed/layout_feeds.h"
#include "trainer/core/loop/evaluation_sums.h"
#include "trainer/core/loop/rank_agreement.h"
#include "trainer/core/without_exceptions.h"

namespace forebay::train {
namespace {

constexpr const char* kEvaluateUsage =
    "forebay-train evaluate CHECKPOINT [FLAG...]\n"
    "Loads the weights of a checkpoint (or of the newest intact one in a folder), evaluates the\n"
    "validation set and prints metric and loss; --summary-json FILE has them as JSON. Data, model\n"
    "and precision are those of the checkpoint's run; flags, those of a training run, say\n"
    "otherwise: --validation-dataset, --address, --threads, --stages below mpirun ...\n";

}  // namespace

// Keys that concern training are set to their defaults one by one; what is not named here is kept.
Result<TrainConfig> ConfigForEvaluation(const Checkpoint& state,
                                        const std::filesystem::path& checkpoint) {
  TrainConfig config;
  FOREBAY_TRY(ApplyToml(config, state.configuration, checkpoint.string() + ": configuration"));
  LayoutConfig layout;
  // The micro-batch is kept, because it bounds the memory that a step needs.
  layout.micro_batch = config.layout.micro_batch;
  config.layout = layout;
  config.memory = {};
  // Its weights come from the checkpoint, whatever they began with.
  config.model.weights.clear();
  config.model.fresh.clear();
  config.checkpoint = {};
  // What is added up in another order differs in the last bits of a loss, which does no harm here.
  config.checkpoint.force_identity = true;
  config.run.metrics_file.clear();
  config.run.metrics_dir.clear();
  config.run.trace_file.clear();
  config.run.summary_json.clear();
  return config;
}

Result<EvaluateRequest> ParseEvaluateCommand(int argc, const char* const* argv) {
  EvaluateRequest request;
  const std::string_view word = argc > 2 ? argv[2] : "";
  if (word == "-h" || word == "--help") {
    request.text = kEvaluateUsage;
    return request;
  }
  if (word.empty() || word.starts_with("-")) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("evaluate: the first word is a checkpoint\n{}", kEvaluateUsage));
  }
  // The checkpoint is needed now, before the ranks start: its configuration is the base of the
  // flags.
  FOREBAY_ASSIGN(request.checkpoint, WithoutExceptions(word, [&] {
                   return FindCheckpoint(word, request.passed_over);
                 }));
  // The manifest only: tensors are read by the ranks, each its own.
  FOREBAY_ASSIGN(const Manifest manifest, ReadManifest(request.checkpoint));
  FOREBAY_ASSIGN(TrainConfig config, ConfigForEvaluation(manifest.state, request.checkpoint));
  std::vector<const char*> flags = {argv[0]};
  // After "evaluate" and the checkpoint come the flags of a training run.
  flags.insert(flags.end(), argv + 3, argv + argc);
  FOREBAY_ASSIGN(CommandLine line, ParseCommandLine(static_cast<int>(flags.size()), flags.data(),
                                                    std::move(config)));
  request.config = std::move(line.config);
  request.text = std::move(line.text);
  return request;
}

// The same steps as an evaluation during training, without a loop around them.
Result<CheckpointEvaluation> EvaluateCheckpoint(const std::filesystem::path& checkpoint,
                                                const RunParts& parts) {
  const auto load = [&]() -> Result<std::uint64_t> {
    FOREBAY_ASSIGN(const CheckpointReader reader, CheckpointReader::Open(checkpoint));
    FOREBAY_TRY(parts.engine.Load(reader));
    return reader.state().global_step;
  };
  // Ranks read different tensors, and any of them may fail: all must learn of that, because the
  // next calls are collective.
  const Result<std::uint64_t> step = WithoutExceptions(checkpoint.string(), load);
  FOREBAY_TRY(AgreeOn(step.has_value() ? Status() : Status(step.error()), parts.communicator));
  CheckpointEvaluation done{.checkpoint = checkpoint.string(),
                            .global_step = *step,
                            .metric = parts.engine.metric(),
                            .figures = {}};
  LayoutFeeds feeds(parts.feeds, parts.communicator);
  FOREBAY_TRY(feeds.Open({.layout = parts.engine.layout(), .from = {}, .evaluations = 1}));
  const std::uint64_t began_ns = parts.now_ns();
  // Sums are formed on every rank alike, and only rank 0 prints them.
  EvaluationSums sums;
  for (std::uint64_t at = 0; at < feeds.validation().steps; ++at) {
    FOREBAY_ASSIGN(const std::unique_ptr<FeedBatch> batch, feeds.NextValidation(at));
    FOREBAY_ASSIGN(const BatchOutcome outcome, parts.engine.EvaluateStep(*batch));
    sums.Add(outcome);
  }
  FOREBAY_ASSIGN(done.figures, sums.Figures(feeds.validation().samples));
  done.figures.seconds = static_cast<double>(parts.now_ns() - began_ns) * 1e-9;
  FOREBAY_TRY(feeds.Finish());
  return done;
}

std::string ToText(const CheckpointEvaluation& evaluation) {
  const EvaluationFigures& figures = evaluation.figures;
  return fmt::format("{}, step {}: test {} {:.4f}  loss {:.4f}  {} samples in {:.1f} s",
                     evaluation.checkpoint, evaluation.global_step, evaluation.metric.name,
                     figures.score, figures.loss, figures.samples, figures.seconds);
}

std::string ToJsonText(const CheckpointEvaluation& evaluation) {
  const EvaluationFigures& figures = evaluation.figures;
  return nlohmann::json({{"schema", "forebay-evaluation-1"},
                         {"checkpoint", evaluation.checkpoint},
                         {"global_step", evaluation.global_step},
                         {"metric", evaluation.metric.name},
                         {"score", figures.score},
                         {"loss", figures.loss},
                         {"samples", figures.samples},
                         {"seconds", figures.seconds}})
             .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace forebay::train
