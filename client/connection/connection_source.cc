// All streams of a client use one connection. When it breaks, each of them notices by itself and
// calls Replace with the connection that it had: the first one connects while the others wait, each
// until its own deadline, and then take what it has made.
#include "client/connection/connection_source.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "proto/contract/limits.h"

namespace forebay::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

}  // namespace

std::chrono::microseconds Backoff::Next() {
  // A linear congruential generator (Knuth's MMIX constants), of which the upper bits are random
  // enough. Clients that lost the same daemon at once then do not all come back at once.
  state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
  const auto random = static_cast<std::int64_t>(state_ >> 44);  // 20 bits
  const std::int64_t pause = pause_us_ / 2 + ((pause_us_ / 2 * random) >> 20);
  pause_us_ = std::min<std::int64_t>(pause_us_ * 2, 500'000);
  return std::chrono::microseconds(pause);
}

ConnectionSource::ConnectionSource(ClientOptions options, std::string config_text,
                                   std::string address,
                                   std::shared_ptr<EmbeddedDaemon> embedded)
    : options_(std::move(options)),
      address_(std::move(address)),
      config_text_(std::move(config_text)),
      embedded_(std::move(embedded)) {}

std::shared_ptr<const DaemonConnection> ConnectionSource::current() const {
  MutexLock lock(mutex_);
  return current_;
}

Result<std::shared_ptr<const DaemonConnection>> ConnectionSource::OpenOnce(
    Deadline deadline) const {
  // A daemon that accepts the connection and then says nothing costs one try, not the whole time.
  const Deadline shake_by = steady_clock::now() + milliseconds(limits::kHandshakeDeadlineMs);
  return DaemonConnection::Open({.address = address_,
                                 .job_id = options_.job_id,
                                 .client_name = options_.client_name,
                                 .config_text = config_text_,
                                 .shared_memory = options_.shared_memory,
                                 .deadline = std::min(deadline, shake_by)});
}

Result<std::shared_ptr<const DaemonConnection>> ConnectionSource::Replace(
    const DaemonConnection* broken, Deadline deadline) {
  {
    MutexLock lock(mutex_);
    const auto is_free = [this]() FOREBAY_REQUIRES(mutex_) { return !is_replacing_; };
    if (!replaced_.WaitUntil(mutex_, deadline, is_free)) {
      return Error(ErrorCode::kUnavailable,
                   "the connection to the daemon at " + address_ +
                       " is lost, and another stream still tries to make a new one");
    }
    // Another stream has connected while this one waited.
    if (current_ != nullptr && current_.get() != broken) return current_;
    is_replacing_ = true;
  }
  // Also where connecting throws: the others would wait for ever.
  struct Turn {
    ConnectionSource& source;
    ~Turn() {
      MutexLock lock(source.mutex_);
      source.is_replacing_ = false;
      source.replaced_.NotifyAll();
    }
  } const turn{*this};
  return Connect(deadline);
}

Result<std::shared_ptr<const DaemonConnection>> ConnectionSource::Connect(Deadline deadline) {
  Backoff backoff(static_cast<std::uint64_t>(deadline.time_since_epoch().count()));
  for (;;) {
    Result<std::shared_ptr<const DaemonConnection>> opened = OpenOnce(deadline);
    if (opened) {
      // Declared before the lock, so destroyed after it: the last owner of a connection joins
      // gRPC's threads, which takes a while. Streams on it keep it alive until they have moved.
      std::shared_ptr<const DaemonConnection> former;
      MutexLock lock(mutex_);
      former = std::exchange(current_, *opened);
      return opened;
    }
    // Only a private daemon is started here; one that somebody has configured is restarted by
    // whoever runs it. kUnavailable means that no daemon answers there; one that refuses says
    // something else.
    if (opened.error().code() == ErrorCode::kUnavailable && embedded_ && !config_text_.empty()) {
      FOREBAY_TRY(StartEmbeddedAgain(deadline));
      continue;
    }
    const auto pause = backoff.Next();
    const bool is_late = opened.error().code() == ErrorCode::kDeadlineExceeded;
    if (is_late && steady_clock::now() + pause >= deadline) {
      return Error(ErrorCode::kDeadlineExceeded,
                   "the daemon at " + address_ + " accepts connections and does not answer in "
                   "time; it is stopped, or its machine is overloaded: " +
                       opened.error().message());
    }
    if ((!is_late && !opened.error().retryable()) || steady_clock::now() + pause >= deadline) {
      return opened;
    }
    std::this_thread::sleep_for(pause);
  }
}

// Of all clients of the private daemon that is gone, one starts it; the others find it.
Status ConnectionSource::StartEmbeddedAgain(Deadline deadline) {
  FOREBAY_ASSIGN(embedded_, EmbeddedDaemon::StartOrJoin({.job_id = options_.job_id,
                                                         .config = options_.embedded_config,
                                                         .config_text = config_text_,
                                                         .binary = options_.embedded_daemon,
                                                         .directory = {},
                                                         .deadline = deadline}));
  return {};
}

}  // namespace forebay::internal
