// The first bytes on a new connection, before gRPC takes the socket: each side says hello, and the
// daemon passes the file descriptors of its shared memory, some at a time. All of it has one
// deadline. Reads never take a byte more than the message has, because what follows belongs to
// gRPC.
#include "client/connection/handshake.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "client/connection/interrupt.h"
#include "proto/contract/limits.h"

namespace forebay::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kScheme = "unix:";
// A full accept queue is tried again this often, until the deadline.
constexpr milliseconds kBacklogRetry(5);

Error NoDaemon(const std::string& path, int system_errno) {
  return Error(ErrorCode::kUnavailable,
               "no Forebay daemon answers at unix:" + path + " (" + std::strerror(system_errno) +
                   "); start forebayd, or set FOREBAY_ADDRESS to its address",
               system_errno);
}

// Until when a step of the handshake waits, and what ends it before.
struct Patience {
  Deadline deadline;
  int interrupt_fd = -1;
};

// Waits until `fd` is ready for `events`; -1: until the deadline, which is then an error.
Status WaitFor(int fd, short events, const Patience& patience) {
  for (;;) {
    // Rounded up: rounded down, the last millisecond would be spent in a loop of polls of 0 ms.
    const auto left = std::chrono::ceil<milliseconds>(patience.deadline - steady_clock::now())
                          .count();
    if (left <= 0) {
      return Error(ErrorCode::kDeadlineExceeded, "the daemon did not finish the handshake");
    }
    // poll ignores negative descriptors.
    const pollfd interrupt = {.fd = patience.interrupt_fd, .events = POLLIN, .revents = 0};
    std::array<pollfd, 2> waited = {{{.fd = fd, .events = events, .revents = 0}, interrupt}};
    // poll counts in int milliseconds. A longer deadline is waited for in parts of a minute.
    const int ready = ::poll(waited.data(), waited.size(),
                             static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (ready > 0 && waited[1].revents != 0) return Interrupt::Raised();
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Error::FromErrno(errno, "poll");
  }
}

Result<UniqueFd> Connect(const std::string& path, const Patience& patience) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Error::FromErrno(errno, "creating a socket");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // Checked here too: a path that was found by listing a folder has not passed ParseUnixAddress.
  // There must be room for a 0 behind it.
  if (path.size() >= sizeof(address.sun_path)) return NoDaemon(path, ENAMETOOLONG);
  std::memcpy(address.sun_path, path.data(), path.size());
  for (;;) {
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      return fd;
    }
    if (errno == EINTR) continue;
    if (errno == EACCES || errno == EPERM) {
      return Error(ErrorCode::kPermissionDenied,
                   "the socket unix:" + path + " belongs to another user", errno);
    }
    // On a Unix socket EAGAIN means that the daemon's queue of connections is full. poll does not
    // report when that changes, so the loop pauses.
    if (errno != EAGAIN) return NoDaemon(path, errno);
    const Deadline again = steady_clock::now() + kBacklogRetry;
    if (again >= patience.deadline) {
      return Error(ErrorCode::kDeadlineExceeded, "the daemon at unix:" + path + " is busy");
    }
    const Status paused = WaitFor(-1, 0, {again, patience.interrupt_fd});
    if (paused.error().code() != ErrorCode::kDeadlineExceeded) return paused.error();
  }
}

// The kernel says who listens. A socket at the right path proves nothing: in a temporary folder
// anybody may have made it.
Status CheckPeerUser(const UniqueFd& fd, const std::string& path) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return Error::FromErrno(errno, "asking who the daemon is");
  }
  if (peer.uid != ::geteuid()) {
    return Error(ErrorCode::kPermissionDenied,
                 "the daemon at unix:" + path + " runs as user " + std::to_string(peer.uid) +
                     ", this program as user " + std::to_string(::geteuid()));
  }
  return {};
}

Status SendAll(const UniqueFd& fd, std::span<const std::byte> bytes, const Patience& patience) {
  while (!bytes.empty()) {
    // MSG_NOSIGNAL: without it a daemon that has gone would end the trainer by SIGPIPE.
    const ssize_t sent = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    // The socket does not block, so that one deadline holds for the whole exchange, however many
    // calls it takes.
    } else if (errno == EAGAIN) {
      FOREBAY_TRY(WaitFor(fd.get(), POLLOUT, patience));
    } else if (errno != EINTR) {
      return Error(ErrorCode::kUnavailable, "the daemon hung up during the handshake", errno);
    }
  }
  return {};
}

// Receives exactly bytes.size() bytes, and never one more: the next ones are gRPC's. Passed
// descriptors are appended to `fds`.
Status ReceiveAll(const UniqueFd& fd, std::span<std::byte> bytes, const Patience& patience,
                  std::vector<UniqueFd>& fds) {
  constexpr std::size_t kFdBytesMax = limits::kFdsPerMessageMax * sizeof(int);
  while (!bytes.empty()) {
    // Room for as many descriptors as one message may have. The kernel closes what does not fit.
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kFdBytesMax)> control;
    iovec part = {.iov_base = bytes.data(), .iov_len = bytes.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t received = ::recvmsg(fd.get(), &message, MSG_CMSG_CLOEXEC);
    if (received < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) {
        return Error(ErrorCode::kUnavailable, "the daemon hung up during the handshake", errno);
      }
      FOREBAY_TRY(WaitFor(fd.get(), POLLIN, patience));
      continue;
    }
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      // Every descriptor gets an owner before anything is checked, so that none leaks on an error.
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int passed = -1;
        std::memcpy(&passed, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        fds.emplace_back(passed);
      }
    }
    // The kernel drops descriptors for which there is no room; they cannot be asked for again.
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      return Error(ErrorCode::kResourceExhausted,
                   "descriptors of shared memory were lost: more than " +
                       std::to_string(limits::kFdsPerMessageMax) +
                       " in a message, or this process has reached its open-file limit");
    }
    if (received == 0) {
      return Error(ErrorCode::kUnavailable, "the daemon hung up during the handshake");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(received));
  }
  return {};
}

Status CheckServerHello(const ServerHello& hello) {
  // Magic and version are checked first: the version decides what the other fields mean.
  if (hello.magic != kServerHelloMagic) {
    return Error(ErrorCode::kDataLoss, "what answers there is not a Forebay daemon");
  }
  if (hello.layout_version != kLayoutVersion) {
    return Error(ErrorCode::kFailedPrecondition,
                 "layout version " + std::to_string(kLayoutVersion) +
                     " of this client, version " + std::to_string(hello.layout_version) +
                     " of the daemon: use a client and a daemon of one release");
  }
  if (hello.status != 0) {
    const bool known = hello.status <= static_cast<std::uint32_t>(ErrorCode::kUnauthenticated);
    const auto code = known ? static_cast<ErrorCode>(hello.status) : ErrorCode::kUnknown;
    return Error(code, "the daemon refused the connection (" +
                           std::string(ErrorCodeName(code)) + ")");
  }
  if (hello.region_count > limits::kRegionCountMax) {
    return Error(ErrorCode::kResourceExhausted,
                 std::to_string(hello.region_count) + " regions exceed kRegionCountMax");
  }
  return {};
}

Result<std::shared_ptr<const RegionMap>> ReceiveRegions(const UniqueFd& fd,
                                                        const ServerHello& hello,
                                                        const Patience& patience) {
  auto regions = std::make_shared<RegionMap>();
  std::array<RegionEntry, limits::kFdsPerMessageMax> entries;
  std::uint32_t left = hello.region_count;
  while (left > 0) {
    // The kernel limits the descriptors of one message, so the table of regions comes in several.
    const std::uint32_t count = std::min(left, limits::kFdsPerMessageMax);
    const auto message = std::span(entries).first(count);
    std::vector<UniqueFd> fds;
    // A descriptor belongs to the entry of the same number in its message.
    FOREBAY_TRY(ReceiveAll(fd, std::as_writable_bytes(message), patience, fds));
    // Without this check a descriptor that is missing would shift all that follow to wrong regions.
    if (fds.size() != count) {
      return Error(ErrorCode::kDataLoss, std::to_string(count) + " regions came with " +
                                             std::to_string(fds.size()) + " descriptors");
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      if (entries[i].generation != hello.generation) {
        return Error(ErrorCode::kDataLoss, "shared memory region " +
                                               std::to_string(entries[i].id) +
                                               " belongs to another daemon's generation");
      }
      FOREBAY_TRY(regions->Add(entries[i], fds[i]));
    }
    left -= count;
  }
  return std::shared_ptr<const RegionMap>(std::move(regions));
}

}  // namespace

Result<std::string> ParseUnixAddress(std::string_view address) {
  if (!address.starts_with(kScheme)) {
    return Error(ErrorCode::kInvalidArgument,
                 "address '" + std::string(address) + "' is not of the form unix:/path");
  }
  std::string_view path = address.substr(kScheme.size());
  // gRPC's own form of these addresses is unix:///path; both are accepted.
  if (path.starts_with("//")) path.remove_prefix(2);
  if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path) ||
      path.find('\0') != std::string_view::npos) {
    return Error(ErrorCode::kInvalidArgument,
                 "the socket path of '" + std::string(address) + "' must have 1 to " +
                     std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes");
  }
  return std::string(path);
}

Result<Handshake> ShakeHands(const HandshakeOptions& options) {
  FOREBAY_ASSIGN(UniqueFd socket,
                 Connect(options.path, {options.deadline, options.interrupt_fd}));
  // Before the first byte is sent, and before any descriptor is accepted.
  FOREBAY_TRY(CheckPeerUser(socket, options.path));
  return ExchangeHellos(std::move(socket), options);
}

Result<Handshake> ExchangeHellos(UniqueFd socket, const HandshakeOptions& options) {
  const Patience patience = {options.deadline, options.interrupt_fd};
  Handshake result;
  result.socket = std::move(socket);

  ClientHello hello;
  if (options.shared_memory) hello.flags |= ClientHello::kWantsSharedMemory;
  // The client speaks first: the daemon sends descriptors only to a peer that has asked for them.
  FOREBAY_TRY(SendAll(result.socket, std::as_bytes(std::span(&hello, 1)), patience));

  ServerHello answer;
  std::vector<UniqueFd> stray_fds;
  FOREBAY_TRY(ReceiveAll(result.socket, std::as_writable_bytes(std::span(&answer, 1)), patience,
                         stray_fds));
  FOREBAY_TRY(CheckServerHello(answer));
  // Descriptors without a region entry have no meaning. They are closed with the vector.
  if (!stray_fds.empty()) {
    return Error(ErrorCode::kDataLoss, "the daemon's hello came with descriptors");
  }
  if (!options.shared_memory) answer.region_count = 0;  // none follow, whatever there are
  FOREBAY_ASSIGN(result.regions, ReceiveRegions(result.socket, answer, patience));
  result.session = answer.session;
  result.generation = answer.generation;
  result.others_serve = (answer.flags & ServerHello::kOthersServe) != 0;
  return result;
}

}  // namespace forebay::internal
