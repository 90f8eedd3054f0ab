// The command `forebay-train evaluate`: what a checkpoint's weights are worth on a validation set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "proto/contract/result.h"
#include "trainer/core/config/train_config.h"
#include "trainer/core/loop/metric.h"
#include "trainer/core/loop/run_training.h"
#include "trainer/core/metrics/training_report.h"

namespace forebay::train {

struct EvaluateRequest {
  TrainConfig config;  // the checkpoint's, for an evaluation, and what the flags say
  std::filesystem::path checkpoint;
  std::string text;  // not empty: print this and exit
  std::vector<std::string> passed_over;  // newer checkpoints that are damaged, for people
};

// The configuration of a run for an evaluation of its checkpoint: data, model and precision are the
// run's; layout, memory, and where a run writes to are left out, because nothing is trained.
// ApplyToml's errors.
Result<TrainConfig> ConfigForEvaluation(const Checkpoint& state,
                                        const std::filesystem::path& checkpoint);

// `forebay-train evaluate CHECKPOINT [FLAG...]`: argv[1] is "evaluate", flags are those of a
// training run. CHECKPOINT is what --resume takes; every byte of it is checked. kInvalidArgument
// for wrong words, else the errors of FindCheckpoint.
Result<EvaluateRequest> ParseEvaluateCommand(int argc, const char* const* argv);

struct CheckpointEvaluation {
  std::string checkpoint;
  std::uint64_t global_step = 0;
  Metric metric;
  EvaluationFigures figures;
};

// Loads weights and running statistics, and goes through the validation set once. The layout is
// the engine's. Collective. Errors are those of Engine::Load and of the feed.
Result<CheckpointEvaluation> EvaluateCheckpoint(const std::filesystem::path& checkpoint,
                                                const RunParts& parts);

// "step 500: test accuracy 0.9123  loss 0.2834  10000 samples in 1.2 s".
std::string ToText(const CheckpointEvaluation& evaluation);
// As a JSON object (schema forebay-evaluation-1).
std::string ToJsonText(const CheckpointEvaluation& evaluation);

}  // namespace forebay::train
