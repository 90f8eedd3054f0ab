// The first bytes on the Unix socket, before gRPC takes it over (proto/contract/wire_layout.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "client/connection/region_map.h"
#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::internal {

using Deadline = std::chrono::steady_clock::time_point;

// The path of "unix:/path" (also "unix:///path"). kInvalidArgument for other schemes, empty
// paths and those longer than a socket address holds.
Result<std::string> ParseUnixAddress(std::string_view address);

struct HandshakeOptions {
  std::string path;           // of the daemon's socket
  bool shared_memory = true;  // ask for the regions
  Deadline deadline;
  int interrupt_fd = -1;      // ends the wait when it is readable; -1: nothing does
};

// A socket on which gRPC may start, and what the daemon said.
struct Handshake {
  UniqueFd socket;
  std::uint64_t session = 0;
  std::uint64_t generation = 0;
  bool others_serve = false;  // other nodes serve this program if the daemon does not answer
  std::shared_ptr<const RegionMap> regions;  // empty map without shared memory
};

// Connects, checks that the daemon runs as this user, and exchanges hellos. Blocks until the
// deadline at most. kUnavailable: nobody listens there, or the daemon hung up;
// kPermissionDenied: another user's daemon; kFailedPrecondition: layout versions differ (both
// named); kDataLoss: not what a Forebay daemon says; kDeadlineExceeded; kCancelled: interrupted.
Result<Handshake> ShakeHands(const HandshakeOptions& options);

// The second half of it, over a connected non-blocking socket; ignores options.path.
Result<Handshake> ExchangeHellos(UniqueFd socket, const HandshakeOptions& options);

}  // namespace forebay::internal
