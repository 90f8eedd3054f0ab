// What autograd saves for backward, seen through an engine of our own: LibTorch asks the engine
// for hooks whenever it saves a tensor. All that depends on LibTorch's version is in the .cc.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <torch/types.h>

#include "proto/contract/result.h"

namespace forebay::train {

// A tensor that a graph has saved. `tensor` shares its storage and its version counter.
struct SavedTensor {
  torch::Tensor tensor;
  std::uint32_t version = 0;  // as it was saved
};
// The saved tensors of one graph. The graph shares them, because its backward pass reads them.
using SavedTensors = std::vector<std::shared_ptr<SavedTensor>>;

// Puts the engine in place, once for the process; before the first recording, and while no thread
// computes gradients. Then tries on a small graph whether tensors are recorded, gradients are
// right and a tensor that is modified after it was saved is refused: kFailedPrecondition, naming
// what is not so, where this LibTorch cannot do that. Thread-safe; later calls cost nothing.
Status InstallSavedTensorHooks();

// While it lives, whatever autograd saves on this thread is noted in `saved`, which outlives it.
// Recordings do not nest. A backward pass over what was recorded throws where a tensor has been
// modified in place since.
class SavedTensorRecording {
 public:
  explicit SavedTensorRecording(SavedTensors& saved);
  ~SavedTensorRecording();
  SavedTensorRecording(const SavedTensorRecording&) = delete;
  SavedTensorRecording& operator=(const SavedTensorRecording&) = delete;
};

// Bytes of the storages that `saved` holds and none of `others` does, each counted once.
std::uint64_t SavedBytes(const SavedTensors& saved, std::span<const torch::Tensor> others);

}  // namespace forebay::train
