// The thread waits in accept4, so a connection costs one system call. What ends the wait is that
// the listening socket is shut down.
#include "server/peer/node_acceptor.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "server/io/log.h"

namespace forebay::peer {
namespace {

// Files are free again when a connection ends or a file was read. The nodes that wait for this one
// give up after seconds.
constexpr std::chrono::milliseconds kRetry(20);
constexpr std::chrono::seconds kLogAgain(60);

}  // namespace

Result<std::unique_ptr<NodeAcceptor>> NodeAcceptor::Listen(const std::string& host,
                                                           std::uint16_t port) {
  FOREBAY_ASSIGN(ListeningSocket listening,
                 ListenAt({.host = host, .first_port = port, .last_port = port}));
  // The sockets that it accepts do not block all the same: accept4 says so.
  if (fcntl(listening.socket.get(), F_SETFL, 0) != 0) {
    return Error::FromErrno(errno, "listening for other nodes (fcntl)");
  }
  return std::unique_ptr<NodeAcceptor>(new NodeAcceptor(std::move(listening)));
}

NodeAcceptor::~NodeAcceptor() { Stop(); }

void NodeAcceptor::Start(HandOver hand_over) {
  hand_over_ = std::move(hand_over);
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void NodeAcceptor::Stop() {
  thread_.request_stop();
  (void)shutdown(listening_.socket.get(), SHUT_RDWR);  // fails only if that was done before
  if (thread_.joinable()) thread_.join();
  listening_.socket.Reset();
}

void NodeAcceptor::Run(const std::stop_token& stop) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point quiet_until;  // no line in the log before
  while (!stop.stop_requested()) {
    UniqueFd fd(accept4(listening_.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      SetConnectionOptions(fd.get());
      hand_over_(std::move(fd));
      continue;
    }
    // A signal, or a connection that has ended while it waited.
    if (errno == EINTR || errno == ECONNABORTED || stop.stop_requested()) continue;
    // No file can be opened, or memory is short. The connection stays in the kernel's queue.
    const int error = errno;
    if (const auto now = Clock::now(); now >= quiet_until) {
      quiet_until = now + kLogAgain;
      log::Warn("cannot accept connections of other nodes at present: {}; trying again",
                std::strerror(error));
    }
    const MutexLock lock(mutex_);
    pause_.WaitFor(mutex_, stop, kRetry, [] { return false; });
  }
}

}  // namespace forebay::peer
