// RowsCall: asks another node for rows, in one call of limits::kPeerRowsMax rows at most.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include "proto/contract/result.h"
#include "server/fetch/row_source.h"
#include "server/io/clock.h"
#include "server/peer/peer_call.h"
#include "server/peer/peer_link.h"
#include "server/peer/peer_requests.h"
#include "server/peer/row_receiver.h"

namespace forebay::peer {

class RowsCall final : public PeerCall,
                       public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `bytes` are those of all rows. When `unwanted` is requested, the call is cancelled. `done` is
  // called once, when nothing is written to the rows any more. Link and clock are borrowed.
  RowsCall(PeerLink& link, io::Clock& clock, RowsAsked asked, std::uint64_t bytes,
           std::int64_t deadline_ns, std::stop_token unwanted, fetch::RowSource::Done done);

  void Begin(const std::shared_ptr<grpc::Channel>& channel) override;
  void Fail(const Error& error) override { done_(error); }
  void Cancel() override { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  PeerLink& link_;
  io::Clock& clock_;
  const RowsAsked asked_;
  const fetch::RowSource::Done done_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer chunk_;
  RowReceiver receiver_;
  std::optional<Error> error_;  // of the receiver; then the call is cancelled
  const std::stop_token unwanted_;
  // Last: it is destroyed first, and waits until the function that it calls has returned.
  std::stop_callback<std::function<void()>> withdraw_;
};

}  // namespace forebay::peer
