// The command `forebay-train evaluate`: evaluates the weights of a checkpoint on a validation set.
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

// Makes the configuration for evaluating a checkpoint out of that of its run: data, model and
// precision are kept; layout, memory and output files are reset, because nothing is trained. Errors
// are those of ApplyToml.
Result<TrainConfig> ConfigForEvaluation(const Checkpoint& state,
                                        const std::filesystem::path& checkpoint);

// Parses `forebay-train evaluate CHECKPOINT [FLAG...]`; argv[1] is "evaluate", and flags are those
// of a training run. CHECKPOINT is what --resume takes, and every byte of it is checked.
// kInvalidArgument for wrong words, else the errors of FindCheckpoint.
Result<EvaluateRequest> ParseEvaluateCommand(int argc, const char* const* argv);

struct CheckpointEvaluation {
  std::string checkpoint;
  std::uint64_t global_step = 0;
  Metric metric;
  EvaluationFigures figures;
};

// Loads weights and running statistics and evaluates the validation set once, under the engine's
// layout. Collective. Errors are those of Engine::Load and of the feed.
Result<CheckpointEvaluation> EvaluateCheckpoint(const std::filesystem::path& checkpoint,
                                                const RunParts& parts);

// "step 500: test accuracy 0.9123  loss 0.2834  10000 samples in 1.2 s".
std::string ToText(const CheckpointEvaluation& evaluation);
// The same as a JSON object (schema forebay-evaluation-1).
std::string ToJsonText(const CheckpointEvaluation& evaluation);

}  // namespace forebay::train
