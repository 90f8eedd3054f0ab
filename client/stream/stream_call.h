// StreamCall: the gRPC side of one Stream call; its listener is the state machine.
#pragma once

#include <memory>

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include "client/connection/daemon_connection.h"
#include "forebay/v1/data.grpc.pb.h"

namespace forebay::internal {

// Called on gRPC's threads, one call at a time for replies. Must not block.
class StreamCallListener {
 public:
  virtual ~StreamCallListener() = default;
  // A message; the listener may take its content. False ends the call.
  virtual bool OnReply(v1::StreamReply& reply) = 0;
  // No reply will follow. No hold may be taken from here on; returns before OnEnded.
  virtual void OnRepliesEnded() = 0;
  // The last write is out; `request()` may be filled again.
  virtual void OnWritten() = 0;
  // The call is over; nothing touches the call or the listener after this returns.
  virtual void OnEnded(const grpc::Status& status) = 0;
};

// One bidirectional call. The owner fills request() and calls Write() while no write is out,
// and destroys the call only after OnEnded. Write and WritesDone need a hold, which keeps OnEnded
// away; holds are taken before OnRepliesEnded: the listener serialises that (its mutex).
class StreamCall final : private grpc::ClientBidiReactor<v1::StreamRequest, v1::StreamReply> {
 public:
  StreamCall(std::shared_ptr<const DaemonConnection> connection, StreamCallListener& listener);

  // Starts the call with request() as its first message.
  void Start();
  v1::StreamRequest& request() { return request_; }
  void Hold() { AddHold(); }
  void LetGo() { RemoveHold(); }
  void Write() { StartWrite(&request_); }
  // Half-closes: no write follows.
  void WritesDone() { StartWritesDone(); }
  // Ends the call soon; OnEnded follows. Thread-safe.
  void Cancel() { context_.TryCancel(); }

  const DaemonConnection& connection() const { return *connection_; }

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override { listener_.OnEnded(status); }

  std::shared_ptr<const DaemonConnection> connection_;
  StreamCallListener& listener_;
  std::unique_ptr<v1::Data::Stub> stub_;
  grpc::ClientContext context_;
  v1::StreamRequest request_;
  v1::StreamReply reply_;
};

}  // namespace forebay::internal
