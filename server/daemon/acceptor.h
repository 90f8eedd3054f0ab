// Acceptor: accepts connections on the daemon's Unix socket, compares the client's uid with the
// daemon's, passes the file descriptors of the shared memory, and hands the socket to gRPC. gRPC's
// "local" credentials carry no uid, so the daemon accepts connections itself (docs/design.md, 8).
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

// A shared memory region, as it is announced to clients. The fd is borrowed and must outlive the
// acceptor.
struct SharedEntry {
  RegionEntry entry;
  int fd = -1;
};

// The process at the other end of a connection, as the kernel reports it (SO_PEERCRED).
struct PeerCredentials {
  pid_t pid = 0;  // 0: the process is in another pid namespace
  uid_t uid = 0;
};

struct AcceptorOptions {
  std::string socket_path;       // absolute, at most 107 bytes; its directory must exist
  std::uint64_t generation = 0;
  std::uint32_t connections_max = 0;
  bool others_serve = false;     // other nodes serve the clients if this daemon does not answer
};

// Owns the socket's path, and removes it on destruction. Thread-safe, except for Start and Close.
class Acceptor {
 public:
  // Called on the acceptor's thread with a socket whose handshake has succeeded.
  using HandOver = std::function<void(UniqueFd, const PeerCredentials&)>;
  // Called on the acceptor's thread if poll fails; the thread ends after this call. Existing
  // connections continue, and new ones are not accepted.
  using Broken = std::function<void(const Error&)>;

  // Binds the socket; connections wait in its queue until Start. Removes a stale socket: the caller
  // holds the lease of its directory, so no other daemon uses it. `clock` is borrowed. Errors:
  // kInvalidArgument: the path is too long; kAlreadyExists: a file that is no socket has this name.
  static Result<std::unique_ptr<Acceptor>> Create(const AcceptorOptions& options,
                                                  std::vector<SharedEntry> regions,
                                                  io::Clock& clock, HandOver hand_over,
                                                  Broken broken);
  ~Acceptor();
  // Starts the thread that accepts. Call once, after the owner has stored the acceptor: calls that
  // arrive on the first connection may already use it (KnowsSession).
  void Start();

  // Whether the session number, which a client quotes in Hello, belongs to an open connection.
  bool KnowsSession(std::uint64_t session) const;
  // Connections that are open and have completed the handshake.
  std::uint32_t connection_count() const { return connections_.load(); }
  // Connections that were refused or whose handshake timed out, since the start.
  std::uint64_t refused_count() const { return refused_.load(); }
  // Accepts no more connections; existing ones continue. Returns at once.
  void StopAccepting();
  // Accepts no more connections, and shuts existing ones down in both directions; calls on them
  // end with an error. Returns at once.
  void EndConnections();
  // Ends the thread and removes the socket; the counts stay readable. Idempotent, but two threads
  // must not call it at once.
  void Close();

 private:
  // A connection during its handshake. After the handshake, `fd` is a duplicate of the socket that
  // gRPC has, through which the acceptor notices the end of the connection.
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
  // Handles the events of the connections: polled[i] belongs to open_[i].
  void ServeOpen(std::span<const pollfd> polled);
  void AcceptAll();
  std::uint32_t RefusalOf(const ClientHello& hello) const;
  // These return false if the connection is to be dropped.
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
  std::atomic<bool> ending_ = false;  // EndConnections was called
  std::atomic<std::uint32_t> connections_ = 0;
  std::atomic<std::uint64_t> refused_ = 0;
  std::vector<Connection> open_;  // used by the acceptor's thread only
  std::int64_t retry_ns_ = 0;     // accept no connection before this time; as open_
  mutable Mutex mutex_;
  std::unordered_set<std::uint64_t> sessions_ FOREBAY_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace forebay::daemon
