// A bare gRPC byte stream: the least that any protocol on gRPC must do to move bytes. The asking
// side names a number of bytes; the answer is a stream of messages of 1 MiB at most, which refer to
// the answering side's memory and are copied out by the asking side. There are no rows and no
// checksums, and the generic API keeps protobuf out of it. `grpc_stream` runs the two sides in two
// processes, `peer_bench` in one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server.h>

namespace forebay::bench {

// Answers calls at host:port until it is destroyed. `source` must outlive it.
class ByteServer final : private grpc::CallbackGenericService {
 public:
  // Port 0: any free one. With `has_our_settings`, gRPC is set up as for connections between our
  // nodes; otherwise with its own defaults. Ends the program if it cannot listen.
  ByteServer(std::span<const std::byte> source, const std::string& host, int port,
             bool has_our_settings);
  ~ByteServer() override;
  int port() const { return port_; }

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override;

  const std::span<const std::byte> source_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// One connection to a ByteServer. Used by one thread.
class ByteClient {
 public:
  ByteClient(const std::string& address, bool has_our_settings);
  // Asks `requests` times for `bytes` bytes, with `in_flight` requests under way at a time, and
  // waits for all. Request r is received in part r % in_flight of `destination`, which has
  // in_flight * bytes bytes. Ends the program if a byte is missing.
  void Move(std::size_t requests, std::size_t bytes, std::size_t in_flight,
            std::span<std::byte> destination);

 private:
  std::unique_ptr<grpc::GenericStub> stub_;
};

}  // namespace forebay::bench
