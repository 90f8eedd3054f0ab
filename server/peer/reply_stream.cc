// gRPC allows one write at a time, and nothing after the call was told to end. The next chunk is
// made when gRPC has taken the last one, so an answer of any size needs the memory of one chunk.
#include "server/peer/reply_stream.h"

#include <utility>

#include "server/peer/channel_settings.h"

namespace forebay::peer {

void ReplyStream::Send(Next next) {
  const MutexLock lock(mutex_);
  // The node that asked may have given up long ago.
  if (has_ended_) return;
  next_ = std::move(next);
  WriteLocked();
}

// The context is looked at only while the call has not ended: it goes with the call.
void ReplyStream::SayThatItWaits(grpc::CallbackServerContext& context) {
  const MutexLock lock(mutex_);
  if (has_ended_ || next_ || std::exchange(has_said_that_it_waits_, true)) return;
  AddThatItWaits(context);
  StartSendInitialMetadata();
}

void ReplyStream::WriteLocked() {
  const bool is_last = next_(chunk_);
  if (!is_last) return StartWrite(&chunk_);
  // One operation of gRPC instead of two.
  has_ended_ = true;
  StartWriteAndFinish(&chunk_, grpc::WriteOptions(), grpc::Status::OK);
}

void ReplyStream::OnWriteDone(bool ok) {
  if (!ok) return;  // the call was cancelled, and OnCancel ends it
  std::uint64_t bytes = 0;
  {
    const MutexLock lock(mutex_);
    bytes = chunk_.Length();
    if (!has_ended_) WriteLocked();
  }
  if (written_) written_(bytes);
}

void ReplyStream::OnCancel() { End(Error(ErrorCode::kCancelled, "the call was cancelled")); }

void ReplyStream::End(const Error& error) {
  Next unused;  // destroyed after the lock: it may hold the last reference to rows
  const MutexLock lock(mutex_);
  if (std::exchange(has_ended_, true)) return;
  unused = std::move(next_);
  Finish(ToGrpcStatus(error));
}

void ReplyStream::EndIfItWaits(const Error& error) {
  const MutexLock lock(mutex_);
  if (!has_said_that_it_waits_ || next_ || std::exchange(has_ended_, true)) return;
  Finish(ToGrpcStatus(error));
}

bool ReplyStream::has_ended() const {
  const MutexLock lock(mutex_);
  return has_ended_;
}

void ReplyStream::OnDone() {
  Next unused;
  {
    const MutexLock lock(mutex_);
    // Unpins what was sent. Slices that gRPC still has own their part.
    unused = std::move(next_);
    chunk_.Clear();
  }
  left_(shared_from_this());
}

}  // namespace forebay::peer
