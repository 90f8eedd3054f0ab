#include "server/stage/gfs/gfs_calls.h"

#include <algorithm>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "proto/contract/mix64.h"
#include "server/io/log.h"

namespace forebay::stage {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;

double Seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

// False if that was the last one.
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

// Chosen by address: calls of different threads are on their stacks, or in their queues.
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
  std::lock_guard lock(shard.mutex);
  next_ = shard.first;
  if (next_ != nullptr) next_->previous_ = this;
  shard.first = this;
}

GfsCalls::Call::~Call() {
  Shard& shard = calls_.ShardOf(*this);
  std::lock_guard lock(shard.mutex);
  (previous_ != nullptr ? previous_->next_ : shard.first) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  if (is_hung_) calls_.Answered(*this);
  if (is_late_) calls_.End(*this);
}

void GfsCalls::Call::Pause() {
  Shard& shard = calls_.ShardOf(*this);
  std::lock_guard lock(shard.mutex);
  is_paused_ = true;
  if (is_hung_) calls_.Answered(*this);
}

void GfsCalls::Call::TryAgain() {
  const std::int64_t now_ns = calls_.clock_.NowNs();
  Shard& shard = calls_.ShardOf(*this);
  std::lock_guard lock(shard.mutex);
  is_paused_ = false;
  tried_ns_ = now_ns;
}

void GfsCalls::Look() {
  const std::int64_t now_ns = clock_.NowNs();
  for (Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    for (Call* call = shard.first; call != nullptr; call = call->next_) LookAt(*call, now_ns);
  }
}

void GfsCalls::LookAt(Call& call, std::int64_t now_ns) {
  if (!call.is_late_ && now_ns - call.begun_ns_ < hung_after_ns_) return;
  std::lock_guard lock(mutex_);
  if (!call.is_late_) {
    call.is_late_ = true;
    ++late_count_;
    ++late_[call.object_.Name()];
  }
  if (call.is_hung_ || call.is_paused_ || now_ns - call.tried_ns_ < hung_after_ns_) return;
  call.is_hung_ = true;
  ++hung_total_;
  if (++hung_[call.object_.Name()] > 1) return;
  log::Warn("the GFS has not answered for {:.0f} s (stage.hung_after): {} of '{}'; other "
            "objects are read meanwhile",
            Seconds(now_ns - call.tried_ns_), call.what_, call.object_.Name());
}

void GfsCalls::Answered(Call& call) {
  const std::int64_t now_ns = clock_.NowNs();
  std::lock_guard lock(mutex_);
  call.is_hung_ = false;
  if (TakeOne(hung_, call.object_.Name())) return;
  log::Warn("the GFS answers again: {} of '{}' took {:.1f} s", call.what_, call.object_.Name(),
            Seconds(now_ns - call.tried_ns_));
}

void GfsCalls::End(Call& call) {
  std::lock_guard lock(mutex_);
  --late_count_;
  TakeOne(late_, call.object_.Name());
}

template <typename Visit>
void GfsCalls::ForEach(Visit visit) const {
  for (const Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    for (const Call* call = shard.first; call != nullptr; call = call->next_) visit(*call);
  }
}

GfsCalls::Figures GfsCalls::figures() const {
  Figures figures;
  const std::int64_t now_ns = clock_.NowNs();
  std::int64_t oldest_ns = now_ns;
  ForEach([&](const Call& call) {
    if (!call.is_hung_) return;
    if (++figures.hung > 1 && call.tried_ns_ >= oldest_ns) return;
    oldest_ns = call.tried_ns_;
    figures.oldest = fmt::format("{} of '{}'", call.what_, call.object_.Name());
  });
  figures.oldest_ms = (now_ns - oldest_ns) / kNsPerMs;
  std::lock_guard lock(mutex_);
  figures.hung_total = hung_total_;
  return figures;
}

std::string GfsCalls::UnderWay() const {
  std::uint64_t count = 0;
  std::int64_t oldest_ns = 0;
  std::string oldest;
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

bool GfsCalls::IsLate(const Object& object) const {
  if (!AnyLate()) return false;
  const std::string name = object.Name();
  std::lock_guard lock(mutex_);
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
