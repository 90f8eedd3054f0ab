// Starts a call, and passes on what gRPC says of it. Every function here but Start runs on a thread
// of gRPC, which must not wait. A hold that is taken in Start, and dropped when no reply can
// follow, lets the owner's threads write without fear that the call ends under them.
#include "client/stream/stream_call.h"

#include <utility>

#include "client/stream/stream_core.h"

namespace forebay::internal {

StreamCall::StreamCall(std::shared_ptr<const DaemonConnection> connection,
                       StreamCore& core)
    : connection_(std::move(connection)),
      core_(core),
      stub_(v1::Data::NewStub(connection_->channel())) {}

void StreamCall::Start() {
  stub_->async()->Stream(&context_, this);
  // This hold lets others be taken on any thread until OnRepliesEnded.
  AddHold();
  StartWrite(&request_);
  StartRead(&reply_);
  StartCall();
}

void StreamCall::OnReadDone(bool ok) {
  if (ok && core_.OnReply(reply_)) {
    StartRead(&reply_);
    return;
  }
  core_.OnRepliesEnded();
  // A read that ended the call has cancelled it; one that failed finds it ended.
  if (ok) context_.TryCancel();
  RemoveHold();
}

void StreamCall::OnDone(const grpc::Status& status) { core_.OnEnded(status); }

void StreamCall::OnWriteDone(bool ok) {
  if (ok) core_.OnWritten();
}

}  // namespace forebay::internal
