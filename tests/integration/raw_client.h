// RawClient: the client's side of the protocol, spelled out, so that a test can also say what a
// proper client never would.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include "forebay/v1/admin.grpc.pb.h"
#include "forebay/v1/data.grpc.pb.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/unique_fd.h"
#include "proto/contract/wire_layout.h"

namespace forebay::integration {

// A socket on which the handshake may have taken place.
struct RawSocket {
  UniqueFd fd;
  ServerHello hello;                  // status 0xFFFF'FFFF: the daemon hung up without one
  std::vector<RegionEntry> entries;
  std::vector<UniqueFd> regions;
};

// Connects and sends nothing. Not valid() where nobody listens.
UniqueFd ConnectTo(const std::string& path);
RawSocket Handshake(const std::string& path, const ClientHello& hello);
// True once the daemon has closed its end.
bool AtEnd(const UniqueFd& socket);

// Has a deadline, kPatience unless told: no test hangs.
std::unique_ptr<grpc::ClientContext> NewContext();
std::unique_ptr<grpc::ClientContext> NewContext(std::chrono::seconds deadline);

// A connection with its two services. Regions are mapped read-only.
class RawClient {
 public:
  // The handshake must succeed. Without shared memory no descriptors are passed, and gRPC takes
  // what it is sent as fast as it comes, read or not.
  explicit RawClient(const std::string& path, bool shared_memory = true);
  ~RawClient();

  v1::HelloRequest GoodHello() const;
  grpc::Status Hello(const v1::HelloRequest& request, v1::HelloReply& reply);
  v1::StatusReply Status();
  v1::DescribeReply Describe(const std::string& dataset);

  v1::Data::Stub& data() { return *data_; }
  v1::Admin::Stub& admin() { return *admin_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const RawSocket& socket() const { return socket_; }
  // Empty where the span lies in no region.
  std::span<const std::byte> Bytes(const WireSpan& span) const;

 private:
  RawSocket socket_;
  std::vector<std::span<const std::byte>> maps_;  // by region id
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Data::Stub> data_;
  std::unique_ptr<v1::Admin::Stub> admin_;
};

// One Stream call.
class RawStream {
 public:
  explicit RawStream(RawClient& client);
  RawStream(RawClient& client, std::chrono::seconds deadline);
  ~RawStream();
  bool Write(const v1::StreamRequest& request) { return call_->Write(request); }
  // Nothing more will be written.
  void HalfClose() { call_->WritesDone(); }
  // Nullopt at the end of the call.
  std::optional<v1::StreamReply> Read();
  // Reads on to the end and returns the call's status.
  grpc::Status End();
  void Cancel() { context_->TryCancel(); }

 private:
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamReply>> call_;
  bool ended_ = false;
};

// What proper clients say; tests change a word.
v1::StreamRequest GoodOpen(const v1::DescribeReply& dataset, std::uint32_t batch,
                           const OrderShape& shape = {});
v1::StreamRequest PullOf(std::uint64_t step, std::uint32_t count);

}  // namespace forebay::integration
