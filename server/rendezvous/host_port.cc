// An IPv6 address has colons itself, so it is written in brackets if a port follows. A text with
// several colons and no brackets is an address without a port.
#include "server/rendezvous/host_port.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <memory>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"

namespace forebay::rendezvous {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// As getaddrinfo. Null: there is none, and `error` says why.
Addresses Resolve(const std::string& host, int family, int flags, int& error) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) found = nullptr;
  return {found, &freeaddrinfo};
}

// Every error has the same form, so that a list of hosts can put the line in front of it.
Error NotHostPort(std::string_view text, std::string_view why) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} is not HOST, HOST:PORT or [ADDRESS]:PORT: {}", Quoted(text), why));
}

}  // namespace

std::string HostPort::Text() const {
  // Only an IPv6 address has colons, because IsHostName and the parser let no port into `host`.
  const bool is_ipv6 = host.find(':') != std::string::npos;
  if (port == 0) return host;
  return is_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<HostPort> ParseHostPort(std::string_view text) {
  std::string_view host = text;
  std::string_view port;
  const std::size_t colon = text.rfind(':');
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return NotHostPort(text, "']' is missing");
    host = text.substr(1, close - 1);
    port = text.substr(close + 1);  // with its colon, or nothing
  } else if (colon != std::string_view::npos && text.find(':') == colon) {
    host = text.substr(0, colon);
    port = text.substr(colon);
  }
  // Nothing is resolved here: a name may be known only on the node that connects to it.
  if (!IsHostName(host)) return NotHostPort(text, "the host is empty, too long or no name");
  HostPort parsed{.host = std::string(host)};
  if (port.empty()) return parsed;
  // from_chars refuses a number that does not fit into 16 bits, and a sign.
  const auto [end, error] =
      std::from_chars(port.data() + 1, port.data() + port.size(), parsed.port);
  if (port.front() != ':' || error != std::errc() || end != port.data() + port.size() ||
      parsed.port == 0) {
    return NotHostPort(text, "the port is not a number from 1 to 65535");
  }
  return parsed;
}

bool IsHostName(std::string_view host) {
  return !host.empty() && host.size() <= limits::kHostNameBytesMax &&
         // Colons are of IPv6 addresses, and '%' comes before the interface of a link-local one.
         std::ranges::all_of(host, [](unsigned char c) {
           return std::isalnum(c) != 0 || std::string_view("-._:%").find(static_cast<char>(c)) !=
                                              std::string_view::npos;
         });
}

bool IsNumericHost(const std::string& host) {
  int error = 0;
  return Resolve(host, AF_UNSPEC, AI_NUMERICHOST, error) != nullptr;
}

Result<std::string> NumericHost(const std::string& host, const std::string& like) {
  int error = 0;
  const Addresses liked = Resolve(like, AF_UNSPEC, AI_NUMERICHOST, error);
  Addresses found = Resolve(host, liked ? liked->ai_family : AF_UNSPEC, 0, error);
  // A resolver that does not answer now would be waited for a second time.
  if (!found && error != EAI_AGAIN) found = Resolve(host, AF_UNSPEC, 0, error);
  std::array<char, NI_MAXHOST> text{};
  if (!found || getnameinfo(found->ai_addr, found->ai_addrlen, text.data(), text.size(), nullptr,
                            0, NI_NUMERICHOST) != 0) {
    return Error(ErrorCode::kNotFound,
                 fmt::format("host {} has no address: {}", Quoted(host), gai_strerror(error)));
  }
  return std::string(text.data());
}

}  // namespace forebay::rendezvous
