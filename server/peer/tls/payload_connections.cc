// One thread waits for all sockets (epoll) and moves all bytes. None of its calls blocks, and each
// connection moves about a megabyte in its turn, so a node that does not read, or sends without
// end, holds up no other one. Other threads hand it commands. After its end they run them
// themselves: there is no connection any more, so nothing is done at the same time.
#include "server/peer/tls/payload_connections.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "server/io/log.h"
#include "server/peer/node_sockets.h"

namespace forebay::peer {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr const char* kRowsThreadName = "forebay-rows";  // for tools that show threads
constexpr int kAcceptsInATurn = 64;
constexpr std::int64_t kDeafMs = 1'000;
// How long a node is not connected to after another one was asked to make room.
constexpr std::int64_t kRoomMs = 100;
constexpr std::int64_t kSayMs = 60'000;
// A payload by which a connection is tried is waited for so long, somewhat longer than a connection
// that brings nothing lives (SetConnectionOptions).
constexpr std::int64_t kTrialMs = 20'000;
constexpr std::int64_t kPausesPerTrial = 4;
constexpr std::int64_t kWaitMsMax = 60'000;

void EndPayload(const Payload& payload, const PayloadCarrier::Ended& ended, const Error& error) {
  for (std::size_t i = 0; i < payload.ends.size(); ++i) ended(i, error);
}

}  // namespace

Result<std::unique_ptr<PayloadConnections>> PayloadConnections::Create(
    PayloadConnectionsOptions options, io::Clock& clock) {
  FOREBAY_ASSIGN(TlsContext context, MakeTlsContext(options.certificates));
  std::unique_ptr<PayloadConnections> made(
      new PayloadConnections(std::move(options), std::move(context), clock));
  const PayloadConnectionsOptions& of = made->options_;
  FOREBAY_ASSIGN(ListeningSocket listening, ListenAt({.host = of.host,
                                                      .first_port = of.first_port,
                                                      .last_port = of.last_port}));
  made->listener_ = std::move(listening.socket);
  made->port_ = listening.port;
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
  if (place.connection != 0 || MayInvite()) place.port = port_;
  return place;
}

// Whether a node may be told the port, so that it makes a connection. Nobody is invited for whom
// there is no room, and only one node at a time if another one has to make room for it.
bool PayloadConnections::MayInvite() {
  const std::int64_t now_ns = clock_.NowNs();
  const std::int64_t room_ns = incoming_room_ns_;
  if (room_ns == 0 || now_ns < room_ns) return room_ns == 0;
  std::int64_t next_ns = next_invitation_ns_;
  return now_ns >= next_ns &&
         next_invitation_ns_.compare_exchange_strong(next_ns, now_ns + kRoomMs * kNsPerMs);
}

void PayloadConnections::Cancel(std::uint32_t tag) {
  Execute([this, tag] { receives_.Cancel(tag); });
}

void PayloadConnections::Send(NodeRank node, const PayloadPlace& place, const Payload& payload,
                              Ended ended) {
  Execute([this, node, place, payload, ended = std::move(ended)]() mutable {
    const auto found = outgoing_of_node_.find(node);
    Open* const open = found == outgoing_of_node_.end() ? nullptr : &open_.at(found->second);
    if (open == nullptr || !open->connection->is_open() ||
        open->connection->number() != place.connection) {
      return EndPayload(payload, ended,
                        Error(ErrorCode::kUnavailable,
                              fmt::format("the connection to node {} for bytes of rows has ended",
                                          node.value())));
    }
    open->outgoing->Add({.tag = place.tag, .payload = std::move(payload),
                         .ended = std::move(ended)});
    outgoing_.Touch(found->second, clock_.NowNs());
    GiveTurn(found->second, *open);
  });
}

bool PayloadConnections::CanSend(NodeRank node, const PayloadPlace& place) {
  if (place.tag == 0 || place.port == 0) return false;
  {
    const MutexLock lock(mutex_);
    if (must_stop_ || !hosts_.contains(node)) return false;
    Way& way = ways_[node];
    const std::int64_t now_ns = clock_.NowNs();
    if (way.number != 0 && way.number == place.connection) {
      // A firewall may let a handshake through and drop all bytes after it. So one payload is sent
      // first, and gRPC brings the others until the node has confirmed it. There is a time limit,
      // because a node does not confirm a payload that it has cancelled.
      if (way.has_carried) return true;
      if (way.tried_ns && now_ns - *way.tried_ns < kTrialMs * kNsPerMs) return false;
      way.tried_ns = now_ns;
      return true;
    }
    if (std::exchange(way.port, place.port) != place.port) {
      // The node was started again, and the failures of before say nothing.
      way.pause.Shorten();
      way.next_try_ns = 0;
    } else if (way.is_wanted) {
      return false;
    }
    // One that takes the place of an earlier one needs no room.
    const bool has_room = way.is_wanted || now_ns >= outgoing_room_ns_;
    if (now_ns < way.next_try_ns || !has_room) return false;
    way.is_wanted = true;
  }
  Execute([this, node, port = place.port] { Connect(node, port); });
  return false;
}

void PayloadConnections::SetHost(NodeRank node, const std::string& host) {
  {
    const MutexLock lock(mutex_);
    std::string& known = hosts_[node];
    if (known == host) return;
    known = host;
  }
  Execute([this, node] {
    if (const auto old = outgoing_of_node_.find(node); old != outgoing_of_node_.end()) {
      Close(old->second, "another node is in its place", Ending::kOnPurpose);
    }
    const MutexLock lock(mutex_);
    Way& way = ways_[node];
    // A connection that was asked for meanwhile is still made.
    way = {.is_wanted = way.is_wanted, .port = way.port};
  });
}

void PayloadConnections::Run() {
  prctl(PR_SET_NAME, kRowsThreadName);
  std::array<epoll_event, 64> events{};
  while (RunCommands()) {
    CloseWhatIsDue();
    PublishRoom();
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 turns_.empty() ? WaitMs() : 0);
    for (int i = 0; i < count; ++i) {
      const int fd = events.at(static_cast<std::size_t>(i)).data.fd;
      eventfd_t woken = 0;
      if (fd == listener_.get()) {
        Accept();
      } else if (fd == wake_.get()) {
        (void)eventfd_read(fd, &woken);
      } else if (const auto found = open_.find(fd); found != open_.end()) {
        GiveTurn(fd, found->second);
      }
    }
    // A connection may end within the turn of another one.
    for (const int fd : std::exchange(turns_, {})) WorkOn(fd);
  }
}

void PayloadConnections::GiveTurn(int fd, Open& open) {
  if (!std::exchange(open.has_turn, true)) turns_.push_back(fd);
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
    }
    for (const Command& command : commands) command();
    {
      const MutexLock lock(mutex_);
      if (!must_stop_) return true;  // what came meanwhile has written to wake_
    }
    if (commands.empty()) {
      while (!open_.empty()) Close(open_.begin()->first, "this node ends", Ending::kOnPurpose);
    }
  }
}

void PayloadConnections::Accept() {
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
    if (Strangers() >= options_.connections_max) continue;
    auto session = TlsSession::Create(*context_, std::move(socket), TlsSession::End::kServer);
    if (!session.has_value()) continue;
    auto incoming = std::make_unique<IncomingPayloads>(
        std::move(*session), receives_, [this](NodeRank node, IncomingPayloads& connection) {
          return OpenIncoming(node, connection);
        });
    Open open;
    open.incoming = incoming.get();
    open.connection = std::move(incoming);
    Add(std::move(open), EPOLLIN);
  }
}

// Connections that have been accepted, and whose nodes have not said yet who they are.
std::size_t PayloadConnections::Strangers() const {
  return open_.size() - incoming_.size() - outgoing_.size();
}

// Accepts nothing for a moment, or again.
void PayloadConnections::SetDeaf(bool is_deaf) {
  deaf_until_ns_.reset();
  if (is_deaf) deaf_until_ns_ = clock_.NowNs() + kDeafMs * kNsPerMs;
  epoll_event event{.events = is_deaf ? 0U : static_cast<std::uint32_t>(EPOLLIN),
                    .data = {.fd = listener_.get()}};
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
}

// The node has shown a certificate of the job, and is believed who it is, as everywhere.
bool PayloadConnections::OpenIncoming(NodeRank node, IncomingPayloads& connection) {
  {
    const MutexLock lock(mutex_);
    if (!hosts_.contains(node)) return false;
  }
  // A node makes another connection when its last one has ended, and perhaps this end has not
  // noticed yet.
  if (const auto old = incoming_of_node_.find(node); old != incoming_of_node_.end()) {
    Close(old->second, "the node has made another one");
  }
  const int fd = connection.fd();
  if (!MakeRoomForIncoming()) {
    open_.at(fd).has_no_room = true;
    return false;
  }
  incoming_of_node_[node] = fd;
  incoming_.Touch(fd, clock_.NowNs());
  receives_.SetConnection(node, connection.number());
  return true;
}

bool PayloadConnections::MakeRoomForIncoming() {
  while (incoming_.size() >= options_.connections_max) {
    const UseOrder::Entry& oldest = *incoming_.oldest();
    if (clock_.NowNs() - oldest.used_ns < options_.keep_ms * kNsPerMs) return false;
    CloseIfUnused(oldest.fd);
  }
  return true;
}

// If something is awaited by an incoming connection, it counts as used now. Otherwise the other
// node sends nothing by it, and cannot begin to: only a receive that is posted names it.
void PayloadConnections::CloseIfUnused(int fd) {
  const IncomingPayloads& incoming = *open_.at(fd).incoming;
  if (!receives_.EndIfUnused(incoming.node(), incoming.number())) {
    return incoming_.Touch(fd, clock_.NowNs());
  }
  Close(fd, "it was not used", Ending::kOnPurpose);
}

void PayloadConnections::Connect(NodeRank node, std::uint16_t port) {
  {
    const MutexLock lock(mutex_);
    if (must_stop_) return;
  }
  // The node was started again, and listens at another port.
  if (const auto old = outgoing_of_node_.find(node); old != outgoing_of_node_.end()) {
    Close(old->second, "the node listens at another port");
  }
  std::string host;
  {
    const MutexLock lock(mutex_);
    ways_[node].is_wanted = true;  // to close another connection has changed it
    host = hosts_.at(node);
  }
  if (outgoing_.size() >= options_.connections_max) {
    AskForRoom();
    const MutexLock lock(mutex_);
    ways_[node].is_wanted = false;
    ways_[node].next_try_ns = clock_.NowNs() + kRoomMs * kNsPerMs;
    return;
  }
  Result<UniqueFd> socket = BeginToConnect(host, port);
  if (!socket.has_value()) return NoteClosed(node, socket.error().message());
  auto session = TlsSession::Create(*context_, std::move(*socket), TlsSession::End::kClient);
  if (!session.has_value()) return NoteClosed(node, session.error().message());
  auto outgoing = std::make_unique<OutgoingPayloads>(std::move(*session), options_.self);
  Open open;
  open.outgoing = outgoing.get();
  open.connection = std::move(outgoing);
  open.node = node;
  outgoing_of_node_[node] = open.connection->fd();
  outgoing_.Touch(open.connection->fd(), clock_.NowNs());
  // The socket can be written to when it is connected.
  Add(std::move(open), EPOLLIN | EPOLLOUT);
}

// Asks the node to which nothing was sent for the longest time to close its connection. Its answer
// is the end of the connection; if it awaits something, the connection will be used.
void PayloadConnections::AskForRoom() {
  const UseOrder::Entry oldest = *outgoing_.oldest();
  const std::int64_t now_ns = clock_.NowNs();
  if (now_ns - oldest.used_ns < options_.keep_ms * kNsPerMs) return;
  Open& open = open_.at(oldest.fd);
  outgoing_.Touch(oldest.fd, now_ns);
  if (!open.connection->is_open() || !open.outgoing->is_idle()) return;
  open.outgoing->AskToClose();
  GiveTurn(oldest.fd, open);
}

void PayloadConnections::Add(Open open, std::uint32_t events) {
  const int fd = open.connection->fd();
  open.events = events;
  handshakes_.Touch(fd, clock_.NowNs());
  epoll_event event{.events = events, .data = {.fd = fd}};
  const int failed = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
  open_.emplace(fd, std::move(open));
  if (failed != 0) Close(fd, Error::FromErrno(failed, "epoll_ctl").message());
}

void PayloadConnections::WorkOn(int fd) {
  const auto found = open_.find(fd);
  if (found == open_.end()) return;  // ended in the turn of another one
  Open& open = found->second;
  PayloadConnection& connection = *open.connection;
  open.has_turn = false;
  const bool was_open = connection.is_open();
  const std::uint64_t moved = connection.moved_bytes();
  using Wants = PayloadConnection::Wants;
  const Wants wants = connection.Work();
  NoteProgress(fd, open, was_open);
  if (wants == Wants::kEnd) {
    return Close(fd, connection.error(),
                 connection.was_closed() ? Ending::kOnPurpose : Ending::kLost);
  }
  if (connection.is_open() && connection.moved_bytes() != moved) {
    (open.outgoing != nullptr ? outgoing_ : incoming_).Touch(fd, clock_.NowNs());
  }
  if (wants == Wants::kAnotherTurn) GiveTurn(fd, open);
  const std::uint32_t events = wants == Wants::kOutput ? EPOLLIN | EPOLLOUT : EPOLLIN;
  if (std::exchange(open.events, events) != events) {
    epoll_event event{.events = events, .data = {.fd = fd}};
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  }
  if (open.incoming != nullptr && open.incoming->TakeCloseRequest()) CloseIfUnused(fd);
}

void PayloadConnections::NoteProgress(int fd, Open& open, bool was_open) {
  if (!was_open && open.connection->is_open()) {
    handshakes_.Remove(fd);
    SetConnectionOptions(fd);
  }
  if (open.outgoing == nullptr || !open.connection->is_open()) return;
  const bool has_carried = open.outgoing->has_carried();
  if (was_open && has_carried == open.has_carried) return;
  open.has_carried = has_carried;
  const MutexLock lock(mutex_);
  Way& way = ways_[open.node];
  way.number = open.connection->number();
  if (!has_carried) return;
  way.has_carried = true;
  way.pause.Shorten();
  way.refused_pause.Shorten();
  way.has_failed = false;
}

// Closes what takes too long, and what nobody uses. Both begin with the oldest one.
void PayloadConnections::CloseWhatIsDue() {
  const std::int64_t now_ns = clock_.NowNs();
  if (deaf_until_ns_ && now_ns >= *deaf_until_ns_) SetDeaf(false);
  const auto is_due = [now_ns](const UseOrder& order, std::int64_t after_ms) {
    return order.oldest() != nullptr && now_ns - order.oldest()->used_ns >= after_ms * kNsPerMs;
  };
  while (is_due(handshakes_, options_.handshake_ms)) {
    Close(handshakes_.oldest()->fd, "no TLS handshake in time");
  }
  while (is_due(incoming_, options_.idle_ms)) CloseIfUnused(incoming_.oldest()->fd);
}

// How long nothing is due.
int PayloadConnections::WaitMs() const {
  std::optional<std::int64_t> due_ns = deaf_until_ns_;
  const auto note = [&due_ns](const UseOrder& order, std::int64_t after_ms) {
    if (order.oldest() == nullptr) return;
    const std::int64_t ns = order.oldest()->used_ns + after_ms * kNsPerMs;
    due_ns = due_ns ? std::min(*due_ns, ns) : ns;
  };
  note(handshakes_, options_.handshake_ms);
  note(incoming_, options_.idle_ms);
  if (!due_ns) return -1;
  // Rounded up.
  const std::int64_t left_ms = (*due_ns - clock_.NowNs()) / kNsPerMs + 1;
  return static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, kWaitMsMax));
}

void PayloadConnections::PublishRoom() {
  const auto room_ns = [this](const UseOrder& order) {
    if (order.size() < options_.connections_max) return std::int64_t{0};
    return order.oldest()->used_ns + options_.keep_ms * kNsPerMs;
  };
  // While strangers have all places, a node that comes would be refused.
  std::int64_t strangers_room_ns = 0;
  if (Strangers() >= options_.connections_max && handshakes_.oldest() != nullptr) {
    strangers_room_ns = handshakes_.oldest()->used_ns + options_.handshake_ms * kNsPerMs;
  }
  incoming_room_ns_ = std::max(room_ns(incoming_), strangers_room_ns);
  outgoing_room_ns_ = room_ns(outgoing_);
}

void PayloadConnections::Close(int fd, const std::string& why, Ending ending) {
  const auto found = open_.find(fd);
  // Taken out first, because the callbacks of what is under way may look at the others.
  const Open closed = std::move(found->second);
  open_.erase(found);
  handshakes_.Remove(fd);
  incoming_.Remove(fd);
  outgoing_.Remove(fd);
  if (ending == Ending::kOnPurpose) closed.connection->SayEnd();
  if (closed.outgoing != nullptr) {
    outgoing_of_node_.erase(closed.node);
    NoteClosed(closed.node, why, ending);
  } else if (closed.connection->is_open()) {
    incoming_of_node_.erase(closed.incoming->node());
  } else if (closed.has_no_room) {
    closed.connection->SayEnd();
  } else if (IsTimeToSay(said_refused_ns_)) {
    log::Warn("refused a connection for bytes of rows: {}; only nodes of the job may make one "
              "(said once a minute at most)",
              why);
  }
  closed.connection->Close(why);
}

// Whether the log may name another case of what it has named at `said_ns`.
bool PayloadConnections::IsTimeToSay(std::optional<std::int64_t>& said_ns) const {
  const std::int64_t now_ns = clock_.NowNs();
  if (said_ns && now_ns - *said_ns < kSayMs * kNsPerMs) return false;
  said_ns = now_ns;
  return true;
}

void PayloadConnections::NoteClosed(NodeRank node, const std::string& why, Ending ending) {
  bool is_news = false;
  {
    const MutexLock lock(mutex_);
    Way& way = ways_[node];
    way.is_wanted = false;
    way.number = 0;
    const bool has_carried = std::exchange(way.has_carried, false);
    const std::optional<std::int64_t> tried_ns = std::exchange(way.tried_ns, std::nullopt);
    if (must_stop_ || (ending == Ending::kOnPurpose && has_carried)) return;
    const std::int64_t now_ns = clock_.NowNs();
    if (ending == Ending::kOnPurpose) {
      // A node that closes a connection unused has no room for it, which is no failure.
      way.next_try_ns = now_ns + way.refused_pause.NextNs();
      return;
    }
    // A payload that was lost after a long time has kept a reader waiting, so the next one is
    // risked much later.
    const std::int64_t lasted_ns = tried_ns && !has_carried ? now_ns - *tried_ns : 0;
    way.next_try_ns = now_ns + std::max(way.pause.NextNs(), kPausesPerTrial * lasted_ns);
    is_news = !way.has_failed && IsTimeToSay(said_lost_ns_);
    if (is_news) way.has_failed = true;
  }
  if (is_news) {
    log::Info("rows for node {} go over gRPC until there is another connection for them: {} (said "
              "once a minute at most)",
              node.value(), why);
  }
}

}  // namespace forebay::peer
