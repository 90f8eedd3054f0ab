// LeaseReactor: one Lease call. Takes the lease, and holds it until the call ends.
#pragma once

#include <mutex>
#include <string>

#include "server/stream/data_service.h"
#include "server/tier/scratch_account.h"

namespace forebay::stream {

// Owned by gRPC: deletes itself in OnDone.
class LeaseReactor final : public grpc::ServerWriteReactor<v1::LeaseReply>, public ServedCall {
 public:
  explicit LeaseReactor(DataService& service) : service_(service) {}
  // Grants or refuses; once after construction. `peer` is what gRPC calls the connection, which
  // owns the lease.
  void Begin(const v1::LeaseRequest& request, const std::string& peer);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void End(const Error& error) override;

 private:
  DataService& service_;
  tier::ScratchGrant grant_;  // of Begin, and of OnDone
  v1::LeaseReply reply_;
  std::mutex mutex_;
  bool ended_ = false;  // Finish has been called
};

}  // namespace forebay::stream
