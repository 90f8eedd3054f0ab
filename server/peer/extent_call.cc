// The first message says how large the image is. Memory for it is allocated by the thread that
// waits in Await, because that may take seconds, and gRPC's threads must not wait. Until then a
// hold tells gRPC that another read will come.
#include "server/peer/extent_call.h"

#include <utility>

#include <grpcpp/generic/generic_stub.h>

#include "server/peer/channel_settings.h"

namespace forebay::peer {

ExtentCall::ExtentCall(PeerLink& link, io::Clock& clock, const ExtentAsked& asked,
                       std::int64_t deadline_ns)
    : PeerCall(/*bytes=*/0, deadline_ns, Watched::kYes),
      link_(link),
      clock_(clock),
      asked_(asked) {}

void ExtentCall::Begin(const std::shared_ptr<grpc::Channel>& channel) {
  request_ = WriteRequest(asked_);
  context_.set_deadline(GrpcDeadline(deadline_ns(), clock_));
  grpc::GenericStub(channel).PrepareBidiStreamingCall(&context_, "/forebay.v1.Peer/Extent", {},
                                                      this);
  {
    const MutexLock lock(mutex_);
    is_held_ = true;
  }
  // Before StartCall, as gRPC demands. OnDone does not come while the hold exists.
  AddHold();
  StartWriteLast(&request_, grpc::WriteOptions());
  StartRead(&message_);
  StartCall();
}

// Called by whoever comes first: Await after its read, or OnReadDone if no description came. The
// hold must be given back exactly once.
void ExtentCall::EndHold() {
  {
    const MutexLock lock(mutex_);
    if (!std::exchange(is_held_, false)) return;
  }
  RemoveHold();
}

Status ExtentCall::TakeLocked() {
  if (head_) return receiver_.Take(message_);
  FOREBAY_ASSIGN(head_, ExtentReceiver::TakeHead(message_));
  changed_.NotifyAll();
  return {};
}

void ExtentCall::OnReadInitialMetadataDone(bool ok) {
  // gRPC does not promise that this comes before OnReadDone.
  if (ok && !has_progress() && SaysThatItWaits(context_)) NoteWaits();
}

void ExtentCall::OnReadDone(bool ok) {
  if (!ok) return EndHold();  // OnDone says why
  NoteProgress();
  bool is_first = false;
  Status taken;
  {
    const MutexLock lock(mutex_);
    is_first = !head_.has_value();
    // Until Await has memory, nothing is read.
    if (is_first) NoteWaits();
    taken = TakeLocked();
    if (!taken.has_value()) error_ = taken.error().WithContext("node " + link_.address());
    // Under the lock: once it is free, Await may have begun to read the next message.
    message_.Clear();
  }
  if (!taken.has_value()) {
    // Chunks that still arrive are not read, so nothing is written to the image any more.
    context_.TryCancel();
    return EndHold();
  }
  // After the description, Await reads on when it has memory.
  if (!is_first) StartRead(&message_);
}

void ExtentCall::Fail(const Error& error) {
  const MutexLock lock(mutex_);
  error_ = error;
  has_ended_ = true;
  changed_.NotifyAll();
}

void ExtentCall::OnDone(const grpc::Status& status) {
  std::uint64_t received_bytes = 0;
  bool is_refused = false;
  {
    const MutexLock lock(mutex_);
    // An error of this node's own explains more than the cancelled call that followed it.
    if (!error_ && !status.ok()) error_ = Outcome(FromGrpcStatus(status, link_.address()));
    if (!error_ && head_) received_bytes = head_->image_bytes;
    is_refused = error_ && stage::IsTooBusy(*error_);
    has_ended_ = true;
    changed_.NotifyAll();
  }
  // An extent has bytes, so without any the call has failed. A refusal says nothing about the link.
  if (!is_refused) link_.Count(received_bytes, received_bytes == 0);
  link_.Ended(*this);
}

Result<stage::SuppliedExtent> ExtentCall::Await(const stage::AllocateImage& allocate) {
  stage::SuppliedExtent supplied;
  UniqueLock lock(mutex_);
  while (!head_ && !has_ended_) changed_.Wait(mutex_);
  if (head_ && !has_ended_) {
    const std::uint64_t bytes = head_->image_bytes;
    // Without the lock: it may wait for memory for seconds, and OnReadDone needs the lock.
    lock.Unlock();
    Result<tier::ArenaBlock> image = allocate(bytes);
    lock.Lock();
    if (image.has_value()) {
      supplied.image = std::move(*image);
      receiver_.SetImage(supplied.image.bytes());
    } else {
      error_ = image.error();
    }
    lock.Unlock();
    if (image.has_value()) {
      NoteProgress();
      StartRead(&message_);
    } else {
      context_.TryCancel();
    }
    EndHold();
    lock.Lock();
  }
  // Also after an error: gRPC may still write to the image.
  while (!has_ended_) changed_.Wait(mutex_);
  if (error_) return *error_;
  if (!head_) {
    return Error(ErrorCode::kInternal, "node " + link_.address() + ": the answer has no messages");
  }
  const Status complete = receiver_.Finish();
  if (!complete.has_value()) return complete.error().WithContext("node " + link_.address());
  supplied.checksums.image = head_->checksum;
  supplied.is_packed = head_->is_packed;
  return supplied;
}

}  // namespace forebay::peer
