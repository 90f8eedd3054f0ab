// ReplyStream: the answer to one call of another node, which is sent chunk by chunk. What is sent
// may be found long after the call came, on any thread; until then the call holds no thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::peer {

// Thread-safe. Owned by the service until gRPC is done with the call.
class ReplyStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                          public std::enable_shared_from_this<ReplyStream> {
 public:
  // `left` is called once, when gRPC is done with the call; `written`, if there is one, with the
  // bytes of each chunk but the last when gRPC has taken it, without a lock.
  explicit ReplyStream(std::function<void(const std::shared_ptr<ReplyStream>&)> left,
                       std::function<void(std::uint64_t)> written = nullptr)
      : left_(std::move(left)), written_(std::move(written)) {}

  // Makes the next chunk, and returns true if it is the last one.
  using Next = std::function<bool(grpc::ByteBuffer& chunk)>;
  // Sends what `next` makes, one chunk after another. At most once in the life of the stream. No
  // effect if the call has ended.
  void Send(Next next);
  // Tells the node that asks, before Send, that this one has to wait (AddThatItWaits). `context` is
  // that of the call. No effect if it was told, or the call has ended.
  void SayThatItWaits(grpc::CallbackServerContext& context);
  // Ends the call with `error`. No effect if it has ended.
  void End(const Error& error);
  // Likewise, but only between SayThatItWaits and Send.
  void EndIfItWaits(const Error& error);
  // Whether the node that asked does not want the answer any more, or has all of it.
  bool has_ended() const;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void WriteLocked() FOREBAY_REQUIRES(mutex_);

  const std::function<void(const std::shared_ptr<ReplyStream>&)> left_;
  const std::function<void(std::uint64_t)> written_;
  mutable Mutex mutex_;
  bool has_ended_ FOREBAY_GUARDED_BY(mutex_) = false;  // gRPC was told how the call ends
  bool has_said_that_it_waits_ FOREBAY_GUARDED_BY(mutex_) = false;
  Next next_ FOREBAY_GUARDED_BY(mutex_);
  grpc::ByteBuffer chunk_ FOREBAY_GUARDED_BY(mutex_);  // being written
};

}  // namespace forebay::peer
