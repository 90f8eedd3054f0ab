// One thread waits for all sockets (epoll) and moves all bytes. None of its calls blocks, and each
// connection moves about a megabyte in its turn, so a node that does not read, or sends without
// end, holds up no other one. Other threads hand it commands. After its end they run them
// themselves: there is no connection any more, so nothing is done at the same time.
#include "server/peer/tls/payload_connections.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/io/log.h"

namespace forebay::peer {
namespace {

constexpr std::int64_t kNsPerLookMs = 1'000'000;
constexpr const char* kRowsThreadName = "forebay-rows";  // for tools that show threads
// Connections that have not shown a certificate yet, of all strangers together.
constexpr std::size_t kHandshakesMax = 256;
constexpr int kAcceptsInATurn = 64;
// How often Look is called.
constexpr std::int64_t kLookMsMin = 10;
constexpr std::int64_t kLookMsMax = 1'000;
constexpr std::int64_t kSayMs = 60'000;
constexpr const char* kIdle = "nothing was sent for a while";

using AddressInfo = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Names are not resolved, because that may block.
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

// A node that is gone without a word is noticed as early as by gRPC.
void SetSocketOptions(int fd) {
  constexpr int kMsPerS = 1'000;
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, limits::kPeerKeepaliveMs / kMsPerS);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, limits::kPeerKeepaliveTimeoutMs / kMsPerS);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
            limits::kPeerKeepaliveMs + limits::kPeerKeepaliveTimeoutMs);
}

void EndPayload(const Payload& payload, const PayloadCarrier::Ended& ended, const Error& error) {
  for (std::size_t i = 0; i < payload.ends.size(); ++i) ended(i, error);
}

}  // namespace

Result<std::unique_ptr<PayloadConnections>> PayloadConnections::Create(
    PayloadConnectionsOptions options, io::Clock& clock) {
  FOREBAY_ASSIGN(TlsContext context, MakeTlsContext(options.certificates));
  std::unique_ptr<PayloadConnections> made(
      new PayloadConnections(std::move(options), std::move(context), clock));
  FOREBAY_TRY(made->Listen());
  made->epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  made->wake_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  for (const int fd : {made->listener_.get(), made->wake_.get()}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ctl(made->epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return Error::FromErrno(errno, "waiting for connections that bring rows (epoll)");
    }
  }
  made->thread_ = std::thread([connections = made.get()] { connections->Run(); });
  return made;
}

Status PayloadConnections::Listen() {
  int error = EINVAL;
  for (std::uint32_t port = options_.first_port; port <= options_.last_port; ++port) {
    const AddressInfo address =
        ParseAddress(options_.host, static_cast<std::uint16_t>(port), AI_PASSIVE);
    if (!address) break;
    UniqueFd socket = MakeSocket(*address);
    SetOption(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    sockaddr_storage bound{};
    socklen_t bytes = sizeof(bound);
    if (::bind(socket.get(), address->ai_addr, address->ai_addrlen) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0 &&
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) == 0) {
      // The port lies at the same place in both kinds of address.
      port_ = ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
      listener_ = std::move(socket);
      return {};
    }
    error = errno;
  }
  return Error(ErrorCode::kUnavailable,
               fmt::format("cannot listen for bytes of rows on {}, ports {} to {}: {}",
                           options_.host, options_.first_port, options_.last_port,
                           Error::FromErrno(error, "bind").message()));
}

PayloadConnections::~PayloadConnections() { Stop(); }

void PayloadConnections::Stop() {
  Execute([this] {
    const MutexLock lock(mutex_);
    must_stop_ = true;
  });
  if (thread_.joinable()) thread_.join();
}

void PayloadConnections::Execute(Command command) {
  {
    const MutexLock lock(mutex_);
    if (!has_stopped_) {
      commands_.push_back(std::move(command));
      (void)eventfd_write(wake_.get(), 1);  // fails only if it is readable anyway
      return;
    }
  }
  command();
}

PayloadPlace PayloadConnections::Receive(NodeRank node, const Payload& payload, Ended ended) {
  PayloadPlace place = receives_.Post(node, payload, std::move(ended));
  place.port = port_;
  return place;
}

void PayloadConnections::Cancel(std::uint32_t tag) {
  Execute([this, tag] { receives_.Cancel(tag); });
}

void PayloadConnections::Send(NodeRank node, const PayloadPlace& place, const Payload& payload,
                              Ended ended) {
  Execute([this, node, place, payload, ended = std::move(ended)]() mutable {
    Open* const open = OutgoingTo(node);
    if (open == nullptr || !open->connection->is_open() ||
        open->connection->number() != place.connection) {
      return EndPayload(payload, ended,
                    Error(ErrorCode::kUnavailable,
                          fmt::format("the connection to node {} for bytes of rows has ended",
                                      node.value())));
    }
    open->outgoing->Add({.tag = place.tag, .payload = std::move(payload),
                         .ended = std::move(ended)});
    open->has_turn = true;
  });
}

bool PayloadConnections::CanSend(NodeRank node, const PayloadPlace& place) {
  if (place.tag == 0 || place.port == 0 || !options_.hosts.contains(node)) return false;
  {
    const MutexLock lock(mutex_);
    if (must_stop_) return false;
    Way& way = ways_[node];
    if (way.number != 0 && way.number == place.connection) {
      // The other node knows it, too, so it works.
      way.pause.Shorten();
      way.has_failed = false;
      return true;
    }
    const bool is_being_made = way.is_wanted && way.port == place.port;
    if (is_being_made || clock_.NowNs() < way.next_try_ns) return false;
    way.is_wanted = true;
    way.port = place.port;
  }
  Execute([this, node, port = place.port] { Connect(node, port); });
  return false;
}

PayloadConnections::Open* PayloadConnections::OutgoingTo(NodeRank node) {
  const auto found = std::ranges::find_if(open_, [node](const auto& entry) {
    return entry.second.outgoing != nullptr && entry.second.node == node;
  });
  return found == open_.end() ? nullptr : &found->second;
}

void PayloadConnections::Run() {
  prctl(PR_SET_NAME, kRowsThreadName);
  const std::int64_t look_ms =
      std::clamp(std::min(options_.idle_ms, options_.handshake_ms) / 4, kLookMsMin, kLookMsMax);
  std::array<epoll_event, 64> events{};
  while (RunCommands()) {
    const bool has_turn =
        std::ranges::any_of(open_, [](const auto& entry) { return entry.second.has_turn; });
    const bool must_look = !open_.empty() || is_deaf_;
    const int wait_ms = has_turn ? 0 : must_look ? static_cast<int>(look_ms) : -1;
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms);
    for (int i = 0; i < count; ++i) {
      const int fd = events.at(static_cast<std::size_t>(i)).data.fd;
      eventfd_t woken = 0;
      if (fd == listener_.get()) {
        Accept();
      } else if (fd == wake_.get()) {
        (void)eventfd_read(fd, &woken);
      } else if (const auto found = open_.find(fd); found != open_.end()) {
        found->second.has_turn = true;
      }
    }
    // A list, because a connection may end within the turn of another one.
    std::vector<int> turns;
    for (const auto& [fd, open] : open_) {
      if (open.has_turn) turns.push_back(fd);
    }
    for (const int fd : turns) WorkOn(fd);
    if (clock_.NowNs() - look_ns_ >= look_ms * kNsPerLookMs) Look();
  }
}

// Returns whether there is more to do than to end.
bool PayloadConnections::RunCommands() {
  for (;;) {
    std::vector<Command> commands;
    {
      const MutexLock lock(mutex_);
      commands.swap(commands_);
      if (commands.empty() && must_stop_ && open_.empty()) {
        has_stopped_ = true;
        return false;
      }
      if (commands.empty() && !must_stop_) return true;
    }
    for (const Command& command : commands) command();
    if (commands.empty()) {
      while (!open_.empty()) Close(open_.begin()->first, "this node ends");
    }
  }
}

void PayloadConnections::Accept() {
  const auto handshakes = [this] {
    return std::ranges::count_if(open_, [](const auto& entry) {
      return entry.second.outgoing == nullptr && !entry.second.connection->is_open();
    });
  };
  // Not all at once: rows wait meanwhile.
  for (int i = 0; i < kAcceptsInATurn; ++i) {
    UniqueFd socket(
        accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Without descriptors nothing can be accepted for a while.
      if (errno != EAGAIN && errno != EWOULDBLOCK) SetDeaf(true);
      return;
    }
    // The node that has made it tries again later.
    if (static_cast<std::size_t>(handshakes()) >= kHandshakesMax) continue;
    auto session = TlsSession::Create(*context_, std::move(socket), TlsSession::End::kServer);
    if (!session.has_value()) continue;
    Open open;
    open.connection = std::make_unique<IncomingPayloads>(
        std::move(*session), receives_, [this](NodeRank node, IncomingPayloads& connection) {
          return OpenIncoming(node, connection);
        });
    Add(std::move(open), EPOLLIN);
  }
}

// Accepts nothing for a moment, or again.
void PayloadConnections::SetDeaf(bool is_deaf) {
  is_deaf_ = is_deaf;
  epoll_event event{.events = is_deaf ? 0U : static_cast<std::uint32_t>(EPOLLIN),
                    .data = {.fd = listener_.get()}};
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
}

// The node has shown a certificate of the job, and is believed who it is, as everywhere.
bool PayloadConnections::OpenIncoming(NodeRank node, IncomingPayloads& connection) {
  if (!options_.hosts.contains(node)) return false;
  // A node makes another connection when its last one has ended, and perhaps this end has not
  // noticed yet.
  std::vector<int> old;
  for (const auto& [fd, open] : open_) {
    const auto* const incoming = dynamic_cast<const IncomingPayloads*>(open.connection.get());
    if (incoming != nullptr && incoming->is_open() && incoming->node() == node) old.push_back(fd);
  }
  for (const int fd : old) Close(fd, "the node has made another one");
  receives_.SetConnection(node, connection.number());
  return true;
}

void PayloadConnections::Connect(NodeRank node, std::uint16_t port) {
  // The node was started again, and listens at another port.
  if (const Open* const old = OutgoingTo(node)) {
    Close(old->connection->fd(), "the node listens at another port");
    const MutexLock lock(mutex_);
    ways_[node].is_wanted = true;
  }
  const AddressInfo address = ParseAddress(options_.hosts.at(node), port);
  if (!address) return NoteClosed(node, "its address in the list of nodes is no number");
  UniqueFd socket = MakeSocket(*address);
  if (!socket.valid()) return NoteClosed(node, Error::FromErrno(errno, "socket").message());
  SetSocketOptions(socket.get());
  if (::connect(socket.get(), address->ai_addr, address->ai_addrlen) != 0 &&
      errno != EINPROGRESS) {
    return NoteClosed(node, Error::FromErrno(errno, "connect").message());
  }
  auto session = TlsSession::Create(*context_, std::move(socket), TlsSession::End::kClient);
  if (!session.has_value()) return NoteClosed(node, session.error().message());
  auto outgoing = std::make_unique<OutgoingPayloads>(std::move(*session), options_.self);
  Open open;
  open.outgoing = outgoing.get();
  open.connection = std::move(outgoing);
  open.node = node;
  // The socket can be written to when it is connected.
  Add(std::move(open), EPOLLIN | EPOLLOUT);
}

void PayloadConnections::Add(Open open, std::uint32_t events) {
  const int fd = open.connection->fd();
  open.events = events;
  open.idle_since_ns = clock_.NowNs();
  epoll_event event{.events = events, .data = {.fd = fd}};
  const int failed = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
  open_.emplace(fd, std::move(open));
  if (failed != 0) Close(fd, Error::FromErrno(failed, "epoll_ctl").message());
}

void PayloadConnections::WorkOn(int fd) {
  const auto found = open_.find(fd);
  if (found == open_.end()) return;  // ended in the turn of another one
  Open& open = found->second;
  const bool was_open = open.connection->is_open();
  using Wants = PayloadConnection::Wants;
  const Wants wants = open.connection->Work();
  if (wants == Wants::kEnd) return Close(fd, open.connection->error());
  if (!was_open && open.connection->is_open()) {
    SetSocketOptions(fd);
    if (open.outgoing != nullptr) {
      const MutexLock lock(mutex_);
      ways_[open.node].number = open.connection->number();
    }
  }
  open.has_turn = wants == Wants::kAnotherTurn;
  const std::uint32_t events = wants == Wants::kOutput ? EPOLLIN | EPOLLOUT : EPOLLIN;
  if (std::exchange(open.events, events) == events) return;
  epoll_event event{.events = events, .data = {.fd = fd}};
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

// Closes what takes too long, and what nobody uses.
void PayloadConnections::Look() {
  look_ns_ = clock_.NowNs();
  if (is_deaf_) SetDeaf(false);
  std::vector<std::pair<int, const char*>> ended;
  for (auto& [fd, open] : open_) {
    const std::uint64_t moved = open.connection->moved_bytes();
    if (std::exchange(open.moved_bytes, moved) != moved) open.idle_since_ns = look_ns_;
    const std::int64_t idle_ms = (look_ns_ - open.idle_since_ns) / kNsPerLookMs;
    if (!open.connection->is_open()) {
      if (idle_ms >= options_.handshake_ms) ended.emplace_back(fd, "no TLS handshake in time");
    } else if (open.outgoing != nullptr && open.outgoing->is_idle() &&
               idle_ms >= options_.idle_ms) {
      ended.emplace_back(fd, kIdle);
    }
  }
  for (const auto& [fd, why] : ended) Close(fd, why);
}

void PayloadConnections::Close(int fd, const std::string& why) {
  const auto found = open_.find(fd);
  // Taken out first, because the callbacks of what is under way may look at the others.
  const Open closed = std::move(found->second);
  open_.erase(found);
  if (closed.outgoing != nullptr) {
    NoteClosed(closed.node, why);
  } else if (!closed.connection->is_open() &&
             (said_ns_ == 0 || clock_.NowNs() - said_ns_ >= kSayMs * kNsPerLookMs)) {
    said_ns_ = clock_.NowNs();
    log::Warn("refused a connection for bytes of rows: {}; only nodes of the job may make one "
              "(said once a minute at most)",
              why);
  }
  closed.connection->Close(why);
}

void PayloadConnections::NoteClosed(NodeRank node, const std::string& why) {
  bool is_news = false;
  {
    const MutexLock lock(mutex_);
    Way& way = ways_[node];
    way.is_wanted = false;
    way.number = 0;
    if (must_stop_ || why == kIdle) return;
    way.next_try_ns = clock_.NowNs() + way.pause.NextNs();
    is_news = !std::exchange(way.has_failed, true);
  }
  if (is_news) {
    log::Info("rows for node {} go over gRPC until there is another connection for them: {}",
              node.value(), why);
  }
}

}  // namespace forebay::peer
