// ExtentAnswers: answers requests of other nodes for extents, on threads of its own, because an
// extent is read from SSD and copied. It has memory for a few images; further ones wait.
#pragma once

#include <memory>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/executor.h"
#include "server/io/io_backend.h"
#include "server/peer/peer_requests.h"
#include "server/peer/reply_stream.h"
#include "server/peer/slice_pins.h"
#include "server/stage/dataset.h"
#include "server/stage/local_extents.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::peer {

// Thread-safe. Owned by shared pointers, because the stager may call back after the server is gone.
class ExtentAnswers : public std::enable_shared_from_this<ExtentAnswers> {
 public:
  // `extents` and `backend` are borrowed until Stop.
  static Result<std::shared_ptr<ExtentAnswers>> Create(stage::LocalExtents& extents,
                                                       io::IoBackend& backend,
                                                       std::shared_ptr<SlicePins> pins);

  // Sends the extent, or ends the stream with an error. Returns at once.
  void Answer(stage::Dataset& dataset, const ExtentAsked& asked,
              std::shared_ptr<ReplyStream> stream);
  // Waits for the threads. All streams must have ended.
  void Stop();

 private:
  ExtentAnswers(stage::LocalExtents& extents, std::shared_ptr<SlicePins> pins)
      : extents_(extents), pins_(std::move(pins)) {}
  void Read(stage::Dataset& dataset, const ExtentAsked& asked, io::IoQueue& queue,
            const std::shared_ptr<ReplyStream>& stream);
  Result<tier::ArenaBlock> AwaitMemory(std::uint64_t bytes, const ReplyStream& stream);

  stage::LocalExtents& extents_;
  const std::shared_ptr<SlicePins> pins_;
  std::shared_ptr<tier::RamArena> arena_;  // also owned by slices under way
  Mutex mutex_;
  std::unique_ptr<io::ThreadExecutor> threads_ FOREBAY_GUARDED_BY(mutex_);  // null: stopped
};

}  // namespace forebay::peer
