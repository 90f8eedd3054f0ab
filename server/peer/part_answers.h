// PartAnswers: answers requests of other nodes for catalog parts, on threads of its own, because a
// part is read from tables that may lie in scratch files. It has room for a few parts that are
// being sent; the nodes that ask for further ones are told to ask again.
#pragma once

#include <atomic>
#include <memory>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/executor.h"
#include "server/io/io_backend.h"
#include "server/peer/peer_requests.h"
#include "server/peer/reply_stream.h"
#include "server/stage/dataset.h"
#include "server/stage/local_extents.h"

namespace forebay::peer {

// Thread-safe. Owned by shared pointers, because answers under way refer to it.
class PartAnswers : public std::enable_shared_from_this<PartAnswers> {
 public:
  // `extents` and `backend` are borrowed until Stop.
  static Result<std::shared_ptr<PartAnswers>> Create(stage::LocalExtents& extents,
                                                     io::IoBackend& backend);

  // Sends the part, or says that it is not there yet, or ends the stream with an error. Returns at
  // once.
  void Answer(stage::Dataset& dataset, const PartAsked& asked,
              std::shared_ptr<ReplyStream> stream);
  // Says that the part is not there yet, so that the node asks again.
  static void SayNotYet(ReplyStream& stream);
  // Waits for the threads. All streams must have ended.
  void Stop();

 private:
  class Sending;
  explicit PartAnswers(stage::LocalExtents& extents) : extents_(extents) {}
  void Read(stage::Dataset& dataset, const PartAsked& asked, ReplyStream& stream);
  static void SayFailure(ReplyStream& stream, const stage::PartFailure& failure);

  stage::LocalExtents& extents_;
  std::atomic<std::size_t> sending_ = 0;  // parts that are in memory
  Mutex mutex_;
  std::unique_ptr<io::ThreadExecutor> threads_ FOREBAY_GUARDED_BY(mutex_);  // null: stopped
};

}  // namespace forebay::peer
