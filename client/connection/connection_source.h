// ConnectionSource: the connection that a client's streams share, made again when it breaks: to the
// daemon of this node, or to another node's, if this node's does not come back in time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "client/connection/daemon_connection.h"
#include "client/connection/embedded_daemon.h"
#include "forebay/client.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::internal {

// Thread-safe. Shared by the client and its streams.
class ConnectionSource {
 public:
  // `embedded` is empty where the daemon has an address of its own.
  ConnectionSource(ClientOptions options, std::string config_text, std::string address,
                   std::shared_ptr<EmbeddedDaemon> embedded);

  // A connection other than `broken`: the one that another stream has made meanwhile, or a new
  // one. Null: the first one. Tries again with jittered backoff, until the deadline, while nobody
  // answers or the daemon hangs up in the handshake; a refusal is final. A private daemon that is
  // gone is started again, by one of its clients. Where the daemon of this node has not answered
  // for other_node_after_ms, those of other nodes are tried as well, beginning with another one at
  // each call, unless the deadline of the last call came before the answer. Then a daemon of this
  // node that refuses is passed over like one that is gone. Errors as Client::Connect; kUnavailable
  // also if another stream has been trying to connect until then; kCancelled: interrupted.
  Result<std::shared_ptr<const DaemonConnection>> Replace(const DaemonConnection* broken,
                                                          Deadline deadline,
                                                          Interrupt* interrupt = nullptr);
  // An interrupt of a call of Replace was raised.
  void WakeInterrupted();

  // A connection to the daemon of this node, for a stream of `dataset` that reads from another
  // node. An error: it does not answer within kHandshakeDeadlineMs, refuses this program, or does
  // not have the catalog of that fingerprint. Waits for no other call, and none waits for it.
  Result<std::shared_ptr<const DaemonConnection>> AskHome(const std::string& dataset,
                                                          std::uint64_t fingerprint,
                                                          Interrupt& interrupt) const;
  // Takes what AskHome has returned. True: Replace returns the connection to the daemon of this
  // node now. False: the stream stays where it is; that the daemon refuses this program is said,
  // once. Does not wait for a daemon.
  bool GoHome(Result<std::shared_ptr<const DaemonConnection>> asked);
  // A stream was opened on this connection.
  void Attached(const DaemonConnection& connection);
  // A stream that has been read elsewhere was refused on this connection. Where that is the one to
  // the daemon of this node, the next Replace goes to another node without looking there first.
  void Refused(const DaemonConnection& connection);

  // Ranks begin at different other nodes, so that those of a lost node spread.
  void SpreadBy(std::uint32_t rank) { next_other_ = rank; }

  std::shared_ptr<const DaemonConnection> current() const;
  const std::string& address() const { return address_; }
  const ClientOptions& options() const { return options_; }

 private:
  using Opened = Result<std::shared_ptr<const DaemonConnection>>;
  // Ends the time in which one thread makes a connection, however it ends.
  struct Turn;

  void Say(const std::string& line) const;
  // Says, once, that the daemon of this node refuses the program, if it does.
  void NoteRefusal(const Error& error);
  ConnectionOptions OptionsUntil(Deadline deadline, Interrupt* interrupt) const;
  // From here on: called only by the thread that has set is_replacing_.
  Opened OpenOnce(Deadline deadline, Interrupt* interrupt);
  Opened Connect(const DaemonConnection* broken, Deadline deadline, Interrupt* interrupt);
  // When other nodes are asked, too.
  Deadline OthersFrom(const DaemonConnection* broken);
  // The first of the other nodes that answers, or the error of the last one.
  Opened OpenOther(Deadline deadline, Interrupt* interrupt);
  Status AskOther(Deadline deadline, Interrupt* interrupt);
  void Pause(Deadline until, const Interrupt* interrupt);
  void Use(std::shared_ptr<const DaemonConnection> connection);
  Status StartEmbeddedAgain(Deadline deadline);

  const ClientOptions options_;
  const std::string address_;
  const std::string config_text_;  // that the daemon was configured with, or is to serve
  std::shared_ptr<EmbeddedDaemon> embedded_;  // used only by Connect
  // Used only by the thread that has set is_replacing_, too.
  v1::RemoteDaemons others_;  // as the daemon of this node has named them last
  std::atomic<std::uint32_t> next_other_ = 0;
  // A node that has been asked, and may still answer until then. Null: none is.
  std::shared_ptr<DaemonConnection> asked_other_;
  Deadline asked_until_;
  mutable Mutex mutex_;
  CondVar replaced_;
  // One stream connects; the others wait for its result.
  bool is_replacing_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const DaemonConnection> current_ FOREBAY_GUARDED_BY(mutex_);
  bool is_away_ FOREBAY_GUARDED_BY(mutex_) = false;  // at another node, and this was said
  // The daemon of this node refuses this program, and this was said.
  bool is_refused_ FOREBAY_GUARDED_BY(mutex_) = false;
  // When streams were first without the daemon of this node, until one is opened there.
  std::optional<Deadline> lost_since_ FOREBAY_GUARDED_BY(mutex_);
};

// Pauses of a bounded, jittered exponential backoff: 5 ms, doubling up to 500 ms, each times a
// random factor in [0.5, 1).
class Backoff {
 public:
  explicit Backoff(std::uint64_t seed) : state_(seed | 1) {}
  std::chrono::microseconds Next();

 private:
  std::uint64_t state_;
  std::int64_t pause_us_ = 5'000;
};

}  // namespace forebay::internal
