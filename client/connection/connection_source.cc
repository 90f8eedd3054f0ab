// All streams of a client use one connection. When it breaks, each of them notices by itself and
// calls Replace with the connection that it had: the first one connects while the others wait, each
// until its own deadline, and then take what it has made.
#include "client/connection/connection_source.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "proto/contract/limits.h"

namespace forebay::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long a stream that may go to another node waits for the daemon of this node first. One that
// is gone refuses at once. A caller who waits for a shorter time waits there for half of it, so
// that time is left for the rest.
constexpr milliseconds kLookHome(500);
Deadline LookHomeEnd(Deadline until) {
  const Deadline now = steady_clock::now();
  return now + std::min<steady_clock::duration>(kLookHome, (until - now) / 2);
}
// The time for the daemon of another node to answer. It is short, because a silent node must not
// use up the time in which the next one could answer. It goes on from call to call, so a caller who
// waits for a shorter time reaches a node that answers slowly.
constexpr milliseconds kAskOther(1000);
constexpr milliseconds kLookAgain(100);

bool IsRaised(const Interrupt* interrupt) {
  return interrupt != nullptr && interrupt->is_raised();
}

// Whether a daemon has answered that it does not serve this program.
bool IsRefusal(const Error& error) {
  return !error.retryable() && error.code() != ErrorCode::kDeadlineExceeded &&
         error.code() != ErrorCode::kCancelled;
}

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

struct ConnectionSource::Turn {
  ConnectionSource& source;
  ~Turn() {
    MutexLock lock(source.mutex_);
    source.is_replacing_ = false;
    source.replaced_.NotifyAll();
  }
};

ConnectionOptions ConnectionSource::OptionsUntil(Deadline deadline, Interrupt* interrupt) const {
  // A daemon that accepts the connection and then says nothing costs one try, not the whole time.
  const Deadline shake_by = steady_clock::now() + milliseconds(limits::kHandshakeDeadlineMs);
  return {.address = address_,
          .job_id = options_.job_id,
          .client_name = options_.client_name,
          .config_text = config_text_,
          .shared_memory = options_.shared_memory,
          .may_leave = options_.other_node_after_ms >= 0,
          .deadline = std::min(deadline, shake_by),
          .interrupt = interrupt};
}

// A daemon that refuses this program does so for as long as it runs (it has another configuration,
// or belongs to another job). A program that reads from another node says so, once.
void ConnectionSource::NoteRefusal(const Error& error) {
  if (!IsRefusal(error)) return;
  bool is_new = false;
  {
    const MutexLock lock(mutex_);
    is_new = is_away_ && !std::exchange(is_refused_, true);
  }
  if (is_new) {
    Say("the daemon at " + address_ + " is there, and refuses this program, which goes on reading "
        "from another node of the job: " + error.message());
  }
}

ConnectionSource::Opened ConnectionSource::OpenOnce(Deadline deadline, Interrupt* interrupt) {
  Opened opened = DaemonConnection::Open(OptionsUntil(deadline, interrupt));
  if (!opened) NoteRefusal(opened.error());
  return opened;
}

void ConnectionSource::WakeInterrupted() {
  const MutexLock lock(mutex_);
  replaced_.NotifyAll();
}

ConnectionSource::Opened ConnectionSource::Replace(const DaemonConnection* broken,
                                                   Deadline deadline, Interrupt* interrupt) {
  {
    MutexLock lock(mutex_);
    const auto may_go_on = [this, interrupt]() FOREBAY_REQUIRES(mutex_) {
      return !is_replacing_ || IsRaised(interrupt);
    };
    const bool in_time = replaced_.WaitUntil(mutex_, deadline, may_go_on);
    if (IsRaised(interrupt)) return Interrupt::Raised();
    if (!in_time) {
      return Error(ErrorCode::kUnavailable,
                   "the connection to the daemon at " + address_ +
                       " is lost, and another stream still tries to make a new one");
    }
    // Another stream has connected while this one waited.
    if (current_ != nullptr && current_.get() != broken) return current_;
    is_replacing_ = true;
  }
  // Also where connecting throws: the others would wait for ever.
  const Turn turn{*this};
  return Connect(broken, deadline, interrupt);
}

ConnectionSource::Opened ConnectionSource::AskHome(const std::string& dataset,
                                                   std::uint64_t fingerprint,
                                                   Interrupt& interrupt) const {
  const Deadline deadline = steady_clock::now() + milliseconds(limits::kHandshakeDeadlineMs);
  std::shared_ptr<const DaemonConnection> home = current();
  // Otherwise another stream has gone back.
  if (home->is_other_node()) {
    FOREBAY_ASSIGN(home, DaemonConnection::Open(OptionsUntil(deadline, &interrupt)));
  }
  // One that is started again may take long to list the data set, and the stream would wait.
  if (!home->HasCatalog(dataset, fingerprint, deadline, &interrupt)) {
    return Error(ErrorCode::kUnavailable,
                 "the daemon at " + address_ + " does not have this catalog of " + dataset);
  }
  return home;
}

bool ConnectionSource::GoHome(Opened asked) {
  if (!asked) {
    NoteRefusal(asked.error());
    return false;
  }
  {
    const MutexLock lock(mutex_);
    if (!current_->is_other_node()) return true;  // another stream has gone back
    if (is_replacing_) return false;  // another stream connects, and looks there by itself
    is_replacing_ = true;
  }
  const Turn turn{*this};
  Use(std::move(*asked));
  return true;
}

void ConnectionSource::Attached(const DaemonConnection& connection) {
  if (connection.is_other_node()) return;
  bool was_away = false;
  {
    MutexLock lock(mutex_);
    lost_since_.reset();
    is_refused_ = false;
    was_away = std::exchange(is_away_, false);
  }
  if (was_away) Say("the daemon at " + address_ + " is back, and this program reads from it again");
}

void ConnectionSource::Refused(const DaemonConnection& connection) {
  if (connection.is_other_node()) return;
  MutexLock lock(mutex_);
  lost_since_ = steady_clock::now() - milliseconds(std::max<std::int64_t>(
                                          options_.other_node_after_ms, 0));
}

// Makes it the connection of all streams, and says so if they leave this node. That they are back
// is said when a stream was opened there, which the daemon may refuse.
void ConnectionSource::Use(std::shared_ptr<const DaemonConnection> connection) {
  if (!connection->is_other_node()) others_ = connection->remote_daemons();
  bool leaves = false;
  if (connection->is_other_node()) {
    MutexLock lock(mutex_);
    leaves = !std::exchange(is_away_, true);
  }
  if (leaves) {
    Say("the daemon at " + address_ + " does not answer; this program reads from another node of "
        "the job, " + connection->address() +
        ", over the network, which is slower, until it is back");
  }
  // Declared before the lock, so destroyed after it: the last owner of a connection joins gRPC's
  // threads, which takes a while. Streams on it keep it alive until they have moved.
  std::shared_ptr<const DaemonConnection> former;
  MutexLock lock(mutex_);
  former = std::exchange(current_, std::move(connection));
}

void ConnectionSource::Say(const std::string& line) const {
  if (options_.notice) {
    options_.notice(line);
  } else {
    std::fprintf(stderr, "forebay: %s\n", line.c_str());
  }
}

Status ConnectionSource::AskOther(Deadline deadline, Interrupt* interrupt) {
  if (asked_other_ == nullptr) {
    const auto count = static_cast<std::uint32_t>(others_.addresses_size());
    // Never the same one twice in a row: one that has refused a stream accepts connections.
    asked_other_ = DaemonConnection::ToOther(
        others_, others_.addresses(static_cast<int>(next_other_++ % count)));
    asked_until_ = steady_clock::now() + kAskOther;
  }
  // The caller may have computed since the last call, and the answer may have come meanwhile.
  const Deadline until = std::max(asked_until_, steady_clock::now() + kLookAgain);
  return asked_other_->Greet(OptionsUntil(std::min(deadline, until), interrupt));
}

ConnectionSource::Opened ConnectionSource::OpenOther(Deadline deadline, Interrupt* interrupt) {
  Error last(ErrorCode::kUnavailable, "the time was over before one was asked");
  const int count = others_.addresses_size();
  for (int i = 0; i < count && steady_clock::now() < deadline && !IsRaised(interrupt); ++i) {
    const Status greeted = AskOther(deadline, interrupt);
    // The next call goes on with a node whose time is not over.
    const bool may_answer_later = !greeted &&
                                  greeted.error().code() == ErrorCode::kDeadlineExceeded &&
                                  steady_clock::now() < asked_until_;
    if (may_answer_later) return greeted.error();
    const std::shared_ptr<const DaemonConnection> asked = std::exchange(asked_other_, nullptr);
    if (greeted) return asked;
    last = greeted.error();
  }
  return last;
}

Deadline ConnectionSource::OthersFrom(const DaemonConnection* broken) {
  const MutexLock lock(mutex_);
  if (broken != nullptr && !lost_since_) lost_since_ = steady_clock::now();
  const bool may_leave =
      lost_since_ && others_.addresses_size() > 0 && options_.other_node_after_ms >= 0;
  return may_leave ? *lost_since_ + milliseconds(options_.other_node_after_ms) : Deadline::max();
}

void ConnectionSource::Pause(Deadline until, const Interrupt* interrupt) {
  const MutexLock lock(mutex_);
  replaced_.WaitUntil(mutex_, until, [interrupt] { return IsRaised(interrupt); });
}

ConnectionSource::Opened ConnectionSource::Connect(const DaemonConnection* broken,
                                                   Deadline deadline, Interrupt* interrupt) {
  Backoff backoff(static_cast<std::uint64_t>(deadline.time_since_epoch().count()));
  Deadline others_from = OthersFrom(broken);
  // A daemon that ends accepts connections for a while, and refuses streams.
  bool skips_home = broken != nullptr && !broken->is_other_node() &&
                    steady_clock::now() >= others_from;
  for (;; skips_home = false) {
    // A daemon that accepts connections and says nothing must not hold up the way to others.
    const Deadline home_by = std::min(deadline, std::max(others_from, LookHomeEnd(deadline)));
    Opened opened = skips_home ? Opened(Error(ErrorCode::kUnavailable,
                                              "the daemon at " + address_ + " ends every stream"))
                               : OpenOnce(home_by, interrupt);
    if (IsRaised(interrupt)) return Interrupt::Raised();
    // A daemon that ends in good order removes its socket, so nobody has to wait for another one in
    // its place. One that was killed leaves it.
    const bool has_ended = !opened && opened.error().system_errno() == ENOENT;
    if (has_ended && others_from < Deadline::max()) {
      others_from = std::min(others_from, steady_clock::now());
    }
    // The daemon of this node refuses the program, but other nodes of the job may serve it.
    if (!opened && others_from < Deadline::max() && IsRefusal(opened.error())) {
      opened = Error(ErrorCode::kUnavailable, opened.error().ToString());
    }
    const bool is_late = !opened && opened.error().code() == ErrorCode::kDeadlineExceeded;
    const bool may_answer_later = !opened && (is_late || opened.error().retryable());
    if (may_answer_later && steady_clock::now() >= others_from) {
      Opened other = OpenOther(deadline, interrupt);
      if (IsRaised(interrupt)) return Interrupt::Raised();
      opened = other ? std::move(other)
                     : opened.error().WithContext("no other node of the job serves this program "
                                                  "either (" + other.error().message() + ")");
    }
    if (opened) {
      Use(*opened);
      return opened;
    }
    // Only a private daemon is started here; one that somebody has configured is restarted by
    // whoever runs it. kUnavailable means that no daemon answers there; one that refuses says
    // something else.
    if (opened.error().code() == ErrorCode::kUnavailable && embedded_ && !config_text_.empty()) {
      FOREBAY_TRY(StartEmbeddedAgain(deadline));
      continue;
    }
    const Deadline again = steady_clock::now() + backoff.Next();
    if (is_late && again >= deadline) {
      return Error(ErrorCode::kDeadlineExceeded,
                   "the daemon at " + address_ + " accepts connections and does not answer in "
                   "time; it is stopped, or its machine is overloaded: " +
                       opened.error().message());
    }
    if (!may_answer_later || again >= deadline) return opened;
    Pause(again, interrupt);
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
