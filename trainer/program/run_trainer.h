// RunTrainer: forebay-train as a function. A program calls it with a model of its own and has all
// that forebay-train has: configuration and flags, samples from forebayd, ranks over MPI, pipeline
// stages, checkpoints and --resume, evaluation, metrics and traces, orderly stops, and the commands
// evaluate, export and report.
//
//   Result<std::shared_ptr<const ModelTask>> MakeTask(const TrainConfig&, const SampleFacts&);
//
//   int main(int argc, char** argv) {
//     return RunTrainer(argc, argv, {.make_task = MakeTask, .models = "one: my own\n"});
//   }
//
// trainer/models/example/own_model.cc is a complete program.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "proto/contract/result.h"
#include "trainer/core/config/train_config.h"
#include "trainer/core/feed/feed.h"

namespace forebay::train {

struct ModelTask;

// Makes the model, and says how samples become its tensors. `facts` describe the training set.
// Every rank calls it once and has to come to the same task. May throw; an error ends the run with
// its text.
using TaskFactory = std::function<Result<std::shared_ptr<const ModelTask>>(
    const TrainConfig& config, const SampleFacts& facts)>;

struct TrainerProgram {
  TaskFactory make_task;
  TrainConfig defaults = {};  // of all keys, below the configuration file and flags
  std::string models = {};    // what --list-models prints
};

// Runs the command that argv names, and returns the exit code of the process. Call it from main
// before other threads exist: it may start the program again with another environment, and sets
// signal handlers and LibTorch's threads.
int RunTrainer(int argc, char** argv, const TrainerProgram& program);

}  // namespace forebay::train
