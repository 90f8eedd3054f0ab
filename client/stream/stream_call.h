// StreamCall: the gRPC side of one Stream call, which tells a StreamCore what happens on it.
#pragma once

#include <memory>

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include "client/connection/daemon_connection.h"
#include "forebay/v1/data.grpc.pb.h"

namespace forebay::internal {

class StreamCore;

// One bidirectional call. The owner is the core: it fills request() and calls Write() while no
// write is out, and destroys the call only after StreamCore::OnEnded. Write and WritesDone need a
// hold, which keeps OnEnded away; holds are taken before OnRepliesEnded, which the core's mutex
// sees to.
class StreamCall final : private grpc::ClientBidiReactor<v1::StreamRequest, v1::StreamReply> {
 public:
  StreamCall(std::shared_ptr<const DaemonConnection> connection, StreamCore& core);

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
  void OnDone(const grpc::Status& status) override;

  std::shared_ptr<const DaemonConnection> connection_;
  StreamCore& core_;
  std::unique_ptr<v1::Data::Stub> stub_;
  grpc::ClientContext context_;
  v1::StreamRequest request_;
  v1::StreamReply reply_;
};

}  // namespace forebay::internal
