// Addresses of both families are parsed by getaddrinfo, which is told that they are numbers.
#include "server/peer/node_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"

namespace forebay::peer {
namespace {

using AddressInfo = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressInfo ParseAddress(const std::string& host, std::uint16_t port, int flags = 0) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  const std::string service = fmt::to_string(port);
  if (getaddrinfo(host.c_str(), service.c_str(), &hints, &found) != 0) found = nullptr;
  return {found, &freeaddrinfo};
}

UniqueFd MakeSocket(const addrinfo& address) {
  return UniqueFd(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void SetOption(int fd, int level, int name, int value) {
  // The connection works without.
  (void)::setsockopt(fd, level, name, &value, sizeof(value));
}

}  // namespace

Result<ListeningSocket> ListenAt(const ListeningPlace& place) {
  int error = EINVAL;
  for (std::uint32_t port = place.first_port; port <= place.last_port; ++port) {
    const AddressInfo address =
        ParseAddress(place.host, static_cast<std::uint16_t>(port), AI_PASSIVE);
    if (!address) break;
    UniqueFd socket = MakeSocket(*address);
    SetOption(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    sockaddr_storage bound{};
    socklen_t bytes = sizeof(bound);
    if (::bind(socket.get(), address->ai_addr, address->ai_addrlen) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0 &&
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) == 0) {
      // The port lies at the same place in both kinds of address.
      return ListeningSocket{
          .socket = std::move(socket),
          .port = ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port)};
    }
    error = errno;
  }
  return Error(ErrorCode::kUnavailable,
               fmt::format("cannot listen for other nodes on {}, ports {} to {}: {}", place.host,
                           place.first_port, place.last_port,
                           Error::FromErrno(error, "bind").message()));
}

Result<UniqueFd> BeginToConnect(const std::string& host, std::uint16_t port) {
  const AddressInfo address = ParseAddress(host, port);
  if (!address) {
    return Error(ErrorCode::kInvalidArgument, "its address in the list of nodes is no number");
  }
  UniqueFd socket = MakeSocket(*address);
  if (!socket.valid()) return Error::FromErrno(errno, "socket");
  SetConnectionOptions(socket.get());
  if (::connect(socket.get(), address->ai_addr, address->ai_addrlen) != 0 &&
      errno != EINPROGRESS) {
    return Error::FromErrno(errno, "connect");
  }
  return socket;
}

void SetConnectionOptions(int fd) {
  constexpr int kMsPerS = 1'000;
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, limits::kPeerKeepaliveMs / kMsPerS);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, limits::kPeerKeepaliveTimeoutMs / kMsPerS);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
            limits::kPeerKeepaliveMs + limits::kPeerKeepaliveTimeoutMs);
}

}  // namespace forebay::peer
