// TorchStage: the arithmetic of one pipeline stage with LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/exec/held_part.h"
#include "trainer/exec/layers.h"
#include "trainer/exec/model.h"
#include "trainer/exec/stage_gradient.h"
#include "trainer/exec/storage_swap.h"
#include "trainer/numerics/gradient_sum.h"
#include "trainer/numerics/precision.h"
#include "trainer/schedule/stage_worker.h"

namespace forebay::train {

// Where a stage gets its micro-batches from. Only the first stage asks for inputs, only the last
// for targets.
class MicroBatchSource {
 public:
  virtual ~MicroBatchSource() = default;
  virtual Result<torch::Tensor> Input(std::uint32_t micro_batch) = 0;   // {samples, ...} float
  virtual Result<torch::Tensor> Target(std::uint32_t micro_batch) = 0;
  // Where the step lies in the data, the same on every rank: messages carry a hash of it.
  virtual std::array<std::uint64_t, 3> Place() const { return {}; }
};

struct StageOptions {
  std::uint64_t seed = 1;
  OptimiserOptions optimiser;
  double weight_decay = 0;
  double clip_norm = 0;  // of the gradient over the whole model; 0: none
  torch::Device device = torch::kCPU;      // where this rank computes; messages are the host's
  Precision precision = Precision::kFp32;  // of forward and backward passes
  bool first_replica_statistics = false;  // running statistics follow its micro-batches only
  SumOrder sum_order = SumOrder::kTree;  // of gradients over a replica's micro-batches
  UpdateArithmetic arithmetic = UpdateArithmetic::kPlain;
  // Where the gradient is not finite no stage makes the update, and training may go on. Otherwise
  // that stage makes none: its weights stay finite, and the run ends.
  bool skips_not_finite = false;
  SwapOptions swap;      // for plans that swap
};

// What is computed in the current step.
struct StageStep {
  std::uint64_t step = 0;  // since the start of the run
  double learning_rate = 0;
  std::vector<std::uint32_t> samples;  // by micro-batch of the step
  MicroBatchSource* source = nullptr;
};

// Sums over the micro-batches that this rank computed; at the last stage only.
struct StageOutcome {
  double loss_sum = 0;  // over samples
  Score score;          // of evaluations
  std::vector<std::uint32_t> not_finite = {};  // micro-batches with such a loss
  bool skipped = false;  // a gradient is not finite; once shared, on every rank alike
};

// What a model's part hands on.
struct PartOutput {
  std::vector<std::int64_t> shape;  // of one sample
  torch::ScalarType type = torch::kFloat32;
};

// Not thread-safe. Every part runs in a graph of its own, so that gradients of tensors with
// several users are summed in one order, last user first, whatever the cut. Exceptions of
// LibTorch come out as kInternal. Plans that swap need InstallSavedTensorHooks.
class TorchStage final : public StageWorker {
 public:
  // `parts` are this rank's stage, in order; `outputs` are of all parts of the model. Plan, model
  // and parts outlive it.
  TorchStage(const Model& model, const StepPlan& plan, const StageSplit& split,
             std::uint32_t rank, const std::vector<PartOutput>& outputs,
             std::vector<HeldPart*> parts, const StageOptions& options);

  void BeginStep(const StageStep& step);
  // When the step has run: a GPU is waited for.
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
  // A part's graph between forward and backward.
  struct Graph {
    std::vector<torch::Tensor> leaves;  // its inputs
    torch::Tensor root;                 // its output; the loss, at the end of the last stage
    SavedTensors saved;                 // by autograd; where the plan swaps
  };
  struct Work {
    torch::Tensor input;
    torch::Tensor target;
    std::map<std::uint32_t, torch::Tensor> values;  // by part: made here
    std::map<std::uint32_t, Graph> graphs;          // by part
    std::map<std::uint32_t, torch::Tensor> received;  // by edge, as the two below
    std::map<std::uint32_t, torch::Tensor> arrived;
    std::map<std::uint32_t, torch::Tensor> leaving;
    std::map<std::uint32_t, torch::Tensor> sums;  // gradients of outputs, by part
    // What is sent, in the host's memory: by part, by edge.
    std::map<std::uint32_t, torch::Tensor> sent_values;
    std::map<std::uint32_t, torch::Tensor> sent_gradients;
  };

  std::uint32_t begin() const { return begin_; }
  std::uint32_t end() const { return begin_ + static_cast<std::uint32_t>(parts_.size()); }
  bool last() const { return end() == model_.parts.size(); }
  const StageEdge& EdgeOf(std::uint32_t edge) const { return plan_.stages.edges[edge]; }
  double StepSamples() const;
  Pass PassOf(std::uint32_t micro_batch, std::uint32_t part);
  torch::Tensor ValueOf(Work& work, std::uint32_t part) const;
  // Uninitialised memory of the host for what a part hands on.
  torch::Tensor RoomFor(std::uint32_t micro_batch, std::uint32_t part) const;
  // Computes a part and leaves its graph. `pass` says where statistics go.
  void ForwardPart(Work& work, std::uint32_t part, Pass pass, bool again);
  void SumArrived(Work& work);
  void BackwardPart(Work& work, std::uint32_t part);
  void EvaluateLoss(Work& work, Graph& graph, std::uint32_t micro_batch, bool again);
  void Recompute(std::uint32_t micro_batch, std::uint32_t part);
  std::vector<const torch::Tensor*> TensorsOf(const Work& work, const Buffer& buffer) const;
  void ApplyStatistics();
  double SquaredGradientNorm();

  const Model& model_;
  const StepPlan& plan_;
  std::uint32_t rank_;
  std::uint32_t begin_ = 0;
  const std::vector<PartOutput>& outputs_;
  std::vector<HeldPart*> parts_;
  std::vector<std::vector<std::uint32_t>> sources_;  // by part of the model: whose outputs it takes
  StageOptions options_;
  StageStep step_;
  StageOutcome outcome_;  // but for the losses
  std::vector<std::pair<std::uint32_t, torch::Tensor>> losses_;  // by micro-batch, as they came
  std::map<std::uint32_t, Work> work_;  // by micro-batch
  std::unique_ptr<StorageSwap> swap_;   // where the plan swaps on this rank
  Statistics statistics_;
  std::vector<float> batch_statistics_;  // of all micro-batches of the step
  std::vector<float> own_statistics_;    // of this replica's, while they are gathered
  StageGradient gradient_;
  std::vector<double> own_norms_;
  std::vector<double> all_norms_;
};

}  // namespace forebay::train
