// LayoutPlan: the layouts that a run goes through, from section [layout] of the configuration.
// Whether the model can be cut in this way is for the engine to decide.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/config/train_config.h"
#include "trainer/schedule/plan_builder.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// The position of a run: its next step.
struct RunPosition {
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;         // within the epoch
  std::uint64_t global_step = 0;  // since the start of the run
};

// A change of the layout, before the step at which so many steps or epochs of the run are done.
struct LayoutSwitch {
  bool by_epoch = false;
  std::uint64_t after = 1;
  Layout layout = {};
};

struct LayoutPlan {
  Layout first;
  std::vector<LayoutSwitch> switches;
  const PipelineSchedule* schedule = &PipelineSchedules().front();
  std::vector<std::uint32_t> split;  // first part of each stage; empty: the balanced cut
  std::uint32_t global_batch = 1;    // samples of a step, over all replicas
  std::uint32_t micro_batch = 1;     // samples of a canonical micro-batch
  // True if micro-batches are canonical only in pipelines; a replica without stages then computes
  // its whole share at once.
  bool follows_layout = false;

  // The layout of the step at `position`: that of the last switch before it.
  Layout At(const RunPosition& position) const;
  // All layouts of the run, each once, with `first` in front.
  std::vector<Layout> Layouts() const;

  // Samples of a micro-batch; micro-batches of a step over all replicas.
  std::uint32_t MicroBatchOf(const Layout& layout) const;
  std::uint32_t MicroBatchesOf(const Layout& layout) const {
    return global_batch / MicroBatchOf(layout);
  }
  // "1 x 2 of 8, 2 x 1 of 32 from epoch 1": the layouts with the samples of their micro-batches.
  std::string Text() const;
};

// The keys that make the weights depend on the layout; empty by default, because nothing does.
std::string LayoutDependence(const TrainConfig& config);
// The keys among them that change what is computed, and not just the order of sums. With such a key
// a checkpoint belongs to its plan of layouts.
std::string PlanDependence(const TrainConfig& config);

// "2 x 1": replicas x stages.
std::string ToString(const Layout& layout);

// kInvalidArgument names the key, its value and what is allowed with `ranks` ranks.
Result<LayoutPlan> MakeLayoutPlan(const TrainConfig& config, std::uint32_t ranks);

}  // namespace forebay::train
