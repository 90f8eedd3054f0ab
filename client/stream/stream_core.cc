// The caller's side of StreamCore: waits, Finish, Cancel, and batches that come back. Each wait is
// a loop: look at the batch that is due, take it if it is there, otherwise send what is due and
// sleep until gRPC's side or a worker changes something. stream_core_requests.cc says what is sent
// and by whom; gRPC's side is in stream_core_replies.cc.
#include "client/stream/stream_core.h"

#include <sys/random.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "client/stream/gone_readers.h"
#include "proto/contract/check.h"
#include "proto/contract/failure.h"
#include "proto/contract/limits.h"

namespace forebay::internal {
namespace {

using Phase = PulledBatch::Phase;
using std::chrono::steady_clock;

// A caller that waits holds requests back for this time, so that more of them go together
// (SendIsDue). A daemon that has the data in RAM brings the next batches sooner than that; one
// that reads the data first takes longer anyway. Where slot memory suffices for fewer batches than
// half a window, each such round takes this time longer.
constexpr std::chrono::milliseconds kHoldBack(1);

std::string NameOf(const BatchName& name) {
  std::string text = "epoch " + std::to_string(name.epoch.value()) + ", step " +
                     std::to_string(name.step.value());
  if (name.micro_size != 0) text += ", micro-batch " + std::to_string(name.micro_index);
  return text;
}

Error Finished() {
  return Error(ErrorCode::kFailedPrecondition, "the stream has been finished");
}

Error HoldsEverything(std::uint32_t credits) {
  return Error(ErrorCode::kResourceExhausted,
               "the caller holds all " + std::to_string(credits) +
                   " batches of this stream: let go of one, or open it with a larger "
                   "prefetch_depth");
}

Error Cancelled() {
  return Error(ErrorCode::kCancelled, "the stream was cancelled by its reader");
}

Error Late(const BatchName& name) {
  return Error(ErrorCode::kDeadlineExceeded, "the batch of " + NameOf(name) + " has not arrived");
}

// Whether waiting longer may bring the batch.
bool IsUnderWay(const PulledBatch& batch) {
  return batch.phase == Phase::kAsked || batch.phase == Phase::kTransforming;
}

// Whether asking for the batch once more may help.
bool MayBeAskedAgain(const PulledBatch& failed) {
  return !failed.is_hooks_error &&
         RemedyOf(FailureSource::kDaemon, *failed.error) == Remedy::kRetry;
}

// Readers must differ even if a process is forked, or many start at once: so no counter, and no
// clock.
std::uint64_t RandomReader() {
  std::uint64_t value = 0;
  while (value == 0) FOREBAY_CHECK(::getrandom(&value, sizeof(value), 0) == sizeof(value));
  return value;
}

}  // namespace

std::shared_ptr<StreamCore> StreamCore::Create(StreamSettings settings) {
  settings.open.set_reader(RandomReader());
  return std::shared_ptr<StreamCore>(new StreamCore(std::move(settings)));
}

StreamCore::StreamCore(StreamSettings settings)
    : settings_(std::move(settings)),
      credits_(settings_.open.credits()),
      window_(settings_.range),
      assembly_(credits_),
      sender_([this] { RunSender(); }) {
  MutexLock lock(mutex_);
  all_handed_out_ = window_.at_end();
}

StreamCore::~StreamCore() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
    if (call_ != nullptr) CloseCall();
    // The sender ends after the call: until then it may be inside a write, which holds the call.
    stopping_ = true;
  }
  sender_wakes_.NotifyOne();
  sender_.join();
}

// No batch is held any more, because each would own the core. The daemon cannot know that when a
// call simply ends, and would keep the memory. A daemon that does not answer is not waited for: the
// next stream of this client tells it.
void StreamCore::CloseCall() {
  if (opened_ && !ended_) {
    closing_ = true;
    Send();
    changed_.WaitFor(mutex_, std::chrono::milliseconds(limits::kStreamCloseMs),
                     [this]() FOREBAY_REQUIRES(mutex_) { return ended_; });
  }
  const bool daemon_knows =
      ended_ && daemon_ended_ && (close_sent_ || writes_done_) && memory_ == keeper_;
  if (!daemon_knows && keeper_ != 0) {
    GoneReaders::OfProcess().Add(keeper_, settings_.open.reader());
  }
  if (!ended_) call_->Cancel();
  while (!ended_) changed_.Wait(mutex_);
}

void StreamCore::UseTransforms(TransformPool* pool) {
  MutexLock lock(mutex_);
  transforms_ = pool;
}

Status StreamCore::Attach(std::shared_ptr<const DaemonConnection> connection,
                          Deadline deadline) {
  std::unique_ptr<StreamCall> former;
  Discarded discarded;
  UniqueLock lock(mutex_);
  FOREBAY_CHECK(ended_);
  // The former call owns its connection, whose destructor joins gRPC's threads, and one of these
  // may wait for this mutex. So it is destroyed further below, with the mutex released.
  former = std::move(call_);
  AskAgain(discarded);
  // Batches that the former call began and did not complete are dropped. Its releases need not be
  // sent either, because NameHeld says what is left.
  assembly_.Clear();
  reply_schema_ = nullptr;
  releases_.clear();
  ledger_ = {};
  call_error_.reset();
  trailer_.reset();
  // Tells batches of former calls, which callers may still hold, from those of this one.
  ++call_number_;
  opened_ = finish_sent_ = close_sent_ = writes_done_ = ended_ = false;
  // The first request, sent by Start, counts as a write under way: nothing else is written before
  // it.
  writable_ = write_out_ = true;
  call_ = std::make_unique<StreamCall>(std::move(connection), *this);
  reply_connection_ = &call_->connection();
  // The first batches are asked for in the same breath: a cold daemon then begins with the
  // extents that they need, and nobody waits for a round trip.
  *call_->request().mutable_open() = settings_.open;
  NameHeld(*call_->request().mutable_open());
  const std::uint64_t former_keeper = memory_ == 0 ? keeper_ : std::exchange(keeper_, memory_);
  FillQueue();
  AddPulls(call_->request());
  call_->Start();

  lock.Unlock();
  former.reset();
  discarded.clear();
  lock.Lock();
  const auto answered = [this]() FOREBAY_REQUIRES(mutex_) {
    return opened_ || ended_ || NextStops();
  };
  const bool in_time = changed_.WaitUntil(mutex_, deadline, answered);
  // Too late or cancelled. The call is brought to its end here, because the next Attach, like the
  // destructor, relies on a call that has ended.
  const bool gives_up = !in_time || (!opened_ && !ended_ && !failure_);
  if (gives_up) {
    call_->Cancel();
    while (!ended_) changed_.Wait(mutex_);
  }
  discarded.swap(lost_states_);  // destroyed after the lock
  if (gives_up) {
    PutBackGoneReaders();
    return in_time ? Cancelled() : Error(ErrorCode::kDeadlineExceeded,
                                         "the daemon did not open the stream in time");
  }
  if (opened_) {
    // What came after the answer, be it a failure, is for who asks for batches.
    Send();
    return {};
  }
  // The daemon's answer was wrong (failure_), or the call ended without one.
  const Error error = failure_ ? *failure_ : *call_error_;
  if (error.retryable()) {
    PutBackGoneReaders();
  } else if (!failure_) {
    keeper_ = former_keeper;  // the daemon has refused this call
  }
  return error;
}

Result<StreamCore::Outcome> StreamCore::WaitNext(Deadline deadline) {
  UniqueLock lock(mutex_);
  Outcome outcome;
  std::optional<Deadline> held_until;  // of the whole call, however often it is woken
  for (;;) {
    if (NextStops()) return Stop();
    if (finishing_) return Finished();
    std::list<PulledBatch>& queue = window_.queue();
    // Before the look at the call: at the end of the order nothing is needed from it any more.
    if (all_handed_out_) {
      outcome.waited = Waited::kEndOfOrder;
      return outcome;
    }
    if (ended_) {
      outcome.waited = Waited::kCallEnded;
      return outcome;
    }
    // Nothing is under way: either prefetch_depth is 0, or the caller holds so many batches that
    // none could be asked for ahead.
    if (queue.empty()) {
      if (CreditsUsed() >= credits_) return HoldsEverything(credits_);
      window_.AskNext();
    }
    FillQueue();
    PulledBatch& front = queue.front();
    if (front.phase == Phase::kReady) {
      // The fast way: a batch that has arrived costs a lock, a pop and no message. A request that
      // has become due is left to the sender.
      outcome.state = std::move(front.state);
      has_waited_ = false;
      window_.PopFront();
      all_handed_out_ = queue.empty() && window_.at_end();
      FillQueue();
      const bool calls_sender = CallsSender();
      lock.Unlock();
      if (calls_sender) sender_wakes_.NotifyOne();
      return outcome;
    }
    if (front.phase == Phase::kFailed) {
      if (!MayBeAskedAgain(front)) {
        // An error that asking again does not mend (damaged data, a hook that failed) ends the
        // stream: going on behind this batch would skip samples.
        Fail(*front.error);
        return *front.error;
      }
      outcome.waited = Waited::kRefused;
      outcome.error = std::move(front.error);
      // The batch keeps its place in the order, and is asked for again when the caller's pause is
      // over.
      front = PulledBatch{.name = front.name, .state = nullptr, .error = std::nullopt};
      return outcome;
    }
    if (Send()) continue;  // what holds may have changed meanwhile
    const auto began = steady_clock::now();
    if (!held_until) held_until = began + kHoldBack;
    const bool is_over = !AwaitChange(deadline, *held_until);
    // The batch may arrive, or the stream stop, just as the time runs out. Then the next turn of
    // the loop reports that instead of a late batch.
    if (is_over && !queue.empty() && IsUnderWay(queue.front()) && !NextStops() && !ended_) {
      outcome.waited = Waited::kLate;
      outcome.error = Late(queue.front().name);
    }
    outcome.wait_ns += static_cast<std::uint64_t>(
        std::chrono::nanoseconds(steady_clock::now() - began).count());
    if (outcome.waited == Waited::kLate) {
      Send();  // what is held back: a caller that polls with short deadlines waits, too
      return outcome;
    }
  }
}

bool StreamCore::AwaitChange(Deadline deadline, Deadline held_until) {
  const Deadline resume_at =
      !has_waited_ && HoldsBack() ? std::min(deadline, held_until) : deadline;
  if (changed_.WaitUntil(mutex_, resume_at) != std::cv_status::timeout) return true;
  has_waited_ = true;
  return resume_at < deadline;
}

Result<PulledBatch*> StreamCore::AskForNamed(const BatchName& name, Deadline deadline) {
  // Where prefetched batches have taken every credit, the one needed last makes room; Next
  // asks for it again.
  while (!PullStops() && !ended_) {
    if (CreditsUsed() < credits_) return window_.AskNamed(name);
    if (window_.queue().empty()) return HoldsEverything(credits_);
    const PulledBatch& last = window_.queue().back();
    const bool under_way = last.phase == Phase::kTransforming ||
                           (last.phase == Phase::kAsked && last.sent);
    if (!under_way) {
      PulledBatch discarded = window_.TakeBack();
      mutex_.Unlock();
      discarded.state.reset();  // gives its credit back, for which it locks the mutex
      mutex_.Lock();
    // A batch that the daemon or a worker is busy with cannot be taken back: wait until it is
    // ready. The daemon may need the memory of released batches for it.
    } else if (!Send() && changed_.WaitUntil(mutex_, deadline) == std::cv_status::timeout) {
      return nullptr;
    }
  }
  return nullptr;
}

Result<StreamCore::Outcome> StreamCore::WaitNamed(const BatchName& name, Deadline deadline) {
  Outcome outcome;
  UniqueLock lock(mutex_);
  if (finishing_) return Finished();
  has_waited_ = true;  // from now on
  // An earlier call may have asked for it and given up on waiting. It is then under way, or here.
  PulledBatch* batch = window_.FindNamed(name);
  if (batch == nullptr) {
    // Otherwise FillQueue would take each credit as it becomes free, and the named batch none.
    filling_paused_ = true;
    Result<PulledBatch*> asked = AskForNamed(name, deadline);
    filling_paused_ = false;
    if (!asked) return asked.error();
    batch = *asked;
  }
  if (batch == nullptr && !PullStops() && !ended_) {
    outcome.waited = Waited::kLate;
    outcome.error = Late(name);
    return outcome;
  }
  if (batch != nullptr) batch->abandoned = false;
  const auto settled = [&]() FOREBAY_REQUIRES(mutex_) {
    return PullStops() || ended_ || batch->phase == Phase::kReady ||
           batch->phase == Phase::kFailed;
  };
  const auto began = steady_clock::now();
  Send();
  const bool is_late = batch != nullptr && !changed_.WaitUntil(mutex_, deadline, settled);
  outcome.wait_ns = static_cast<std::uint64_t>(
      std::chrono::nanoseconds(steady_clock::now() - began).count());
  if (is_late) {
    // It stays in the window: its answer still comes and must find the batch that it answers. While
    // nobody waits for it, the answer is counted and given back.
    batch->abandoned = true;
    outcome.waited = Waited::kLate;
    outcome.error = Late(name);
    return outcome;
  }
  if (PullStops()) {
    if (batch != nullptr) batch->abandoned = true;
    return Stop();
  }
  if (ended_) {
    outcome.waited = Waited::kCallEnded;
    return outcome;
  }
  // Others remove a named batch only while it is abandoned, so `batch` has stayed valid meanwhile.
  PulledBatch taken = window_.Remove(batch);
  lock.Unlock();
  if (taken.phase == Phase::kFailed) {
    if (!MayBeAskedAgain(taken)) return *taken.error;
    outcome.waited = Waited::kRefused;
    outcome.error = std::move(taken.error);
    return outcome;
  }
  outcome.state = std::move(taken.state);
  return outcome;
}

void StreamCore::EndCall() {
  MutexLock lock(mutex_);
  if (!ended_) call_->Cancel();
  while (!ended_) changed_.Wait(mutex_);
}

void StreamCore::Pause(Deadline until) {
  MutexLock lock(mutex_);
  changed_.WaitUntil(mutex_, until,
                     [this]() FOREBAY_REQUIRES(mutex_) { return PullStops() || closed_; });
}

Status StreamCore::Finish(Deadline deadline) {
  Discarded discarded;
  UniqueLock lock(mutex_);
  if (NextStops()) return Stop();
  // From here on what arrives is counted and given back, and nothing more is asked for.
  finishing_ = true;
  // What is under way on this call still arrives and counts; the rest is not wanted any more.
  while (!window_.queue().empty()) {
    std::list<PulledBatch>& queue = window_.queue();
    const auto unwanted = std::ranges::find_if(queue, [is_over = ended_](const PulledBatch& batch) {
      return batch.phase != Phase::kAsked || !batch.sent || is_over;
    });
    if (unwanted == queue.end()) break;
    discarded.push_back(window_.Remove(&*unwanted).state);
  }
  lock.Unlock();
  discarded.clear();
  lock.Lock();
  Send();
  const auto settled = [this]() FOREBAY_REQUIRES(mutex_) {
    return trailer_ || ended_ || NextStops();
  };
  if (!changed_.WaitUntil(mutex_, deadline, settled)) {
    return Error(ErrorCode::kDeadlineExceeded, "the stream's trailer did not arrive in time");
  }
  if (NextStops()) return Stop();
  // The call broke before the trailer, which the owner may mend by a new call.
  if (!trailer_) return *call_error_;
  FOREBAY_TRY(ledger_.Compare(*trailer_));
  // By the end of the call the daemon has its memory back, which the next stream may need.
  Send();
  const auto over = [this]() FOREBAY_REQUIRES(mutex_) { return ended_ || live_states_ != 0; };
  if (!changed_.WaitUntil(mutex_, deadline, over)) {
    return Error(ErrorCode::kDeadlineExceeded, "the daemon did not end a finished stream in time");
  }
  return {};
}

void StreamCore::Abandon(Error error) {
  {
    MutexLock lock(mutex_);
    Fail(std::move(error));
  }
  changed_.NotifyAll();
}

void StreamCore::Cancel() {
  {
    MutexLock lock(mutex_);
    // A stream that has failed keeps its error, which says more than that it was cancelled as well.
    cancelled_ = cancelled_ || !failure_;
  }
  changed_.NotifyAll();
}

bool StreamCore::is_cancelled() const {
  MutexLock lock(mutex_);
  return cancelled_;
}

bool StreamCore::is_away() const {
  MutexLock lock(mutex_);
  return is_away_;
}

Error StreamCore::Stop() const {
  const bool cancel_counts = cancelled_ && !all_handed_out_;
  return failure_ && !cancel_counts ? *failure_ : Cancelled();
}

void StreamCore::Close() {
  Discarded discarded;
  MutexLock lock(mutex_);
  closed_ = true;
  // The owner destroys the pool next. Batches that arrive from now on are dropped by Place.
  transforms_ = nullptr;
  window_.ForEach([&](PulledBatch& batch) { discarded.push_back(std::move(batch.state)); });
  // The batches' last copies go with `discarded`, after the mutex has been released: each locks it.
  window_.Clear();
}

Error StreamCore::call_error() const {
  MutexLock lock(mutex_);
  return call_error_.value_or(Error(ErrorCode::kUnavailable, "the call has not ended"));
}

std::shared_ptr<const StreamSchema> StreamCore::schema() const {
  MutexLock lock(mutex_);
  return schema_;
}

void StreamCore::OnTransformed(const Batch::State* state, Status status) {
  {
    MutexLock lock(mutex_);
    PulledBatch* batch = window_.FindState(state);
    // Not found: the batch was given up meanwhile (reconnect, finish).
    if (batch == nullptr) return;
    batch->phase = status ? Phase::kReady : Phase::kFailed;
    batch->is_hooks_error = !status;
    if (!status) {
      // By a retryable code callers, and Finish, would take it for a daemon that may come back.
      batch->error = status.error().retryable()
                         ? Error(ErrorCode::kInternal,
                                 "the transform hook has failed: " + status.error().ToString())
                         : std::move(status.error());
    }
  }
  changed_.NotifyAll();
}

void StreamCore::TakeBack(std::unique_ptr<Batch::State> state) {
  bool calls_sender = false;
  {
    MutexLock lock(mutex_);
    // Runs on whatever thread lets go of the last copy. The freed credit may let a batch be asked
    // for, and lets a caller go on that waits for a credit, or Finish for the end of the call.
    --live_states_;
    Recycle(std::move(state));
    FillQueue();
    calls_sender = CallsSender();
    changed_.NotifyAll();
  }
  if (calls_sender) sender_wakes_.NotifyOne();
}

// A credit is a batch that the daemon may be working on or that occupies its memory: it is taken
// from the moment a batch is asked for until the caller's last copy is gone.
std::size_t StreamCore::CreditsUsed() const {
  return live_states_ + window_.without_state();
}

// Asks for the next steps of the order, as far as prefetch_depth and credits allow. They are sent
// with the next request, which SendIsDue decides on.
void StreamCore::FillQueue() {
  if (closed_ || finishing_ || filling_paused_ || PullStops()) return;
  while (window_.queue().size() < settings_.prefetch_depth && CreditsUsed() < credits_) {
    if (window_.AskNext() == nullptr) return;
  }
}

// After a reconnect nothing that the former call was asked for is known to arrive, so it is asked
// for once more. What has arrived stays: its memory is kept by the daemon (NameHeld), or was a
// daemon's that is gone. Named batches that their callers gave up on are forgotten.
void StreamCore::AskAgain(Discarded& discarded) {
  const auto again = [](PulledBatch& batch) {
    if (batch.phase == Phase::kAsked || (batch.phase == Phase::kFailed && !batch.is_hooks_error)) {
      batch = PulledBatch{.name = batch.name, .state = nullptr, .error = std::nullopt};
    }
  };
  std::erase_if(window_.named(), [&](PulledBatch& batch) {
    if (batch.abandoned) discarded.push_back(std::move(batch.state));
    return batch.abandoned;
  });
  window_.ForEach(again);
}

// The first error counts: what follows from it says less about the cause.
void StreamCore::Fail(Error error) {
  if (!failure_) failure_ = std::move(error);
}

}  // namespace forebay::internal
