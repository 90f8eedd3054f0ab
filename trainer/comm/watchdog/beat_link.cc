// Sockets of the watchdog. Everything is non-blocking, and a heartbeat is one record of fixed size,
// so that no parser and no buffer beyond one record is needed. A sender whose peer does not read
// drops heartbeats; only the rest of a record that has begun must go out first, or the peer would
// lose the boundaries between records.
#include "trainer/comm/watchdog/beat_link.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace forebay::train {
namespace {

static_assert(std::is_trivially_copyable_v<Beat> && std::is_trivially_copyable_v<MeetingPoint>);

Error Failed(const char* call) {
  return Error(ErrorCode::kUnavailable, fmt::format("{}: {}", call, std::strerror(errno)));
}

// EINTR counts as well: the caller comes again.
bool WouldWait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

std::string ToText(const in_addr& address) {
  std::array<char, INET_ADDRSTRLEN> text = {};
  ::inet_ntop(AF_INET, &address, text.data(), text.size());
  return text.data();
}

// The addresses that other hosts may reach us at. Which of them is routed from where is not known
// here, so that the other side tries all of them.
void FindAddresses(MeetingPoint& point) {
  ifaddrs* all = nullptr;
  // Without addresses, ranks on this host can still connect by loopback.
  if (::getifaddrs(&all) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  for (const ifaddrs* at = all; at != nullptr && point.count < point.addresses.size();
       at = at->ifa_next) {
    const bool wanted = at->ifa_addr != nullptr && at->ifa_addr->sa_family == AF_INET &&
                        (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
    if (!wanted) continue;
    sockaddr_in address = {};
    std::memcpy(&address, at->ifa_addr, sizeof address);
    point.addresses[point.count++] = address.sin_addr;
  }
}

// A non-blocking connect with a timeout of its own: the kernel's would be minutes.
Result<UniqueFd> Connect(const sockaddr_in& address, int timeout_ms) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Failed("socket");
  // The result is known when the socket becomes writable.
  const int connected =
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (connected != 0 && errno != EINPROGRESS) return Failed("connect");
  pollfd waited = {.fd = fd.get(), .events = POLLOUT, .revents = 0};
  // An interruption counts as a timeout: the caller tries the next address.
  if (::poll(&waited, 1, timeout_ms) != 1) {
    errno = ETIMEDOUT;
    return Failed("connect");
  }
  int failure = 0;
  socklen_t size = sizeof failure;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
  errno = failure;
  if (failure != 0) return Failed("connect");
  // A heartbeat must not wait for another one to fill a packet (Nagle's algorithm).
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

}  // namespace

// The rest of the room is cleared, so that no bytes of an earlier text are sent.
void SetText(std::span<char> room, const std::string& text) {
  const std::size_t kept = std::min(text.size(), room.size() - 1);
  std::copy_n(text.begin(), kept, room.begin());
  std::fill(room.begin() + static_cast<std::ptrdiff_t>(kept), room.end(), '\0');
}

// The bytes come from the network: a room without a zero is taken as a whole, and not read beyond.
std::string TextOf(std::span<const char> room) {
  return std::string(room.begin(), std::ranges::find(room, '\0'));
}

bool BeatConnection::Flush() {
  while (!unsent_.empty()) {
    const ssize_t sent =
        ::send(fd_.get(), unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    // A full buffer means a peer that does not read; every other error, one that is gone.
    if (sent < 0) return WouldWait();
    unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
  }
  return true;
}

bool BeatConnection::Send(const Beat& beat) {
  if (!Flush()) return false;
  // The peer still has to take the last heartbeat. This one is dropped, the next will be newer.
  if (!unsent_.empty()) return true;
  const auto bytes = std::as_bytes(std::span(&beat, 1));
  unsent_.assign(bytes.begin(), bytes.end());
  return Flush();
}

bool BeatConnection::Receive(std::vector<Beat>& beats) {
  while (true) {
    std::array<std::byte, sizeof(Beat)> room;
    const ssize_t got = ::recv(fd_.get(), room.data(), room.size() - partial_.size(),
                               MSG_DONTWAIT);
    if (got < 0) return WouldWait();
    // The end of the stream: the peer has closed, or the kernel has, because the process died.
    if (got == 0) return false;
    // TCP cuts a stream anywhere, so a record may come in pieces.
    partial_.insert(partial_.end(), room.begin(), room.begin() + got);
    if (partial_.size() < sizeof(Beat)) continue;
    std::memcpy(&beats.emplace_back(), partial_.data(), sizeof(Beat));
    partial_.clear();
  }
}

std::string HostName() {
  std::array<char, 256> name = {};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

Result<UniqueFd> ListenForBeats(MeetingPoint& point) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Failed("socket");
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  // All interfaces, because it is not known which one the other hosts route to. Whoever connects
  // has to know the job's random number.
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) {
    return Failed("bind");
  }
  if (::listen(fd.get(), SOMAXCONN) != 0) return Failed("listen");
  socklen_t size = sizeof any;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&any), &size) != 0) {
    return Failed("getsockname");
  }
  point.port = any.sin_port;
  SetText(point.host, HostName());
  FindAddresses(point);
  return fd;
}

UniqueFd AcceptBeats(int listener) {
  return UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Result<UniqueFd> ConnectBeats(const MeetingPoint& point, int timeout_ms) {
  std::vector<in_addr> candidates;
  // On the same host loopback always works, also where a firewall closes the other interfaces.
  if (TextOf(point.host) == HostName()) candidates.push_back({.s_addr = htonl(INADDR_LOOPBACK)});
  const std::size_t count = std::min<std::size_t>(point.count, point.addresses.size());
  candidates.insert(candidates.end(), point.addresses.begin(), point.addresses.begin() + count);
  std::string tried;
  for (const in_addr& candidate : candidates) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr = candidate;
    address.sin_port = point.port;
    Result<UniqueFd> fd = Connect(address, timeout_ms);
    if (fd.has_value()) return fd;
    tried += fmt::format("{}{} port {}: {}", tried.empty() ? "" : "; ", ToText(candidate),
                         ntohs(point.port), fd.error().message());
  }
  return Error(ErrorCode::kUnavailable,
               fmt::format("host {} cannot be reached over TCP ({})", TextOf(point.host),
                           tried.empty() ? "it has no address" : tried));
}

}  // namespace forebay::train
