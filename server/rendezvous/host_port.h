// HostPort: a host and a TCP port, as one text: "node17:7000", "10.1.0.4:7000", "[fd00::4]:7000".
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::rendezvous {

struct HostPort {
  std::string host;        // a name, an IPv4 address, or an IPv6 address without brackets
  std::uint16_t port = 0;  // 0: none was given

  // With brackets around an IPv6 address. Without the port if it is 0.
  std::string Text() const;
  auto operator<=>(const HostPort&) const = default;
};

// Reads "host", "host:port" or "[address]:port". kInvalidArgument: the host is empty, longer than
// limits::kHostNameBytesMax or has characters that no host name or address has, or the port is not
// a number from 1 to 65535.
Result<HostPort> ParseHostPort(std::string_view text);

// Whether `host` may stand in a HostPort.
bool IsHostName(std::string_view host);

// Whether `host` is an address, IPv4 or IPv6, and no name.
bool IsNumericHost(const std::string& host);

// The numeric address of `host`, which is a name or an address already. Of several addresses the
// first one of the family of `like`, a numeric address, is taken, because a node listens at one
// address only; or else the first one. Blocks as long as the system's resolver does. kNotFound
// names the host.
Result<std::string> NumericHost(const std::string& host, const std::string& like);

}  // namespace forebay::rendezvous
