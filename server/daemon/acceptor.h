// Acceptor: takes connections on the daemon's Unix socket, checks who is there, passes the
// shared regions, and hands the socket to gRPC. ("Local" gRPC credentials carry no uid, so we
// accept ourselves; design 8.)
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "proto/contract/unique_fd.h"
#include "proto/contract/wire_layout.h"
#include "server/io/clock.h"

namespace forebay::daemon {

// A region as a client is told of it. The fd is borrowed and must outlive the acceptor.
struct SharedEntry {
  RegionEntry entry;
  int fd = -1;
};

// Who is at the other end, by the kernel's word.
struct PeerCredentials {
  pid_t pid = 0;  // 0: in another pid namespace
  uid_t uid = 0;
};

struct AcceptorOptions {
  std::string socket_path;       // absolute, at most 107 bytes; its directory must exist
  std::uint64_t generation = 0;
  std::uint32_t connections_max = 0;
};

// Owns the socket's path: removes it on destruction. Thread-safe.
class Acceptor {
 public:
  // Called on the acceptor's thread with a socket that passed the handshake.
  using HandOver = std::function<void(UniqueFd, const PeerCredentials&)>;
  // Called on the acceptor's thread, as the last thing that it does, where it cannot watch its
  // sockets any more. Connections that are there stay, no new ones are taken.
  using Broken = std::function<void(const Error&)>;

  // Binds; connections wait until Start. A stale socket is removed: the caller holds the
  // daemon's lease, so nobody can be behind it. kInvalidArgument: the path is too long;
  // kAlreadyExists: it is taken by something that is no socket.
  static Result<std::unique_ptr<Acceptor>> Create(const AcceptorOptions& options,
                                                  std::vector<SharedEntry> regions,
                                                  io::Clock& clock, HandOver hand_over,
                                                  Broken broken);
  ~Acceptor();
  // Begins to accept, on a thread of its own. Once, by the owner, who can be found by now by
  // those that the hand-over wakes.
  void Start();

  bool KnowsSession(std::uint64_t session) const;
  std::uint32_t connection_count() const { return connections_.load(); }
  std::uint64_t refused_count() const { return refused_.load(); }
  // Takes no more connections; those there stay.
  void StopAccepting();
  // Takes no more, and ends those there on both sides, whatever is under way on them.
  void EndConnections();
  // Ends the thread and removes the socket; the counts stay readable. Idempotent; not to be
  // called by two threads at once.
  void Close();

 private:
  // A connection in its handshake, or, once handed over, watched for its end.
  struct Connection {
    UniqueFd fd;
    PeerCredentials peer;
    std::uint64_t session = 0;
    std::int64_t deadline_ns = 0;
    std::size_t received = 0;
    ClientHello hello;
    bool handed_over = false;
  };

  Acceptor(const AcceptorOptions& options, std::vector<SharedEntry> regions, io::Clock& clock,
           HandOver hand_over, Broken broken);
  Status Listen();
  void Run();
  void Wake();
  // `polled` are the entries of open_, in its order.
  void ServeOpen(std::span<const pollfd> polled);
  void AcceptAll();
  std::uint32_t RefusalOf(const ClientHello& hello) const;
  // False where the connection is to be dropped.
  bool Progress(Connection& connection);
  bool Complete(Connection& connection);
  int NextTimeoutMs() const;
  void DropExpired();

  const AcceptorOptions options_;
  const std::vector<SharedEntry> regions_;
  io::Clock& clock_;
  const HandOver hand_over_;
  const Broken broken_;
  UniqueFd listen_fd_;
  UniqueFd wake_fd_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> accepting_ = true;
  std::atomic<bool> ending_ = false;  // connections
  std::atomic<std::uint32_t> connections_ = 0;
  std::atomic<std::uint64_t> refused_ = 0;
  std::vector<Connection> open_;  // the thread's own
  std::int64_t retry_ns_ = 0;     // no accepting before; the thread's own
  mutable Mutex mutex_;
  std::unordered_set<std::uint64_t> sessions_ FOREBAY_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace forebay::daemon
