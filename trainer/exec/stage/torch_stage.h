// TorchStage: one pipeline stage with LibTorch, as the plan runner drives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trainer/exec/measure/measure_model.h"
#include "trainer/exec/model.h"
#include "trainer/exec/stage/gradient_norm.h"
#include "trainer/exec/stage/held_part.h"
#include "trainer/exec/stage/stage_compute.h"
#include "trainer/exec/stage/stage_gradient.h"
#include "trainer/exec/stage/stage_messages.h"
#include "trainer/exec/stage/stage_statistics.h"
#include "trainer/exec/stage/stage_step.h"
#include "trainer/exec/stage/stage_swap.h"
#include "trainer/schedule/run/stage_worker.h"

namespace forebay::train {

// Hands each instruction of the plan to the object that carries it out: StageCompute,
// StageMessages, StageSwap, StageStatistics, StageGradient or GradientNorm. Exceptions of LibTorch
// end here and become errors. Plans that swap need InstallSavedTensorHooks. Not thread-safe.
class TorchStage final : public StageWorker {
 public:
  // `parts` are this rank's stage, in order; `outputs` are those of all parts of the model. Model,
  // plan, outputs and parts outlive the stage.
  TorchStage(const Model& model, const StepPlan& plan, const StageSplit& split,
             std::uint32_t rank, const std::vector<PartOutput>& outputs,
             std::vector<HeldPart*> parts, const StageOptions& options);

  void BeginStep(const StageStep& step);
  // Call it when the step has run. Waits for a GPU.
  Result<StageOutcome> Outcome();
  SwapFigures swap_figures() const { return swap_ ? swap_->figures() : SwapFigures(); }

  Status Feed(const Buffer& buffer) override;
  Status Forward(std::uint32_t micro_batch, std::uint32_t module) override;
  Status Backward(std::uint32_t micro_batch, std::uint32_t module) override;
  Status Update() override;
  Result<std::span<const std::byte>> Outgoing(const Buffer& buffer) override;
  Result<std::span<std::byte>> Incoming(const Buffer& buffer) override;
  void Release(const Buffer& buffer) override;
  Result<std::unique_ptr<PendingCollective>> MakeCollective(std::uint32_t id,
                                                            const CollectiveTag& tag) override;
  Status EndCollective(std::uint32_t id) override;
  Status Move(Op op, const Buffer& buffer) override;
  Status AwaitBack(const Buffer& buffer) override;

 private:
  const StepPlan& plan_;
  const std::uint32_t rank_;
  const StageOptions options_;
  const StageParts parts_;
  StageStep step_;
  bool skipped_ = false;  // the update of this step was left out
  StageMessages messages_;
  StageStatistics statistics_;
  StageGradient gradient_;
  GradientNorm norm_;
  std::optional<StageSwap> swap_;  // where the plan swaps on this rank
  StageCompute compute_;
};

}  // namespace forebay::train
