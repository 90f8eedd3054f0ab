// RunTraining: one run, from its configuration to its report. The caller chooses the parts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/config/train_config.h"
#include "trainer/core/feed/feed.h"
#include "trainer/core/loop/engine.h"
#include "trainer/core/loop/training_loop.h"
#include "trainer/core/metrics/training_report.h"

namespace forebay::train {

// A number that names a run, from the operating system.
std::uint64_t DrawRun();

struct RunParts {
  Engine& engine;
  Communicator& communicator;
  FeedSource& feeds;
  std::function<bool()> stop_requested;
  std::function<std::uint64_t()> now_ns;
  std::function<void(const std::string&)> print;
  double peak_gflops = 0;  // of this rank; 0: unknown
  std::function<std::uint64_t()> draw_run = DrawRun;
};

// Checks that the configuration fits the number of ranks. Errors are those of MakeLayoutPlan:
// kInvalidArgument, naming key, value and what is allowed.
Status CheckRanks(const TrainConfig& config, std::uint32_t ranks);

// The loop's options. Errors as CheckRanks, and for train.decay_epochs and keys that contradict
// each other.
Result<LoopOptions> LoopOptionsOf(const TrainConfig& config, std::uint32_t ranks);

// Finds the checkpoint to resume, opens the feeds there, trains. Collective.
Result<TrainingReport> RunTraining(const TrainConfig& config, const RunParts& parts);

}  // namespace forebay::train
