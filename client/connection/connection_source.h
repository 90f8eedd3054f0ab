// ConnectionSource: the connection that a client's streams share, made anew when it breaks.
#pragma once

#include <cstdint>
#include <memory>
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
  // gone is started again, by one of its clients. Errors as Client::Connect; kUnavailable also if
  // another stream has been trying to connect until then.
  Result<std::shared_ptr<const DaemonConnection>> Replace(const DaemonConnection* broken,
                                                          Deadline deadline);

  std::shared_ptr<const DaemonConnection> current() const;
  const std::string& address() const { return address_; }
  const ClientOptions& options() const { return options_; }

 private:
  Result<std::shared_ptr<const DaemonConnection>> OpenOnce(Deadline deadline) const;
  // Both are called only by the thread that has set is_replacing_.
  Result<std::shared_ptr<const DaemonConnection>> Connect(Deadline deadline);
  Status StartEmbeddedAgain(Deadline deadline);

  const ClientOptions options_;
  const std::string address_;
  const std::string config_text_;  // that the daemon was configured with, or is to serve
  std::shared_ptr<EmbeddedDaemon> embedded_;  // used only by Connect
  mutable Mutex mutex_;
  CondVar replaced_;
  // One stream connects; the others wait for its result.
  bool is_replacing_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const DaemonConnection> current_ FOREBAY_GUARDED_BY(mutex_);
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
