// Compares addresses as bytes. getifaddrs(3) gives an entry for each address of each interface.
#include "server/rendezvous/interface_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "proto/contract/printable.h"

namespace forebay::rendezvous {
namespace {

struct IpAddress {
  int family = AF_INET;
  std::array<std::uint8_t, sizeof(in6_addr)> bytes = {};
  // Of an IPv4 address, the first four bytes are used.
  std::uint32_t bits() const { return family == AF_INET ? 32 : 128; }
};

// inet_pton accepts numbers alone, so an interface called "cafe" is not taken for an address.
std::optional<IpAddress> ParseIp(std::string_view text) {
  const std::string terminated(text);
  for (const int family : {AF_INET, AF_INET6}) {
    IpAddress ip{.family = family};
    if (inet_pton(family, terminated.c_str(), ip.bytes.data()) == 1) return ip;
  }
  return std::nullopt;
}

struct Subnet {
  IpAddress ip;
  std::uint32_t prefix_bits = 0;

  // Bits after the prefix do not count, so "10.1.2.3/16" means the subnet of that address.
  bool Contains(const IpAddress& other) const {
    if (other.family != ip.family) return false;
    for (std::uint32_t bit = 0; bit < prefix_bits; ++bit) {
      const auto mask = static_cast<std::uint8_t>(0x80U >> (bit % 8));
      if (((ip.bytes[bit / 8] ^ other.bytes[bit / 8]) & mask) != 0) return false;
    }
    return true;
  }
};

// Returns a subnet, or nothing if `text` is the name of an interface, which has no '/' and is not
// an address.
Result<std::optional<Subnet>> ParseSubnet(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::optional<IpAddress> ip = ParseIp(text.substr(0, slash));
  if (slash == std::string_view::npos) {
    if (!ip) return std::nullopt;
    // A single address is the subnet of all its bits.
    return Subnet{*ip, ip->bits()};
  }
  const std::string_view prefix = text.substr(slash + 1);
  std::uint32_t bits = 0;
  const auto [end, error] = std::from_chars(prefix.data(), prefix.data() + prefix.size(), bits);
  if (!ip || error != std::errc() || end != prefix.data() + prefix.size() || bits > ip->bits()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} is not a subnet such as 10.1.0.0/16 or fd00::/64", Quoted(text)));
  }
  return Subnet{*ip, bits};
}

// Whether the address is valid on one link only. To connect to it, a node would have to name its
// own interface, which other nodes do not know.
bool IsLinkLocal(const IpAddress& ip) {
  const Subnet link_local{*ParseIp("fe80::"), 10};
  return link_local.Contains(ip);
}

// "eth0 10.1.0.4, ib0 fd00::4". Addresses that are passed over are listed, too: a user may wonder
// why they are not taken.
std::string Listed(std::span<const InterfaceAddress> addresses) {
  std::string text;
  for (const InterfaceAddress& address : addresses) {
    if (!text.empty()) text += ", ";
    text += PrintableLine(address.interface) + " " + address.address;
  }
  return text.empty() ? "none" : text;
}

Error NoAddress(std::string_view why, std::span<const InterfaceAddress> addresses) {
  return Error(ErrorCode::kNotFound,
               fmt::format("peer.interface: {}; this machine has: {}", why, Listed(addresses)));
}

}  // namespace

Result<std::vector<InterfaceAddress>> LocalAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return Error::FromErrno(errno, "listing network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    // An interface without an address, or one that is not an IP address.
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char text[INET6_ADDRSTRLEN] = {};
    // The types of sockets' addresses overlay each other by their first member.
    const void* ip =
        family == AF_INET
            ? static_cast<const void*>(
                  &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr)
            : &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
    if (inet_ntop(family, ip, text, sizeof(text)) == nullptr) {
      return Error::FromErrno(errno, "printing an address");
    }
    addresses.push_back({.interface = entry->ifa_name,
                         .address = text,
                         .is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return addresses;
}

Result<std::string> ListenAddress(std::string_view wanted,
                                  std::span<const InterfaceAddress> addresses) {
  FOREBAY_ASSIGN(const std::optional<Subnet> subnet, ParseSubnet(wanted));
  // For a subnet, the first match is the answer: all addresses in it reach the same nodes. For an
  // interface, the search goes on, because an IPv4 address may come after an IPv6 one.
  const InterfaceAddress* found = nullptr;
  bool found_ipv4 = false;
  for (const InterfaceAddress& address : addresses) {
    const std::optional<IpAddress> ip = ParseIp(address.address);
    if (!ip || IsLinkLocal(*ip)) continue;
    if (subnet) {
      if (subnet->Contains(*ip)) return address.address;
      continue;
    }
    if (wanted.empty() ? address.is_loopback : address.interface != wanted) continue;
    // To guess one of them would use the slow management network on half of all sites.
    if (found != nullptr && found->interface != address.interface) {
      return NoAddress("it is not set, and there are several interfaces", addresses);
    }
    // The first IPv4 address, if there is one. All nodes are meant to use the same family.
    if (found != nullptr && (found_ipv4 || ip->family != AF_INET)) continue;
    found = &address;
    found_ipv4 = ip->family == AF_INET;
  }
  if (found != nullptr) return found->address;
  if (wanted.empty()) {
    return NoAddress("it is not set, and there is no interface but loopback", addresses);
  }
  return NoAddress(fmt::format("no address of an interface that is up fits {}", Quoted(wanted)),
                   addresses);
}

Result<PortRange> ParsePortRange(std::string_view text) {
  if (text.empty()) return PortRange{};
  // Port 0 would mean "any" to the kernel, and is spelled as an empty text here.
  const auto parse = [](std::string_view number, std::uint16_t& port) {
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), port);
    return error == std::errc() && end == number.data() + number.size() && port != 0;
  };
  const std::size_t dash = text.find('-');
  PortRange range;
  const bool is_good =
      parse(text.substr(0, dash), range.first) &&
      (dash == std::string_view::npos || parse(text.substr(dash + 1), range.last));
  if (dash == std::string_view::npos) range.last = range.first;
  if (!is_good || range.last < range.first) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} is not a port (7000) or a range of ports (7000-7099) from 1 to "
                             "65535",
                             Quoted(text)));
  }
  return range;
}

}  // namespace forebay::rendezvous
