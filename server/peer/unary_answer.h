// UnaryAnswer: the answer of one message to a call of another node. It may be given long after the
// call came, on any thread; until then the call holds no thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/status.h>

#include "proto/contract/thread_annotations.h"

namespace forebay::peer {

// Thread-safe. Owned by the service until gRPC is done with the call, and by whoever answers.
class UnaryAnswer final : public grpc::ServerUnaryReactor,
                          public std::enable_shared_from_this<UnaryAnswer> {
 public:
  // `reply` is gRPC's, until the call ends. `left` is called once, when gRPC is done with the call.
  UnaryAnswer(grpc::ByteBuffer& reply,
              std::function<void(const std::shared_ptr<UnaryAnswer>&)> left)
      : left_(std::move(left)), reply_(reply) {}

  // Ends the call with a message or an error. No effect if it has ended.
  void Answer(const grpc::ByteBuffer& message) { End(message, grpc::Status::OK); }
  void Fail(const grpc::Status& status) { End({}, status); }

  // The node that asked does not wait any more. A unary call ends only if it is finished.
  void OnCancel() override { Fail(grpc::Status::CANCELLED); }
  void OnDone() override { left_(shared_from_this()); }

 private:
  void End(const grpc::ByteBuffer& message, const grpc::Status& status) {
    const MutexLock lock(mutex_);
    if (std::exchange(has_ended_, true)) return;
    if (status.ok()) reply_ = message;
    Finish(status);
  }

  const std::function<void(const std::shared_ptr<UnaryAnswer>&)> left_;
  Mutex mutex_;
  grpc::ByteBuffer& reply_ FOREBAY_GUARDED_BY(mutex_);
  bool has_ended_ FOREBAY_GUARDED_BY(mutex_) = false;  // gRPC was told how the call ends
};

}  // namespace forebay::peer
