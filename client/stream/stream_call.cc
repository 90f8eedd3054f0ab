#include "client/stream/stream_call.h"

#include <utility>

namespace forebay::internal {

StreamCall::StreamCall(std::shared_ptr<const DaemonConnection> connection,
                       StreamCallListener& listener)
    : connection_(std::move(connection)),
      listener_(listener),
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
  if (ok && listener_.OnReply(reply_)) {
    StartRead(&reply_);
    return;
  }
  listener_.OnRepliesEnded();
  // A read that ended the call has cancelled it; one that failed finds it ended.
  if (ok) context_.TryCancel();
  RemoveHold();
}

void StreamCall::OnWriteDone(bool ok) {
  if (ok) listener_.OnWritten();
}

}  // namespace forebay::internal
