// FirstReadsCall: asks another node to keep checksums of first reads. No thread waits for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>

#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/peer/peer_call.h"
#include "server/peer/peer_link.h"
#include "server/peer/peer_requests.h"
#include "server/stage/first_read_keepers.h"

namespace forebay::peer {

class FirstReadsCall final : public PeerCall {
 public:
  // Link and clock are borrowed. `kept` is called once.
  FirstReadsCall(PeerLink& link, io::Clock& clock, const FirstReadsGiven& given,
                 std::int64_t deadline_ns, stage::FirstReadKeepers::Kept kept);

  void Begin(const std::shared_ptr<grpc::Channel>& channel) override;
  void Fail(const Error& error) override { kept_(error); }
  void Cancel() override { context_.TryCancel(); }

 private:
  PeerLink& link_;
  io::Clock& clock_;
  const std::size_t count_;  // of the reads that are given
  const stage::FirstReadKeepers::Kept kept_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
};

}  // namespace forebay::peer
