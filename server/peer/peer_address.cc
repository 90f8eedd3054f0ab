// Only numeric addresses count as loopback, because a name could be resolved to another machine.
#include "server/peer/peer_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"

namespace forebay::peer {
namespace {

bool IsLoopback(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

Result<PeerAddress> ParsePeerAddress(std::string_view address) {
  // The last colon, because an IPv6 address has others.
  const std::size_t colon = address.rfind(':');
  std::string_view host = address.substr(0, colon);
  const bool is_bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (is_bracketed) host = host.substr(1, host.size() - 2);
  const std::string_view port =
      colon == std::string_view::npos ? std::string_view() : address.substr(colon + 1);
  unsigned number = 0;
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool is_port = !port.empty() && parsed.ec == std::errc() &&
                       parsed.ptr == port.data() + port.size() && number <= 65'535;
  // Without brackets it would not be clear where an IPv6 address ends.
  const bool is_host =
      !host.empty() && (is_bracketed || host.find_first_of(":[]") == std::string_view::npos);
  if (!is_port || !is_host || address.size() > limits::kPeerAddressBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} is not an address of a node: write HOST:PORT or [IPV6]:PORT",
                             Quoted(address)));
  }
  return PeerAddress{.host = std::string(host), .port = static_cast<std::uint16_t>(number)};
}

Status CheckPeerAddress(std::string_view address, bool allow_all) {
  FOREBAY_ASSIGN(const PeerAddress parsed, ParsePeerAddress(address));
  if (allow_all || IsLoopback(parsed.host)) return {};
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("the address {} is not this machine's alone, and the nodes have no "
                           "secret to encrypt their connections with: only numeric loopback "
                           "addresses are accepted unless plaintext is allowed",
                           Quoted(address)));
}

}  // namespace forebay::peer
