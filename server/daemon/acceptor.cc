// One thread polls the listening socket and all connections. A connection sends ClientHello and
// gets ServerHello and the regions' descriptors; then gRPC owns the socket. The acceptor keeps a
// duplicate of each socket, because only so does it notice, and enforce, the end of a connection:
// gRPC 1.51 keeps one open while a write waits for a peer that does not read.
#include "server/daemon/acceptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/io/log.h"

namespace forebay::daemon {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
// Pause after a failed accept (no file descriptors are left): the connection stays in the kernel's
// queue, so poll would report it again at once.
constexpr std::int64_t kDescriptorRetryMs = 100;

// A session number that another process cannot guess. Hello quotes it, so that a call is known to
// come from a client of this socket.
std::uint64_t RandomSession() {
  std::uint64_t value = 0;
  while (value == 0) {
    FOREBAY_CHECK(getrandom(&value, sizeof(value), 0) == sizeof(value));
  }
  return value;
}

bool SendAll(int fd, const void* data, std::size_t bytes) {
  // Handshake messages are far smaller than a socket's buffer, so a short send is a failure.
  return send(fd, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

bool SendRegions(int fd, std::span<const SharedEntry> regions) {
  std::vector<RegionEntry> entries;
  std::vector<int> fds;
  for (const SharedEntry& region : regions) {
    entries.push_back(region.entry);
    fds.push_back(region.fd);
  }
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  // Descriptors must travel with at least one byte of data; the entries describe them.
  iovec payload{entries.data(), entries.size() * sizeof(RegionEntry)};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  return sendmsg(fd, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(payload.iov_len);
}

// Removes the socket of a daemon that was killed. Any other kind of file is not ours to remove.
Status RemoveStaleSocket(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? Status() : Error::FromErrno(errno, "stat of daemon.socket " + path);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return Error(ErrorCode::kAlreadyExists,
                 "daemon.socket: " + path + " exists and is not a socket; remove it, or choose "
                 "another path");
  }
  if (unlink(path.c_str()) != 0) return Error::FromErrno(errno, "removing " + path);
  return {};
}

}  // namespace

Result<std::unique_ptr<Acceptor>> Acceptor::Create(const AcceptorOptions& options,
                                                   std::vector<SharedEntry> regions,
                                                   io::Clock& clock, HandOver hand_over,
                                                   Broken broken) {
  // The lambda of the thread holds `this`, so the object never moves.
  std::unique_ptr<Acceptor> acceptor(
      new Acceptor(options, std::move(regions), clock, std::move(hand_over), std::move(broken)));
  FOREBAY_TRY(acceptor->Listen());
  return acceptor;
}

void Acceptor::Start() {
  // Listen has bound the socket before; connections of the meantime are in its queue.
  thread_ = std::jthread([this] { Run(); });
}

Acceptor::Acceptor(const AcceptorOptions& options, std::vector<SharedEntry> regions,
                   io::Clock& clock, HandOver hand_over, Broken broken)
    : options_(options),
      regions_(std::move(regions)),
      clock_(clock),
      hand_over_(std::move(hand_over)),
      broken_(std::move(broken)) {}

Acceptor::~Acceptor() { Close(); }

void Acceptor::Close() {
  stopping_ = true;
  Wake();
  // The thread uses the descriptors that are closed below.
  if (thread_.joinable()) thread_.join();
  // Only the acceptor that has bound the socket removes it.
  if (listen_fd_.valid()) unlink(options_.socket_path.c_str());
  listen_fd_.Reset();
  open_.clear();
}

void Acceptor::Wake() {
  const std::uint64_t one = 1;
  // A failed write means that the counter is full, and poll returns in any case.
  if (wake_fd_.valid()) (void)!write(wake_fd_.get(), &one, sizeof(one));
}

Status Acceptor::Listen() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (options_.socket_path.size() >= sizeof(address.sun_path)) {
    return Error(ErrorCode::kInvalidArgument,
                 "daemon.socket is longer than the " +
                     std::to_string(sizeof(address.sun_path) - 1) +
                     " bytes that a Unix socket's path may have: " + options_.socket_path);
  }
  std::memcpy(address.sun_path, options_.socket_path.data(), options_.socket_path.size());
  wake_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!wake_fd_.valid() || !fd.valid()) return Error::FromErrno(errno, "creating a socket");
  FOREBAY_TRY(RemoveStaleSocket(options_.socket_path));
  // The socket must have mode 0600 from the moment at which it exists; a chmod after bind would
  // leave a gap in which other users can connect.
  const mode_t before = umask(0177);
  const int bound = bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const int bind_errno = errno;
  umask(before);
  if (bound != 0) return Error::FromErrno(bind_errno, "binding " + options_.socket_path);
  if (listen(fd.get(), 128) != 0) {
    return Error::FromErrno(errno, "listening on " + options_.socket_path);
  }
  listen_fd_ = std::move(fd);
  return {};
}

bool Acceptor::KnowsSession(std::uint64_t session) const {
  MutexLock lock(mutex_);
  return sessions_.contains(session);
}

void Acceptor::StopAccepting() {
  accepting_ = false;
  Wake();
}

void Acceptor::EndConnections() {
  accepting_ = false;
  ending_ = true;
  Wake();
}

void Acceptor::Run() {
  std::vector<pollfd> polled;
  while (!stopping_) {
    polled.clear();
    polled.push_back({wake_fd_.get(), POLLIN, 0});
    const bool listening = accepting_ && retry_ns_ <= clock_.NowNs();
    // With no events asked for, the entry only keeps its place in the array.
    polled.push_back({listen_fd_.get(), static_cast<short>(listening ? POLLIN : 0), 0});
    for (const Connection& connection : open_) {
      // After the hand-over the data belong to gRPC: watch only for the peer's end of writing.
      const short events = static_cast<short>(connection.handed_over ? POLLRDHUP : POLLIN);
      polled.push_back({connection.fd.get(), events, 0});
    }
    if (poll(polled.data(), polled.size(), NextTimeoutMs()) < 0) {
      if (errno == EINTR) continue;
      // The daemon cannot notice the end of clients any more, and ends itself.
      broken_(Error::FromErrno(errno, "watching " + options_.socket_path));
      return;
    }
    if (stopping_) return;
    std::uint64_t wakes = 0;
    if (polled[0].revents != 0) (void)!read(wake_fd_.get(), &wakes, sizeof(wakes));
    // In every turn from then on, so a connection that was accepted last is ended, too.
    if (ending_) {
      // The watched descriptor is a duplicate of gRPC's, so this ends gRPC's connection too.
      for (const Connection& connection : open_) shutdown(connection.fd.get(), SHUT_RDWR);
    }
    // Before AcceptAll, which adds connections that `polled` has no entry for.
    ServeOpen(std::span(polled).subspan(2));
    DropExpired();
    if ((polled[1].revents & POLLIN) != 0 && accepting_) AcceptAll();
  }
}

// `open_` is rebuilt, so that ended connections are closed in one pass over the array.
void Acceptor::ServeOpen(std::span<const pollfd> polled) {
  std::vector<Connection> kept;
  for (std::size_t i = 0; i < open_.size(); ++i) {
    Connection& connection = open_[i];
    const short happened = polled[i].revents;
    bool keep = true;
    if (connection.handed_over) {
      keep = (happened & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) == 0;
      // A client that has stopped writing is treated as gone. If it shut down only its own writing
      // side and does not read, a write of gRPC would wait, and keep the connection, for ever.
      if (!keep) shutdown(connection.fd.get(), SHUT_RDWR);
    } else if (happened != 0) {
      keep = Progress(connection);
    }
    if (keep) {
      kept.push_back(std::move(connection));
    } else if (connection.handed_over) {
      MutexLock lock(mutex_);
      sessions_.erase(connection.session);
      --connections_;
    }
  }
  open_ = std::move(kept);
}

void Acceptor::AcceptAll() {
  for (;;) {
    UniqueFd fd(accept4(listen_fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      // The client gave up while it was in the queue; the next one may be there.
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return;
      // The connection stays in the kernel's queue, so poll would report it again at once.
      log::Warn("cannot accept a connection on {}; trying again: {}", options_.socket_path,
                std::strerror(errno));
      retry_ns_ = clock_.NowNs() + kDescriptorRetryMs * kNsPerMs;
      return;
    }
    ucred peer{};
    socklen_t length = sizeof(peer);
    const bool known = getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
    // The mode 0600 of the socket keeps other users out, except root, which is refused here.
    if (!known || peer.uid != geteuid()) {
      log::Warn("refused a connection of uid {}: this daemon serves only uid {}",
                known ? static_cast<long>(peer.uid) : -1L, geteuid());
      ++refused_;
      continue;
    }
    // Some connections beyond the limit get a handshake, so that Complete can reply with the
    // reason. Further ones are closed without a reply, which bounds the open descriptors.
    if (open_.size() >= std::size_t{options_.connections_max} + limits::kRefusedAtOnceMax) {
      ++refused_;
      continue;
    }
    Connection connection;
    connection.fd = std::move(fd);
    connection.peer = {.pid = peer.pid, .uid = peer.uid};
    // A process that connects and says nothing costs a descriptor for that long only.
    connection.deadline_ns = clock_.NowNs() + limits::kHandshakeDeadlineMs * kNsPerMs;
    open_.push_back(std::move(connection));
  }
}

// Receives the rest of ClientHello, which may arrive in parts. The socket does not block, and poll
// reports it again, so a slow client delays no other one.
bool Acceptor::Progress(Connection& connection) {
  auto* bytes = reinterpret_cast<std::byte*>(&connection.hello);
  const ssize_t count = recv(connection.fd.get(), bytes + connection.received,
                             sizeof(ClientHello) - connection.received, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (count <= 0) return false;
  connection.received += static_cast<std::size_t>(count);
  return connection.received < sizeof(ClientHello) || Complete(connection);
}

// The ErrorCode to refuse a client with, or 0. The magic comes first: without it the rest of the
// message means nothing.
std::uint32_t Acceptor::RefusalOf(const ClientHello& hello) const {
  if (hello.magic != kClientHelloMagic) {
    return static_cast<std::uint32_t>(ErrorCode::kInvalidArgument);
  }
  if (hello.layout_version != kLayoutVersion) {
    log::Warn("refused a client of layout version {}: this daemon speaks version {}",
              hello.layout_version, kLayoutVersion);
    return static_cast<std::uint32_t>(ErrorCode::kFailedPrecondition);
  }
  if (connections_ >= options_.connections_max) {
    log::Warn("refused a client: {} are connected, the most that a daemon serves (kClientsMax)",
              options_.connections_max);
    return static_cast<std::uint32_t>(ErrorCode::kResourceExhausted);
  }
  return 0;
}

bool Acceptor::Complete(Connection& connection) {
  const ClientHello& hello = connection.hello;
  ServerHello reply;
  reply.generation = options_.generation;
  reply.status = RefusalOf(hello);
  if (reply.status != 0) {
    ++refused_;
    // A client that does not read the reason sees the end of the connection.
    (void)SendAll(connection.fd.get(), &reply, sizeof(reply));
    return false;
  }
  // A client in another container may be unable to map the regions, and asks for inline batches.
  const bool shared = (hello.flags & ClientHello::kWantsSharedMemory) != 0;
  reply.session = connection.session = RandomSession();
  if (options_.others_serve) reply.flags |= ServerHello::kOthersServe;
  reply.region_count = shared ? static_cast<std::uint32_t>(regions_.size()) : 0;
  if (!SendAll(connection.fd.get(), &reply, sizeof(reply))) return false;
  // The kernel limits the descriptors per message (SCM_MAX_FD), so regions go in several messages.
  for (std::size_t sent = 0; sent < reply.region_count;) {
    const std::size_t count =
        std::min<std::size_t>(limits::kFdsPerMessageMax, reply.region_count - sent);
    if (!SendRegions(connection.fd.get(), std::span(regions_).subspan(sent, count))) return false;
    sent += count;
  }
  // gRPC gets the accepted descriptor, and the acceptor keeps the duplicate, which it only watches.
  UniqueFd watched(fcntl(connection.fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!watched.valid()) return false;
  // Before the hand-over: gRPC may serve the client's Hello, which quotes the session, at once.
  {
    MutexLock lock(mutex_);
    sessions_.insert(connection.session);
  }
  ++connections_;
  hand_over_(std::exchange(connection.fd, std::move(watched)), connection.peer);
  connection.handed_over = true;
  return true;
}

// Milliseconds until the next handshake times out or accepting may be tried again; -1: neither is
// pending. Rounded up, or poll would return just before that time and the loop would spin.
int Acceptor::NextTimeoutMs() const {
  std::int64_t soonest_ns = retry_ns_ > clock_.NowNs() ? retry_ns_ : -1;
  for (const Connection& connection : open_) {
    if (connection.handed_over) continue;
    if (soonest_ns < 0 || connection.deadline_ns < soonest_ns) {
      soonest_ns = connection.deadline_ns;
    }
  }
  if (soonest_ns < 0) return -1;
  return static_cast<int>(std::max<std::int64_t>(0, (soonest_ns - clock_.NowNs()) / kNsPerMs) + 1);
}

// A client that does not complete its handshake in time must not hold a descriptor.
void Acceptor::DropExpired() {
  const std::int64_t now = clock_.NowNs();
  std::erase_if(open_, [&](const Connection& connection) {
    const bool expired = !connection.handed_over && connection.deadline_ns <= now;
    if (expired) ++refused_;
    return expired;
  });
}

}  // namespace forebay::daemon
