#include "client/lease_call.h"

#include <string>
#include <utility>

#include "client/rpc_status.h"

namespace forebay {

ScratchLease::ScratchLease(std::unique_ptr<Call> call) : call_(std::move(call)) {}
ScratchLease::ScratchLease(ScratchLease&& other) noexcept = default;
ScratchLease& ScratchLease::operator=(ScratchLease&& other) noexcept = default;
ScratchLease::~ScratchLease() = default;

std::uint64_t ScratchLease::bytes() const { return call_ ? call_->bytes() : 0; }
bool ScratchLease::held() const { return call_ && call_->held(); }

ScratchLease::Call::Call(std::shared_ptr<grpc::Channel> channel)
    : channel_(std::move(channel)), stub_(v1::Data::NewStub(channel_)) {}

Result<ScratchLease> ScratchLease::Call::Open(const internal::DaemonConnection& connection,
                                              std::uint64_t bytes,
                                              std::chrono::milliseconds timeout) {
  std::unique_ptr<Call> call(new Call(connection.channel()));
  call->request_.set_bytes(bytes);
  call->stub_->async()->Lease(&call->context_, &call->request_, call.get());
  call->StartRead(&call->reply_);
  call->StartCall();
  FOREBAY_TRY(call->AwaitGrant(timeout));
  if (call->reply_.bytes() != bytes) {
    return Error(ErrorCode::kDataLoss,
                 "the daemon leases " + std::to_string(call->reply_.bytes()) + " bytes where " +
                     std::to_string(bytes) + " were asked for");
  }
  return ScratchLease(std::move(call));
}

Status ScratchLease::Call::AwaitGrant(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const bool answered = changed_.wait_for(lock, timeout, [this] { return granted_ || done_; });
  if (granted_) return {};
  if (!answered) {
    return Error(ErrorCode::kDeadlineExceeded,
                 "the daemon has not answered a lease of " + std::to_string(request_.bytes()) +
                     " bytes for " + std::to_string(timeout.count()) + " ms");
  }
  if (!status_.ok()) return internal::ErrorFromRpc(status_);
  return Error(ErrorCode::kDataLoss, "the daemon ended a lease without an answer");
}

ScratchLease::Call::~Call() {
  context_.TryCancel();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
}

bool ScratchLease::Call::held() const {
  std::lock_guard lock(mutex_);
  return granted_ && !done_;
}

// After the grant nothing follows but the end of the call, for which OnDone comes by itself; the
// read that is open then ends with it.
void ScratchLease::Call::OnReadDone(bool ok) {
  std::lock_guard lock(mutex_);
  if (!ok) return;
  if (granted_) {
    context_.TryCancel();  // a second message is none of ours
    return;
  }
  granted_ = true;
  changed_.notify_all();
  StartRead(&surplus_);
}

void ScratchLease::Call::OnDone(const grpc::Status& status) {
  std::lock_guard lock(mutex_);
  status_ = status;
  done_ = true;
  changed_.notify_all();  // under the lock: the destructor may be waiting for nothing else
}

}  // namespace forebay
