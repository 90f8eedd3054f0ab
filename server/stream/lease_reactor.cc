#include "server/stream/lease_reactor.h"

#include <memory>
#include <utility>

#include <spdlog/spdlog.h>

namespace forebay::stream {

void LeaseReactor::Begin(const v1::LeaseRequest& request, const std::string& peer) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;  // the daemon goes
  }
  const ClientIdentity client = service_.ClientOf(peer);
  Result<tier::ScratchGrant> grant = service_.parts_.scratch.Lease(peer, request.bytes());
  if (!grant.has_value()) {
    spdlog::warn("client '{}' (pid {}): {}", client.name, client.pid, grant.error().message());
    End(grant.error());
    return;
  }
  spdlog::info("client '{}' (pid {}) leases {} bytes of memory", client.name, client.pid,
               grant->bytes());
  grant_ = *std::move(grant);
  reply_.set_bytes(grant_.bytes());
  std::lock_guard lock(mutex_);
  if (!ended_) StartWrite(&reply_);
}

void LeaseReactor::OnWriteDone(bool ok) {
  if (!ok) End(Error(ErrorCode::kCancelled, "the client went away"));
}

void LeaseReactor::OnCancel() { End(Error(ErrorCode::kCancelled, "the lease was given back")); }

void LeaseReactor::End(const Error& error) {
  std::lock_guard lock(mutex_);
  if (!std::exchange(ended_, true)) Finish(ToGrpc(error));
}

void LeaseReactor::OnDone() {
  grant_ = tier::ScratchGrant();
  service_.Left(*this);
  std::unique_ptr<LeaseReactor>(this).reset();
}

}  // namespace forebay::stream
