// Where a daemon listens for other nodes: the keys `peer.interface` and `peer.ports`, and the
// addresses that this machine has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::rendezvous {

// An IPv4 or IPv6 address of a network interface that is up.
struct InterfaceAddress {
  std::string interface;  // "ib0"
  std::string address;    // "10.1.0.4", "fd00::4"
  bool is_loopback = false;
};

// The addresses of this machine, in the kernel's order.
Result<std::vector<InterfaceAddress>> LocalAddresses();

// Returns the address to listen on. `wanted` is the value of `peer.interface`:
//   "ib0"           the interface's first IPv4 address, or else its first IPv6 address
//   "10.1.0.0/16"   the first address in this subnet, IPv4 or IPv6
//   "10.1.0.4"      this address
//   ""              as for a name, of the only interface that is not loopback
// IPv6 addresses that are valid on one link only (fe80::/10) are passed over, because they mean
// nothing on another node. kInvalidArgument: `wanted` is not a subnet; kNotFound: no address fits,
// or, for "", several interfaces do. Both list the interfaces and their addresses.
Result<std::string> ListenAddress(std::string_view wanted,
                                  std::span<const InterfaceAddress> addresses);

// Ports, of which the daemon takes the first that is free. {0, 0}: any.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

// Reads the value of `peer.ports`: "7000", "7000-7099", or "" for any port.
Result<PortRange> ParsePortRange(std::string_view text);

}  // namespace forebay::rendezvous
