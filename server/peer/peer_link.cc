// A list of calls that wait, and the set of those that have begun. Whatever may let a call begin
// (an answer to Hello, the end of another call) takes calls off the list under the mutex and begins
// them without it, because gRPC may run callbacks within any of its functions. A call waits with an
// alarm, not with a thread; the alarm finds the call on the list or does nothing.
#include "server/peer/peer_link.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "forebay/v1/peer.grpc.pb.h"
#include "proto/contract/limits.h"
#include "server/peer/channel_settings.h"
#include "server/peer/open_channels.h"
#include "server/stage/extent_source.h"

namespace forebay::peer {
namespace {

using CallSet = std::unordered_set<std::shared_ptr<PeerCall>>;

// The call is in the set.
CallSet::iterator FindIn(CallSet& calls, const PeerCall* raw) {
  return std::ranges::find_if(
      calls, [raw](const std::shared_ptr<PeerCall>& call) { return call.get() == raw; });
}

// Beyond the streams of a connection, gRPC itself would let calls wait, and probes would wait
// behind them. So the other streams are for probes, pings and Hello.
constexpr std::size_t kCallsMax = limits::kRpcStreamsPerConnectionMax - 8;

Error Stopping() { return Error(ErrorCode::kCancelled, "the daemon is shutting down"); }

}  // namespace

struct PeerLink::HelloCall {
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Peer::Stub> stub;
  grpc::ClientContext context;
  v1::PeerHelloRequest request;
  v1::PeerHelloReply reply;
};

PeerLink::PeerLink(const PeerIdentity& identity, std::string address, io::Clock& clock,
                   std::shared_ptr<const NodeCertificates> certificates, OpenChannels* channels)
    : identity_(identity),
      certificates_(std::move(certificates)),
      clock_(clock),
      channels_(channels),
      address_(std::move(address)) {}

PeerLink::~PeerLink() { Stop(); }

// gRPC runs no callback while it makes a channel, so that may be done under the mutex.
bool PeerLink::UseChannelLocked() {
  used_ns_ = clock_.NowNs();
  const bool has_one = channel_ != nullptr;
  if (!has_one) {
    channel_ = ConnectionTo(address_, certificates_ ? *certificates_ : NodeCertificates());
  }
  return channels_ != nullptr && (!has_one || channels_->is_crowded());
}

// A caller may still hold a call that has ended, and with it the channel (ExtentCall::Await). It
// must not be the last one to do so, just as the end of a call must not (Ended). A channel that
// still connects is kept, too: where many nodes are asked at once, connections take longer than the
// calls wait, and the next calls need them.
bool PeerLink::NeedsChannelLocked() const {
  return !waiting_.empty() || !active_.empty() || !hellos_.empty() || !alarmed_.empty() ||
         ending_ > 0 || channel_.use_count() > 1 ||
         (channel_ && channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_CONNECTING);
}

PeerLink::ChannelUse PeerLink::channel_use() const {
  const MutexLock lock(mutex_);
  return {.is_open = channel_ != nullptr,
          .is_needed = NeedsChannelLocked(),
          .used_ns = used_ns_};
}

std::shared_ptr<grpc::Channel> PeerLink::TakeUnusedChannel() {
  const MutexLock lock(mutex_);
  if (NeedsChannelLocked()) return nullptr;
  return std::exchange(channel_, nullptr);
}

std::string PeerLink::address() const {
  const MutexLock lock(mutex_);
  return address_;
}

void PeerLink::Add(std::shared_ptr<PeerCall> call, std::optional<std::int64_t> begin_ns) {
  Calls ready;
  std::shared_ptr<HelloCall> hello;
  std::optional<Error> refused;
  bool must_tell = false;
  {
    const MutexLock lock(mutex_);
    refused = call->is_withdrawn_ ? std::optional(Withdrawn()) : WhyRefusedLocked();
    if (!refused) {
      must_tell = UseChannelLocked();
      call->added_ns_ = begin_ns.value_or(clock_.NowNs());
      if (begin_ns) {
        call->is_resting_ = true;
        waiting_.push_front(call);
        SetRestAlarmLocked(call, *begin_ns);
      } else {
        waiting_.push_back(call);
      }
      ready = TakeReadyLocked();
      const bool waits = !begin_ns && std::ranges::find(ready, call) == ready.end();
      if (waits) SetAlarmLocked(call);
      if (hello_ == Hello::kUnsaid) {
        // The first call says Hello for all that come meanwhile. It is noted under the lock, so
        // that Stop finds it.
        hello_ = Hello::kUnderWay;
        hello = hello_call_ = std::make_shared<HelloCall>();
        hello->address = address_;
        hello->channel = channel_;
        hellos_.push_back(hello);
      }
    }
  }
  if (refused) return call->Fail(*refused);
  if (must_tell) channels_->Used(*this);
  if (hello) SayHello(hello);
  BeginAll(ready);
}

void PeerLink::StartAtOnce(const std::shared_ptr<PeerCall>& call) {
  std::optional<Error> refused;
  bool must_tell = false;
  {
    const MutexLock lock(mutex_);
    refused = WhyRefusedLocked();
    if (!refused) {
      must_tell = UseChannelLocked();
      call->channel_ = channel_;
      active_.insert(call);
    }
  }
  if (refused) return call->Fail(*refused);
  if (must_tell) channels_->Used(*this);
  BeginAll({call});
}

// Why no call can begin now, or nothing.
std::optional<Error> PeerLink::WhyRefusedLocked() const {
  if (is_stopping_) return Stopping();
  if (address_.empty()) {
    return Error(ErrorCode::kUnavailable, "no node has taken this place of the job yet");
  }
  return std::nullopt;
}

void PeerLink::BeginAll(const Calls& calls) {
  for (const std::shared_ptr<PeerCall>& call : calls) call->Begin(call->channel_);
}

// A call without bytes (an extent, whose number is bounded by the reader threads) does not wait for
// room, and rows do not wait behind it.
PeerLink::Calls PeerLink::TakeReadyLocked() {
  Calls ready;
  if (hello_ != Hello::kAgreed || is_stopping_) return ready;
  const std::uint64_t bound = bound_.bytes();
  bool is_full = false;
  std::erase_if(waiting_, [&](const std::shared_ptr<PeerCall>& call) FOREBAY_REQUIRES(mutex_) {
    if (call->is_resting_ || under_way_ >= kCallsMax) return false;
    const std::uint64_t bytes = call->bytes();
    // One call alone may be larger than the bound.
    const bool fits =
        bytes_in_flight_ == 0 || (bytes <= bound && bytes_in_flight_ <= bound - bytes);
    if (bytes > 0 && (is_full || !fits)) {
      is_full = true;
      return false;
    }
    bytes_in_flight_ += bytes;
    call->waits_its_turn_ = true;
    call->begun_ns_ = clock_.NowNs();
    if (under_way_++ == 0) busy_since_ns_ = call->begun_ns_;
    call->channel_ = channel_;
    // Entered before it begins, so that Stop cancels it also in between.
    active_.insert(call);
    call->alarm_.Cancel();
    ready.push_back(call);
    return true;
  });
  return ready;
}

// The callback runs once, when the alarm goes off or is cancelled, and the link keeps the call
// until then. So the callback needs only two pointers.
void PeerLink::SetAlarmLocked(const std::shared_ptr<PeerCall>& call) {
  alarmed_.insert(call);
  call->alarm_.Set(GrpcDeadline(call->deadline_ns(), clock_),
                   [this, raw = call.get()](bool has_gone_off) { AlarmEnded(raw, has_gone_off); });
}

void PeerLink::AlarmEnded(const PeerCall* raw, bool has_gone_off) {
  std::shared_ptr<PeerCall> call;
  {
    const MutexLock lock(mutex_);
    call = *FindIn(alarmed_, raw);
  }
  if (has_gone_off) Expire(call);
  {
    const MutexLock lock(mutex_);
    alarmed_.erase(call);
    ++ending_;
  }
  call.reset();  // as in Ended
  const MutexLock lock(mutex_);
  --ending_;
  changed_.NotifyAll();
}

// A call that rests needs no alarm at its deadline, which comes later.
void PeerLink::SetRestAlarmLocked(const std::shared_ptr<PeerCall>& call, std::int64_t begin_ns) {
  alarmed_.insert(call);
  call->rest_alarm_.emplace();
  call->rest_alarm_->Set(GrpcDeadline(begin_ns, clock_),
                         [this, raw = call.get()](bool) { RestEnded(raw); });
}

void PeerLink::CancelAlarms(PeerCall& call) {
  call.alarm_.Cancel();
  if (call.rest_alarm_) call.rest_alarm_->Cancel();
}

// Also called if the rest was cancelled, because the call is not to be made any more. It is not on
// the list then.
void PeerLink::RestEnded(const PeerCall* raw) {
  std::shared_ptr<PeerCall> call;
  Calls ready;
  {
    const MutexLock lock(mutex_);
    const auto rested = FindIn(alarmed_, raw);
    call = *rested;
    // Erased before another alarm is set. Stop waits for this function by ending_.
    alarmed_.erase(rested);
    ++ending_;
    call->is_resting_ = false;
    if (std::ranges::find(waiting_, call) != waiting_.end()) {
      ready = TakeReadyLocked();
      if (std::ranges::find(ready, call) == ready.end()) SetAlarmLocked(call);
    }
  }
  BeginAll(ready);
  ready.clear();
  call.reset();  // as in Ended
  const MutexLock lock(mutex_);
  --ending_;
  changed_.NotifyAll();
}

// That a call has waited here for its turn says nothing about a node that has agreed to Hello: the
// calls before it may wait for the GFS. If the node is silent, those calls are late (LinkWatch).
void PeerLink::Expire(const std::shared_ptr<PeerCall>& call) {
  bool has_agreed = false;
  {
    // Whoever takes the call off the list decides what becomes of it.
    const MutexLock lock(mutex_);
    if (std::erase(waiting_, call) == 0) return;  // it has begun
    has_agreed = hello_ == Hello::kAgreed;
  }
  if (has_agreed) {
    return call->Fail(stage::NotSent(fmt::format(
        "node {}: the request was not sent before its deadline, because others went before it",
        address())));
  }
  call->Fail(Error(ErrorCode::kDeadlineExceeded,
                   fmt::format("node {}: no answer to Hello before the deadline", address())));
}

void PeerLink::Withdraw(PeerCall& call) {
  std::shared_ptr<PeerCall> found;
  Calls ready;
  bool waits = false;
  {
    const MutexLock lock(mutex_);
    call.is_withdrawn_ = true;
    const auto waiting = std::ranges::find_if(
        waiting_, [&call](const std::shared_ptr<PeerCall>& each) { return each.get() == &call; });
    waits = waiting != waiting_.end();
    if (waits) {
      found = std::move(*waiting);
      waiting_.erase(waiting);
      CancelAlarms(*found);
      ready = TakeReadyLocked();  // those that had to wait behind it
    } else if (const auto active = FindIn(active_, &call); active != active_.end()) {
      found = *active;
    } else {
      return;
    }
    ++ending_;
  }
  if (waits) {
    found->Fail(Withdrawn());
  } else {
    found->Cancel();
  }
  BeginAll(ready);
  ready.clear();
  found.reset();  // as in Ended
  const MutexLock lock(mutex_);
  --ending_;
  changed_.NotifyAll();
}

void PeerLink::AddBusyTimeLocked() {
  const std::int64_t now_ns = clock_.NowNs();
  figures_.busy_ns += static_cast<std::uint64_t>(now_ns - busy_since_ns_);
  busy_since_ns_ = now_ns;
}

void PeerLink::Count(std::uint64_t received_bytes, bool has_failed,
                     std::uint64_t carried_bytes) {
  const MutexLock lock(mutex_);
  ++figures_.calls;
  figures_.failed += has_failed ? 1 : 0;
  figures_.received_bytes += received_bytes;
  figures_.carried_bytes += carried_bytes;
}

void PeerLink::CountWrong() {
  const MutexLock lock(mutex_);
  ++figures_.wrong;
}

LinkFigures PeerLink::figures() {
  const MutexLock lock(mutex_);
  if (under_way_ > 0) AddBusyTimeLocked();
  figures_.bound_bytes = bound_.bytes();
  return figures_;
}

void PeerLink::Ended(PeerCall& call, std::uint64_t answered_bytes) {
  Calls ready;
  {
    const MutexLock lock(mutex_);
    // The call stays in active_ until the end, so that Stop does not return before this function
    // has begun the calls that wait.
    bytes_in_flight_ -= call.bytes();
    used_ns_ = clock_.NowNs();
    // The speed of a node at an earlier address says nothing about this one.
    if (answered_bytes > 0 && call.channel_ == channel_) {
      bound_.OnAnswer(answered_bytes, used_ns_ - call.begun_ns_, used_ns_);
      if (call.is_watched_ && !call.was_excused_) answer_times_.Add(used_ns_ - call.added_ns_);
    }
    if (call.waits_its_turn_ && --under_way_ == 0) AddBusyTimeLocked();
    ready = TakeReadyLocked();
  }
  BeginAll(ready);
  ready.clear();
  std::shared_ptr<PeerCall> ended;
  {
    const MutexLock lock(mutex_);
    const auto found = FindIn(active_, &call);
    ended = *found;
    active_.erase(found);
    ++ending_;
  }
  // Its context refers to the channel. gRPC cannot bear it if the last reference to a channel goes
  // on one of its own threads, so this one goes before Stop returns.
  ended.reset();
  const MutexLock lock(mutex_);
  --ending_;
  changed_.NotifyAll();
}

void PeerLink::SayHello(const std::shared_ptr<HelloCall>& call) {
  call->stub = v1::Peer::NewStub(call->channel);
  // Short, because nothing has to be read for it: a node that takes longer does not answer.
  call->context.set_deadline(
      GrpcDeadline(clock_.NowNs() + limits::kHandshakeDeadlineMs * 1'000'000, clock_));
  WriteHello(identity_, call->request);
  // The link keeps the call until HeardHello, so a plain pointer is enough.
  call->stub->async()->Hello(
      &call->context, &call->request, &call->reply,
      [this, raw = call.get()](const grpc::Status& status) {
        HeardHello(raw, status.ok() ? Status() : FromGrpcStatus(status, raw->address));
      });
}

void PeerLink::HeardHello(const HelloCall* raw, const Status& status) {
  std::shared_ptr<HelloCall> call;
  Calls ready;
  std::deque<std::shared_ptr<PeerCall>> refused;
  {
    const MutexLock lock(mutex_);
    const auto heard = std::ranges::find(hellos_, raw, &std::shared_ptr<HelloCall>::get);
    call = std::move(*heard);
    hellos_.erase(heard);
    ++ending_;
    // An answer from an earlier address says nothing about the node that is asked now.
    if (call == hello_call_) {
      hello_call_ = nullptr;
      // After an error the next call says Hello again.
      hello_ = status.has_value() ? Hello::kAgreed : Hello::kUnsaid;
      if (status.has_value()) {
        ready = TakeReadyLocked();
      } else {
        refused.swap(waiting_);
      }
      for (const std::shared_ptr<PeerCall>& waiting : refused) CancelAlarms(*waiting);
    }
  }
  for (const std::shared_ptr<PeerCall>& waiting : refused) waiting->Fail(status.error());
  BeginAll(ready);
  ready.clear();  // these, and the context of Hello, go before Stop returns, as in Ended
  refused.clear();
  call.reset();
  // Last: Stop waits for it.
  const MutexLock lock(mutex_);
  --ending_;
  changed_.NotifyAll();
}

PeerLink::Ending PeerLink::TakeToEndLocked(const std::function<bool(const PeerCall&)>& is_meant,
                                           AtOnce at_once) {
  Ending calls;
  std::erase_if(waiting_, [&](const std::shared_ptr<PeerCall>& call) {
    if (!is_meant(*call)) return false;
    CancelAlarms(*call);
    calls.waiting.push_back(call);
    return true;
  });
  for (const std::shared_ptr<PeerCall>& call : active_) {
    if (at_once == AtOnce::kGoOn && !call->waits_its_turn_) continue;
    if (!is_meant(*call)) continue;
    call->is_given_up_ = true;
    calls.active.push_back(call);
  }
  ++ending_;
  return calls;
}

void PeerLink::End(Ending calls, const Error& why) {
  for (const std::shared_ptr<PeerCall>& call : calls.waiting) call->Fail(why);
  // The error of a cancelled call is kUnavailable, too.
  for (const std::shared_ptr<PeerCall>& call : calls.active) call->Cancel();
  calls.waiting.clear();  // as in Ended
  calls.active.clear();
  const MutexLock lock(mutex_);
  --ending_;
  changed_.NotifyAll();
}

void PeerLink::GiveUp() {
  Ending calls;
  std::string address;
  {
    const MutexLock lock(mutex_);
    address = address_;
    // Probes and pings go on, because they find out whether the node answers.
    calls = TakeToEndLocked([](const PeerCall&) { return true; }, AtOnce::kGoOn);
  }
  End(std::move(calls),
      Error(ErrorCode::kUnavailable,
            fmt::format("node {} counts as dead, because it does not answer probes", address)));
}

bool PeerLink::Redirect(const std::string& address) {
  std::vector<std::shared_ptr<grpc::Channel>> unused;
  std::shared_ptr<HelloCall> hello;
  std::string before;
  Ending calls;
  {
    const MutexLock lock(mutex_);
    if (is_stopping_ || address == address_) return false;
    before = std::exchange(address_, address);
    // Nobody else takes a reference to an old connection any more, so one that has a single one is
    // not used. The others are kept, because a call must not have the last reference (Ended).
    if (channel_) old_channels_.push_back(std::exchange(channel_, nullptr));
    std::vector<std::shared_ptr<grpc::Channel>> old = std::exchange(old_channels_, {});
    for (std::shared_ptr<grpc::Channel>& each : old) {
      (each.use_count() > 1 ? old_channels_ : unused).push_back(std::move(each));
    }
    hello = std::exchange(hello_call_, nullptr);
    hello_ = Hello::kUnsaid;
    old_wrong_ = figures_.wrong;
    bound_ = FlightBound();
    answer_times_ = AnswerTimes();
    calls = TakeToEndLocked([](const PeerCall&) { return true; }, AtOnce::kEnd);
  }
  if (hello) hello->context.TryCancel();
  hello.reset();  // before End, as in Ended
  End(std::move(calls), Error(ErrorCode::kUnavailable,
                              fmt::format("node {}: {} is in its place now", before,
                                          address.empty() ? "nobody" : address)));
  return true;
}

LinkState PeerLink::AddSilence(std::int64_t elapsed_ns,
                               const std::function<bool()>& is_suspected) {
  const MutexLock lock(mutex_);
  if (under_way_ > 0) AddBusyTimeLocked();
  LinkState state{.usual_ns = answer_times_.usual_ns(),
                  .received_bytes = figures_.received_bytes,
                  .busy_ns = figures_.busy_ns,
                  .wrong = figures_.wrong - old_wrong_};
  std::optional<bool> suspected;  // asked for only if a call needs it
  const auto add = [&](PeerCall& call) {
    if (!call.is_watched_ || call.is_resting_ || call.is_given_up_) return;
    state.has_excused = state.has_excused || call.is_excused_;
    if (call.is_excused_ && !suspected) suspected = is_suspected();
    // Its whole silence is forgotten, so that short suspicions do not add up.
    if (call.is_excused_ && !*suspected) call.silent_ns_ = PeerCall::kNotLookedAt;
    if (call.is_excused_ && !*suspected) return;
    // A call that was not looked at before has not been silent for the whole of the last period. If
    // a part of the answer comes at the same time, that counts.
    std::int64_t before_ns = call.silent_ns_;
    const std::int64_t after_ns =
        before_ns == PeerCall::kNotLookedAt ? 0 : before_ns + elapsed_ns;
    if (!call.silent_ns_.compare_exchange_strong(before_ns, after_ns)) return;
    state.silent_ns = std::max(state.silent_ns, after_ns);
  };
  for (const std::shared_ptr<PeerCall>& call : active_) add(*call);
  // Calls that wait for their turn do not count until the node has agreed to Hello, which has a
  // deadline of its own; nor while the node has said of a call before them that it waits.
  if (hello_ == Hello::kAgreed && (!state.has_excused || *suspected)) {
    for (const std::shared_ptr<PeerCall>& call : waiting_) add(*call);
  }
  return state;
}

void PeerLink::EndLate(std::int64_t after_ns, const std::string& why) {
  const auto is_late = [after_ns](const PeerCall& call) {
    if (!call.is_watched_ || call.is_given_up_) return false;
    return !call.waits_its_turn_ || call.silent_ns_ > after_ns;
  };
  Ending calls;
  std::string address;
  {
    const MutexLock lock(mutex_);
    address = address_;
    calls = TakeToEndLocked(is_late, AtOnce::kGoOn);
    figures_.late += calls.waiting.size() + calls.active.size();
  }
  End(std::move(calls),
      Error(ErrorCode::kUnavailable, fmt::format("node {}: {}", address, why)));
}

void PeerLink::Stop() {
  std::deque<std::shared_ptr<PeerCall>> waiting;
  Calls active;
  std::shared_ptr<HelloCall> hello;
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    waiting.swap(waiting_);
    for (const std::shared_ptr<PeerCall>& call : waiting) CancelAlarms(*call);
    active.assign(active_.begin(), active_.end());
    hello = hello_call_;
  }
  for (const std::shared_ptr<PeerCall>& call : waiting) call->Fail(Stopping());
  // A call that has not begun yet ends as soon as it begins.
  if (hello) hello->context.TryCancel();
  for (const std::shared_ptr<PeerCall>& call : active) call->Cancel();
  const MutexLock lock(mutex_);
  while (!active_.empty() || !alarmed_.empty() || ending_ > 0 || !hellos_.empty()) {
    changed_.Wait(mutex_);
  }
}

}  // namespace forebay::peer
