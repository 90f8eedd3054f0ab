// PartCall: asks another node for the catalog part of an object, for a thread that waits for it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/catalog/storage/table_spool.h"
#include "server/io/clock.h"
#include "server/peer/peer_call.h"
#include "server/peer/peer_link.h"
#include "server/peer/peer_requests.h"
#include "server/stage/part_source.h"

namespace forebay::peer {

// Thread-safe; one thread calls Await.
class PartCall final : public PeerCall {
 public:
  // Link and clock are borrowed.
  PartCall(PeerLink& link, io::Clock& clock, const PartAsked& asked, std::int64_t deadline_ns);

  // To be called after PeerLink::Start: waits until the part has been appended to `part`, or the
  // node has said why it is not there, or the call has failed.
  Result<stage::PartAnswer> Await(catalog::TableSpool& part);

  void Begin(const std::shared_ptr<grpc::Channel>& channel) override;
  void Fail(const Error& error) override;
  void Cancel() override { context_.TryCancel(); }

 private:
  Result<stage::PartAnswer> Receive(const std::shared_ptr<grpc::Channel>& channel,
                                    catalog::TableSpool& part);

  PeerLink& link_;
  io::Clock& clock_;
  const PartAsked asked_;
  grpc::ClientContext context_;

  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<grpc::Channel> channel_ FOREBAY_GUARDED_BY(mutex_);  // once it may begin
  std::optional<Error> error_ FOREBAY_GUARDED_BY(mutex_);              // it cannot begin
};

}  // namespace forebay::peer
