// ScratchLease::Call: the gRPC call that a lease lasts as long as.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include "client/daemon_connection.h"
#include "client/scratch_lease.h"
#include "forebay/v1/data.grpc.pb.h"
#include "proto/contract/result.h"

namespace forebay {

class ScratchLease::Call final : private grpc::ClientReadReactor<v1::LeaseReply> {
 public:
  // Waits `timeout` for the daemon's answer. Errors as Client::LeaseScratch, and kUnavailable where
  // the connection is broken.
  static Result<ScratchLease> Open(const internal::DaemonConnection& connection,
                                   std::uint64_t bytes, std::chrono::milliseconds timeout);
  // Cancels, and waits until gRPC is done with the call.
  ~Call() override;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  std::uint64_t bytes() const { return request_.bytes(); }
  bool held() const;

 private:
  explicit Call(std::shared_ptr<grpc::Channel> channel);
  Status AwaitGrant(std::chrono::milliseconds timeout);

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  // Not the connection, which maps the daemon's memory: that of a dead one would stay.
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Data::Stub> stub_;
  grpc::ClientContext context_;
  v1::LeaseRequest request_;
  v1::LeaseReply reply_;
  v1::LeaseReply surplus_;  // where a daemon says more than it should
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool granted_ = false;
  bool done_ = false;
  grpc::Status status_;
};

}  // namespace forebay
