// What a pipeline stage is told and what it answers: options for the whole run, the step that is
// computed, where its micro-batches come from, and the sums over them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "proto/contract/result.h"
#include "trainer/exec/model.h"
#include "trainer/exec/stage/stage_gradient.h"
#include "trainer/exec/swap/storage_swap.h"
#include "trainer/numerics/gradient_sum.h"
#include "trainer/numerics/optimiser.h"
#include "trainer/numerics/precision.h"

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
  double clip_norm = 0;  // bound of the norm of the whole model's gradient; 0: no bound
  torch::Device device = torch::kCPU;      // where this rank computes; messages are in host memory
  Precision precision = Precision::kFp32;  // of forward and backward passes
  bool first_replica_statistics = false;  // running statistics follow its micro-batches only
  SumOrder sum_order = SumOrder::kTree;  // of gradients over a replica's micro-batches
  UpdateArithmetic arithmetic = UpdateArithmetic::kPlain;
  // Whether all stages leave out an update whose gradient is not finite, so that training can go
  // on. Otherwise only the stage that has such a gradient leaves it out: its weights stay finite,
  // and the run ends.
  bool skips_not_finite = false;
  SwapOptions swap;  // for plans that swap
};

struct StageStep {
  std::uint64_t step = 0;  // since the start of the run
  double learning_rate = 0;
  std::vector<std::uint32_t> samples;  // by micro-batch of the step
  MicroBatchSource* source = nullptr;

  std::uint64_t SampleCount() const {
    std::uint64_t count = 0;
    for (const std::uint32_t of_micro_batch : samples) count += of_micro_batch;
    return count;
  }
};

// Sums over the micro-batches that this rank computed. Losses and scores are at the last stage.
struct StageOutcome {
  double loss_sum = 0;  // over samples
  Score score;          // of evaluations
  std::vector<std::uint32_t> not_finite = {};  // micro-batches with such a loss
  bool skipped = false;  // a gradient is not finite; once shared, on every rank alike
};

}  // namespace forebay::train
