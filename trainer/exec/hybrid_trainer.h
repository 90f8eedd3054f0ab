// HybridTrainer: trains a model on replicas x stages, and changes the layout between steps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/core/metrics/step_account.h"
#include "trainer/core/metrics/step_trace.h"
#include "trainer/exec/measure/measure_model.h"
#include "trainer/exec/model.h"
#include "trainer/exec/stage/held_part.h"
#include "trainer/exec/stage/torch_stage.h"
#include "trainer/schedule/memory/memory_plan.h"
#include "trainer/schedule/plan_builder.h"
#include "trainer/schedule/plan_simulator.h"
#include "trainer/schedule/run/plan_runner.h"

namespace forebay::train {

struct HybridOptions {
  StageOptions stage;
  std::uint32_t micro_batches = 1;  // canonical ones of a step
  std::uint64_t bucket_bytes = 4U << 20;
  std::uint64_t timeout_ns = Communicator::kTimeoutNs;
  // What becomes of saved values under the plan of a layout; the same on every rank. Without it
  // all are kept.
  std::function<Result<StepKeeping>(const StepPlan& plan)> keeping = {};
  SimulationCosts costs = {};  // for what is predicted of a step
  TraceOptions trace = {};
};

// How the model is laid out over the ranks.
struct HybridLayout {
  Layout layout;
  const PipelineSchedule* schedule = &PipelineSchedules().front();
  StageSplit split;
  // Where micro-batches follow the layout: how many a step has, and the measure of one, which
  // outlives the trainer. 0 and null: the trainer's, as for canonical ones.
  std::uint32_t micro_batches = 0;
  const ModelMeasure* measure = nullptr;
};

// Builds the plan of a training step, or of an evaluation, under `layout`, in which everything that
// is saved is kept. Errors are those of CutIntoStages and BuildPlan.
Result<StepPlan> BuildLayoutPlan(const HybridLayout& layout, const ModelMeasure& measure,
                                 const HybridOptions& options, bool trains,
                                 std::uint32_t micro_batches);

// One rank's end of the training. Every call but the getters is collective. Not thread-safe. The
// same seed, options and micro-batches give bit-identical weights under every layout and any
// sequence of layouts, on one kind of machine with one number of threads.
class HybridTrainer {
 public:
  // Errors are those of CheckModel, BuildPlan and CheckPlan. `model`, `measure` and `communicator`
  // outlive it; the layout's ranks are the communicator's.
  static Result<std::unique_ptr<HybridTrainer>> Make(const Model& model,
                                                     const ModelMeasure& measure,
                                                     Communicator& communicator,
                                                     const HybridOptions& options,
                                                     const HybridLayout& layout);

  // Makes one training step. `samples` has the size of each micro-batch; `source` is asked for the
  // micro-batches of this rank. The outcome is over all ranks, and the same on each.
  Result<StageOutcome> TrainStep(double learning_rate, const std::vector<std::uint32_t>& samples,
                                 MicroBatchSource& source);
  // A forward pass with running statistics. The number of micro-batches is a multiple of the
  // replicas.
  Result<StageOutcome> Evaluate(const std::vector<std::uint32_t>& samples,
                                MicroBatchSource& source);

  // Returns whether Switch would accept the layout. Not collective.
  Status Check(const HybridLayout& layout) const;

  // Moves weights, optimiser state and running statistics to the ranks that `layout` assigns them
  // to, and continues with it. An illegal layout changes nothing.
  Status Switch(const HybridLayout& layout);

  // The parts on this rank, in the model's order. Not collective.
  std::vector<HeldPart*> HeldParts() const;
  // Continues after so many steps, so that everything that is keyed by the step continues, too. Not
  // collective.
  void ResumeAt(std::uint64_t steps) { steps_ = steps; }

  // XXH3 over the digests of all parts, in their order: the same on every rank.
  Result<std::uint64_t> Digest();

  const HybridLayout& layout() const { return layout_; }
  std::uint64_t steps() const { return steps_; }
  const StepPlan& plan() const { return plan_; }  // of a training step
  const Simulation& predicted() const { return predicted_; }  // of that plan
  const RankReport& last_report() const { return last_report_; }
  // Of the last training step: all but the wait for data and the conversion of the batch.
  const StepAccount& last_account() const { return last_account_; }
  // Of the steps of the present layout, on this rank.
  StepForecast forecast() const;
  // Writes the trace where the run ends before its last step. An error, too, where it could not be
  // written before. Collective.
  Status FinishTrace();
  // Of the steps since the layout was last changed.
  SwapFigures swap_figures() const { return stage_->swap_figures(); }
  std::uint64_t moved_bytes() const { return moved_bytes_; }  // received here, in all switches

 private:
  HybridTrainer(const Model& model, const ModelMeasure& measure, Communicator& communicator,
                const HybridOptions& options)
      : model_(model),
        measure_(measure),
        communicator_(communicator),
        options_(options),
        trace_(options.trace) {}

  // Evaluations of so many micro-batches under the current layout.
  struct Evaluation {
    StepPlan plan;
    std::unique_ptr<TorchStage> stage;
  };

  Result<StepPlan> PlanFor(const HybridLayout& layout, bool trains,
                           std::uint32_t micro_batches) const;
  Result<Evaluation*> EvaluationOf(std::uint32_t micro_batches);
  const ModelMeasure& MeasureOf(const HybridLayout& layout) const {
    return layout.measure == nullptr ? measure_ : *layout.measure;
  }
  std::uint32_t MicroBatchesOf(const HybridLayout& layout) const {
    return layout.micro_batches == 0 ? options_.micro_batches : layout.micro_batches;
  }
  bool Holds(const HybridLayout& layout, std::uint32_t rank, std::uint32_t part) const;
  Status TakeParts(const HybridLayout& layout);
  Status MovePart(std::uint32_t part, const HybridLayout& from, const HybridLayout& to);
  Status StandOn(const HybridLayout& layout, StepPlan plan);
  Result<StageOutcome> Run(const StepPlan& plan, TorchStage& stage, const StageStep& step);
  Status ShareOutcome(StageOutcome& outcome, std::uint32_t micro_batches);

  const Model& model_;
  const ModelMeasure& measure_;
  Communicator& communicator_;
  HybridOptions options_;
  HybridLayout layout_;
  StepPlan plan_;
  std::map<std::uint32_t, std::unique_ptr<HeldPart>> parts_;  // by index in the model
  std::unique_ptr<TorchStage> stage_;
  std::map<std::uint32_t, Evaluation> evaluations_;  // by micro-batches
  std::uint64_t steps_ = 0;
  std::uint64_t runs_ = 0;  // steps and evaluations: no two have messages of one name
  RankReport last_report_;
  StepAccount last_account_;
  Simulation predicted_;  // of plan_
  StepTrace trace_;
  std::uint64_t moved_bytes_ = 0;
};

}  // namespace forebay::train
