// RunFixture: one training run over MemorySource with a clock and a stop signal in the test's
// hands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/core/loop/run_training.h"
#include "trainer/testing/memory_feed.h"
#include "trainer/testing/sample_set.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train::testing {

struct RunFixture {
  TempFolder folder;
  SampleSet training = MakeBars(328, 1);    // ten steps of 32 and a tail of 8 that is dropped
  SampleSet validation = MakeBars(70, 2);   // 32 + 32 + 6
  TrainConfig config;
  MemoryFeedProbe probe;
  Communicator communicator = Communicator::Alone();
  std::vector<std::string> printed;
  std::uint64_t clock_ns = 0;
  std::uint64_t run_number = 0x0123'4567'89AB'CDEF;  // of a run that starts afresh
  // The run stops after this many steps, as if a signal had come.
  std::uint64_t stop_after_steps = UINT64_MAX;
  std::uint64_t stop_after_validated = UINT64_MAX;  // samples
  std::function<void(std::uint64_t steps)> on_step;  // of this run, before a checkpoint is due

  RunFixture() {
    config.train.epochs = 3;
    config.train.global_batch = 32;
    config.train.warmup_steps = 5;
    config.evaluation.evaluation_batch = 32;
    config.checkpoint.checkpoint_dir = folder.path() / "checkpoints";
    config.run.metrics_file = folder.path() / "metrics.jsonl";
  }

  Result<TrainingReport> Run(Engine& engine) {
    MemorySource source({.global_batch = static_cast<std::uint32_t>(config.train.global_batch),
                         .validation_batch = 32,
                         .seed = static_cast<std::uint64_t>(config.train.seed)},
                        training, validation, probe);
    const std::uint64_t trained = probe.trained.size();
    const auto stops = [this, trained] {
      const std::uint64_t steps = (probe.trained.size() - trained) /
                                  static_cast<std::uint64_t>(config.train.global_batch);
      if (on_step) on_step(steps);
      return steps >= stop_after_steps || probe.validated.size() >= stop_after_validated;
    };
    return RunTraining(config,
                       {.engine = engine,
                        .communicator = communicator,
                        .feeds = source,
                        .stop_requested = stops,
                        .now_ns = [this] { return clock_ns += 1000; },
                        .print = [this](const std::string& line) { printed.push_back(line); },
                        .draw_run = [this] { return run_number; }});
  }

  // Loss by global step, over all runs that wrote the metrics file; a step that was trained
  // twice keeps its last loss.
  std::map<std::uint64_t, double> LossCurve() const {
    std::map<std::uint64_t, double> curve;
    std::ifstream file(config.run.metrics_file);
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      if (record["event"] == "step") {
        curve[record["global_step"].get<std::uint64_t>()] = record["loss"].get<double>();
      }
    }
    return curve;
  }
};

}  // namespace forebay::train::testing
