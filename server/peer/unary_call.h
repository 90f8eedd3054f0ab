// UnaryCall: a call to another node of one message in each direction, such as checksums of first
// reads that it is to keep. No thread waits for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>

#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/peer/peer_call.h"
#include "server/peer/peer_link.h"

namespace forebay::peer {

struct UnaryRequest {
  std::string method;  // of the peer service, as "FirstReads"
  grpc::ByteBuffer message;
  std::int64_t deadline_ns = 0;  // by io::Clock
};

class UnaryCall final : public PeerCall {
 public:
  // Gets the reply, which is not parsed yet.
  using Done = std::function<void(const Result<grpc::ByteBuffer>& reply)>;
  // Link and clock are borrowed. `done` is called once.
  UnaryCall(PeerLink& link, io::Clock& clock, UnaryRequest request, Done done);

  void Begin(const std::shared_ptr<grpc::Channel>& channel) override;
  void Fail(const Error& error) override { done_(error); }
  void Cancel() override { context_.TryCancel(); }

 private:
  PeerLink& link_;
  io::Clock& clock_;
  const UnaryRequest request_;
  const Done done_;
  grpc::ClientContext context_;
  grpc::ByteBuffer reply_;
};

}  // namespace forebay::peer
