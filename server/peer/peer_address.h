// Checks addresses of nodes. Without a secret of the job, connections between nodes are not
// encrypted, so addresses of other machines are refused unless the configuration allows that.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::peer {

struct PeerAddress {
  std::string host;  // without brackets
  std::uint16_t port = 0;
};

// Reads "HOST:PORT" or "[HOST]:PORT". kInvalidArgument: it has another form.
Result<PeerAddress> ParsePeerAddress(std::string_view address);

// `address` is "HOST:PORT" or "[HOST]:PORT". kInvalidArgument: it has another form.
// kFailedPrecondition: HOST is not a numeric loopback address, and `allow_all` is false:
// connections are neither encrypted nor allowed to be in plaintext.
Status CheckPeerAddress(std::string_view address, bool allow_all);

}  // namespace forebay::peer
