// StageSwap: moves what a pipeline stage keeps for its backward passes to the host and back.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "proto/contract/result.h"
#include "trainer/exec/stage/stage_compute.h"
#include "trainer/exec/swap/storage_swap.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// Knows which tensors of a micro-batch's state stand for a buffer of the plan, and has StorageSwap
// move their memory. The buffers are kSaved and kValue. Not thread-safe. Exceptions of LibTorch
// pass through.
class StageSwap {
 public:
  // `model` names who takes whose outputs.
  StageSwap(const Model& model, const SwapOptions& options, const torch::Device& device);

  // Forgets transfers of a step that was given up.
  void BeginStep() { swap_.Forget(); }

  // Begins to move a buffer out, ends that, begins to bring it back, and waits until it is back.
  // Out is kResourceExhausted where the host has no room.
  Status Out(const Buffer& buffer, const MicroBatchState& state);
  void EndOut(const Buffer& buffer);
  void In(const Buffer& buffer);
  void AwaitBack(const Buffer& buffer);

  SwapFigures figures() const { return swap_.figures(); }

 private:
  std::vector<const torch::Tensor*> HoldersOf(const Buffer& buffer,
                                              const MicroBatchState& state) const;
  std::vector<const torch::Tensor*> HoldersOfValue(std::uint32_t part,
                                                   const MicroBatchState& state) const;

  const std::vector<std::vector<std::uint32_t>> sources_;  // by part of the model: SourcesOf
  StorageSwap swap_;
};

}  // namespace forebay::train
