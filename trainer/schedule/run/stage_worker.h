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

// Not thread-safe: one thread calls it. Buffers are those of the plan, on this rank. A checked plan
// promises that every buffer that is asked for exists, and that each is released once.
class StageWorker {
 public:
  virtual ~StageWorker() = default;

  // Takes the input or the target of a micro-batch from the feed.
  virtual Status Feed(const Buffer& buffer) = 0;
  // `module` is a module of the model, or kAllModules for all modules of the stage. The modules of
  // one micro-batch come in order, one by one, and no other micro-batch goes backward in between.
  virtual Status Forward(std::uint32_t micro_batch, std::uint32_t module) = 0;
  virtual Status Backward(std::uint32_t micro_batch, std::uint32_t module) = 0;
  virtual Status Update() = 0;

  // Returns the bytes of a message that leaves: an output, or the gradient of what was received.
  // They stay where they are until the buffer is released.
  virtual Result<std::span<const std::byte>> Outgoing(const Buffer& buffer) = 0;
  // Returns memory for a message that arrives. Its size is that of this micro-batch, which may be
  // smaller than the plan's figure.
  virtual Result<std::span<std::byte>> Incoming(const Buffer& buffer) = 0;
  virtual void Release(const Buffer& buffer) = 0;

  // Makes a collective over memory that stays where it is until EndCollective.
  virtual Result<std::unique_ptr<PendingCollective>> MakeCollective(std::uint32_t id,
                                                                    const CollectiveTag& tag) = 0;
  virtual Status EndCollective(std::uint32_t id) = 0;

  // Executes kSwapOut, kSwapEnd, kSwapIn, kDrop or kRecompute of a saved buffer; swaps also of a
  // value. Transfers may go on after the call, except for kSwapEnd, which waits.
  virtual Status Move(Op op, const Buffer& buffer) = 0;
  // Waits until a buffer that kSwapIn asked for is back. The runner calls it once, before the first
  // instruction that needs the buffer.
  virtual Status AwaitBack(const Buffer& buffer) = 0;
};

}  // namespace forebay::train
