// LayoutPlan: the layouts that a run goes through, from the configuration's [layout] section.
// Whether a model can be cut so is the engine's to say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/config/train_config.h"
#include "trainer/schedule/plan_builder.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// Where a run stands: the next step.
struct RunPosition {
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;         // within the epoch
  std::uint64_t global_step = 0;  // since the start of the run
};

// From the step on before which so many steps or epochs of the run are done.
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
  // Canonical ones are only those of pipelines; a replica without stages takes its share at once.
  bool follows_layout = false;

  // The layout of the step at `position`: of the last switch that lies behind it.
  Layout At(const RunPosition& position) const;
  // All of them, each once, `first` in front.
  std::vector<Layout> Layouts() const;

  // Samples of a micro-batch, and micro-batches of a step, over all replicas.
  std::uint32_t MicroBatchOf(const Layout& layout) const;
  std::uint32_t MicroBatchesOf(const Layout& layout) const {
    return global_batch / MicroBatchOf(layout);
  }
  // "1 x 2 of 8, 2 x 1 of 32 from epoch 1": layouts with samples of their micro-batches.
  std::string Text() const;
};

// The keys that make the weights depend on the layout, which by default nothing does: empty.
std::string LayoutDependence(const TrainConfig& config);
// Of these the keys that change what is computed, not just the order of sums: a checkpoint belongs
// to its plan of layouts then.
std::string PlanDependence(const TrainConfig& config);

// "2 x 1": replicas x stages.
std::string ToString(const Layout& layout);

// kInvalidArgument names the key, its value and what is allowed with `ranks` ranks.
Result<LayoutPlan> MakeLayoutPlan(const TrainConfig& config, std::uint32_t ranks);

}  // namespace forebay::train
