// StageWorker: the arithmetic of one rank's stage, as the plan runner sees it. trainer/exec
// implements it with LibTorch; tests bring one made of integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "proto/contract/result.h"
#include "trainer/comm/collectives.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// Not thread-safe: one thread calls it. Buffers are the plan's, of this rank; what is asked for
// is there, and each is released once, as a checked plan promises.
class StageWorker {
 public:
  virtual ~StageWorker() = default;

  // Takes the input or the target of a micro-batch from the feed.
  virtual Status Feed(const Buffer& buffer) = 0;
  // `module`: of the model; kAllModules: all that the stage has. Those of one micro-batch come in
  // order, one by one, and no other micro-batch goes backward in between.
  virtual Status Forward(std::uint32_t micro_batch, std::uint32_t module) = 0;
  virtual Status Backward(std::uint32_t micro_batch, std::uint32_t module) = 0;
  virtual Status Update() = 0;

  // The bytes of a message that leaves: an output or the gradient of what was received. They stay
  // where they are until the buffer is released.
  virtual Result<std::span<const std::byte>> Outgoing(const Buffer& buffer) = 0;
  // Room for a message that arrives. Its size is this micro-batch's: a short one is smaller than
  // the plan's figure.
  virtual Result<std::span<std::byte>> Incoming(const Buffer& buffer) = 0;
  virtual void Release(const Buffer& buffer) = 0;

  // A collective over memory that stays where it is until EndCollective.
  virtual Result<std::unique_ptr<PendingCollective>> MakeCollective(std::uint32_t id,
                                                                    const CollectiveTag& tag) = 0;
  virtual Status EndCollective(std::uint32_t id) = 0;

  // kSwapOut, kSwapEnd, kSwapIn, kDrop or kRecompute of a saved buffer; swaps also of a value.
  // Transfers may go on after the call, but for kSwapEnd, which waits.
  virtual Status Move(Op op, const Buffer& buffer) = 0;
  // Waits until what kSwapIn has asked for is back. The runner calls it once, before the first
  // instruction that needs the buffer.
  virtual Status AwaitBack(const Buffer& buffer) = 0;
};

}  // namespace forebay::train
