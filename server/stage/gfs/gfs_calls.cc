// Calls register themselves in a few intrusive lists (shards), so that starting and ending a call
// costs a short lock and no allocation. Look, once a second, walks through the lists and marks what
// has become late or hung; the tables by object name hold only marked calls, so they are small.
#include "server/stage/gfs/gfs_calls.h"

#include <algorithm>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "proto/contract/mix64.h"
#include "server/io/log.h"

namespace forebay::stage {
namespace {

double Seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

// Counts the object down. Returns false if that was its last call.
bool TakeOne(std::unordered_map<std::string, std::uint64_t>& counts, const std::string& name) {
  const auto found = counts.find(name);
  FOREBAY_CHECK(found != counts.end());
  if (--found->second > 0) return true;
  counts.erase(found);
  return false;
}

}  // namespace

std::string GfsCalls::Object::Name() const {
  return path.empty() ? std::string(root) : fmt::format("{}/{}", root, path);
}

// Calls lie on the stacks of their threads or in their queues, so their addresses spread them over
// the shards.
GfsCalls::Shard& GfsCalls::ShardOf(const Call& call) {
  return shards_[Mix64(reinterpret_cast<std::uintptr_t>(&call)) % kShards];
}

GfsCalls::Call::Call(GfsCalls& calls, std::string_view what, const Object& object)
    : calls_(calls),
      what_(what),
      object_(object),
      thread_(std::this_thread::get_id()),
      begun_ns_(calls.clock_.NowNs()),
      tried_ns_(begun_ns_) {
  Shard& shard = calls_.ShardOf(*this);
  const MutexLock lock(shard.mutex);
  next_ = shard.first;
  if (next_ != nullptr) next_->previous_ = this;
  shard.first = this;
}

GfsCalls::Call::~Call() {
  if (what_ == kReadCall) calls_.NoteRead(calls_.clock_.NowNs() - begun_ns_);
  Shard& shard = calls_.ShardOf(*this);
  const MutexLock lock(shard.mutex);
  // Under the shard's lock, so that Look does not visit the call, or mark it, after it has ended.
  (previous_ != nullptr ? previous_->next_ : shard.first) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  if (is_hung_) calls_.Answered(*this);
  if (is_late_) calls_.End(*this);
}

void GfsCalls::Call::Pause() {
  Shard& shard = calls_.ShardOf(*this);
  const MutexLock lock(shard.mutex);
  // An error is an answer, so the call is no longer hung. It may still be late.
  is_paused_ = true;
  if (is_hung_) calls_.Answered(*this);
}

void GfsCalls::Call::TryAgain() {
  const std::int64_t now_ns = calls_.clock_.NowNs();
  Shard& shard = calls_.ShardOf(*this);
  const MutexLock lock(shard.mutex);
  // The time without an answer is counted anew, because the try before was answered.
  is_paused_ = false;
  tried_ns_ = now_ns;
}

void GfsCalls::Call::Hold() {
  const std::int64_t now_ns = calls_.clock_.NowNs();
  Shard& shard = calls_.ShardOf(*this);
  const MutexLock lock(shard.mutex);
  is_held_ = true;
  held_ns_ = now_ns;
  // What it has asked the GFS for before was answered, or its thread would not be here.
  if (is_hung_) calls_.Answered(*this);
}

void GfsCalls::Call::GoOn() {
  const std::int64_t now_ns = calls_.clock_.NowNs();
  Shard& shard = calls_.ShardOf(*this);
  const MutexLock lock(shard.mutex);
  is_held_ = false;
  begun_ns_ += now_ns - held_ns_;
  tried_ns_ = now_ns;
}

void GfsCalls::Look() {
  const std::int64_t now_ns = clock_.NowNs();
  for (Shard& shard : shards_) {
    const MutexLock lock(shard.mutex);
    for (Call* call = shard.first; call != nullptr; call = call->next_) LookAt(*call, now_ns);
  }
}

// A call is late if it began too long ago, retries included; it is hung if its last try did and has
// no answer. Both are logged or counted once.
void GfsCalls::LookAt(Call& call, std::int64_t now_ns) {
  if (call.is_held_) return;
  // Most calls leave here, without the lock of the tables.
  if (!call.is_late_ && now_ns - call.begun_ns_ < late_after_ns_) return;
  const MutexLock lock(mutex_);
  if (!call.is_late_) {
    call.is_late_ = true;
    ++late_count_;
    ++late_[call.object_.Name()];
  }
  if (call.is_hung_ || call.is_paused_ || now_ns - call.tried_ns_ < hung_after_ns_) return;
  call.is_hung_ = true;
  ++hung_total_;
  // One line for each object: a second hung call about it says nothing new.
  if (++hung_[call.object_.Name()] > 1) return;
  log::Warn("the GFS has not answered for {:.0f} s (stage.hung_after): {} of '{}'; other "
            "objects are read meanwhile",
            Seconds(now_ns - call.tried_ns_), call.what_, call.object_.Name());
}

// One line when the last hung call about an object is answered, as LookAt logs one for the first.
void GfsCalls::Answered(Call& call) {
  const std::int64_t now_ns = clock_.NowNs();
  const MutexLock lock(mutex_);
  call.is_hung_ = false;
  if (TakeOne(hung_, call.object_.Name())) return;
  log::Warn("the GFS answers again: {} of '{}' took {:.1f} s", call.what_, call.object_.Name(),
            Seconds(now_ns - call.tried_ns_));
}

void GfsCalls::End(Call& call) {
  const MutexLock lock(mutex_);
  --late_count_;
  TakeOne(late_, call.object_.Name());
}

template <typename Visit>
void GfsCalls::ForEach(Visit visit) const {
  for (const Shard& shard : shards_) {
    const MutexLock lock(shard.mutex);
    for (const Call* call = shard.first; call != nullptr; call = call->next_) visit(*call);
  }
}

// A node whose reads took long a moment ago must not tell others that its reads are fast; nor must
// one long read count for ever.
void GfsCalls::BeginWindowLocked(std::int64_t now_ns) const {
  constexpr std::int64_t kWindowNs = 30'000 * kNsPerMs;
  if (now_ns - window_ns_ < kWindowNs) return;
  // A window in which no read has ended says nothing, so what was before it stays.
  if (longest_ns_ > 0) longest_before_ns_ = longest_ns_;
  longest_ns_ = 0;
  window_ns_ = now_ns;
}

void GfsCalls::NoteRead(std::int64_t took_ns) {
  const std::int64_t now_ns = clock_.NowNs();
  const MutexLock lock(reads_mutex_);
  BeginWindowLocked(now_ns);
  longest_ns_ = std::max<std::int64_t>({longest_ns_, took_ns, 1});
  constexpr std::int64_t kQuickNs = 1'000 * kNsPerMs;
  if (took_ns < kQuickNs) quick_ns_ = now_ns;
}

GfsCalls::Pace GfsCalls::pace() const {
  const std::int64_t now_ns = clock_.NowNs();
  Pace pace;
  {
    const MutexLock lock(reads_mutex_);
    BeginWindowLocked(now_ns);
    pace.longest_ns = std::max(longest_ns_, longest_before_ns_);
    if (quick_ns_) pace.since_quick_ns = now_ns - *quick_ns_;
  }
  ForEach([&](const Call& call) {
    if (!call.is_held_) pace.oldest_ns = std::max(pace.oldest_ns, now_ns - call.begun_ns_);
  });
  return pace;
}

GfsCalls::Figures GfsCalls::figures() const {
  Figures figures;
  const std::int64_t now_ns = clock_.NowNs();
  std::int64_t oldest_ns = now_ns;
  // The shards are visited one after another, and calls begin and end meanwhile. So these figures
  // are not of one moment, which is enough for a status.
  ForEach([&](const Call& call) {
    if (!call.is_hung_) return;
    if (++figures.hung > 1 && call.tried_ns_ >= oldest_ns) return;
    oldest_ns = call.tried_ns_;
    figures.oldest = fmt::format("{} of '{}'", call.what_, call.object_.Name());
  });
  figures.oldest_ms = (now_ns - oldest_ns) / kNsPerMs;
  const MutexLock lock(mutex_);
  figures.hung_total = hung_total_;
  return figures;
}

std::string GfsCalls::UnderWay() const {
  std::uint64_t count = 0;
  std::int64_t oldest_ns = 0;
  std::string oldest;
  // All calls count, not only those that Look has found late: any of them may keep the daemon from
  // ending.
  ForEach([&](const Call& call) {
    if (++count > 1 && call.begun_ns_ >= oldest_ns) return;
    oldest_ns = call.begun_ns_;
    oldest = fmt::format("{} of '{}'", call.what_, call.object_.Name());
  });
  if (count == 0) return {};
  oldest += fmt::format(" for {:.1f} s", Seconds(clock_.NowNs() - oldest_ns));
  if (count > 1) oldest += fmt::format(", and {} other call{}", count - 1, count > 2 ? "s" : "");
  return oldest;
}

// Asked before every read, so the usual case, in which no call is late, costs one atomic load.
bool GfsCalls::IsLate(const Object& object) const {
  if (!AnyLate()) return false;
  const std::string name = object.Name();
  const MutexLock lock(mutex_);
  return late_.contains(name);
}

std::vector<std::thread::id> GfsCalls::LateThreads() const {
  std::vector<std::thread::id> threads;
  if (!AnyLate()) return threads;
  ForEach([&](const Call& call) {
    if (call.is_late_) threads.push_back(call.thread_);
  });
  std::ranges::sort(threads);
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  return threads;
}

}  // namespace forebay::stage
