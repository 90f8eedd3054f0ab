// One mutex guards the lists of jobs and the counts of those under way, so that Next decides on one
// state. A job is in one list, or a thread has it. Postponed jobs and deferred loads change only
// when an extent is staged, not whether.
#include "server/stage/staging_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace forebay::stage {
namespace {

constexpr std::int64_t kDeferredPauseNs = 1'000'000'000;  // before each try of a deferred load

}  // namespace

Error ShuttingDown() { return Error(ErrorCode::kCancelled, "the daemon is shutting down"); }

std::optional<StagingQueue::Unfinished> StagingQueue::Stop() {
  Unfinished unfinished;
  {
    // From here on Next returns nothing, and no job can be added. Postponed and resumed
    // loads count as unfinished, too: they hold claims, for which readers may wait.
    const MutexLock lock(mutex_);
    if (std::exchange(stopping_, true)) return std::nullopt;
    unfinished.loads.swap(demands_);
    for (std::deque<StagingJob>* const jobs : {&postponed_, &resumed_}) {
      std::ranges::move(*jobs, std::back_inserter(unfinished.loads));
      jobs->clear();
    }
    unfinished.catalogues.swap(catalogues_);
  }
  work_.NotifyAll();
  return unfinished;
}

bool StagingQueue::AddCatalogue(StagingJob job) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return false;
    catalogues_.push_back(std::move(job));
  }
  work_.NotifyOne();
  return true;
}

// Whether other nodes are asked is decided here, once: a count that this raises must be lowered at
// the end, although nodes may fail meanwhile.
StagingJob StagingQueue::LoadOf(Dataset& dataset, ExtentId extent, std::uint64_t priority) const {
  StagingJob job;
  job.dataset = &dataset;
  job.extent = extent;
  job.asks_others = parts_.supplier.AsksOthers(dataset.group_key(extent));
  job.priority = std::make_shared<LoadPriority>();
  job.priority->requests = priority;
  return job;
}

// Claim and priority are made in one step (as in BackgroundLoadLocked and BeginReadAhead), so that
// a demand which joins a load finds its priority, unless that load is just ending.
bool StagingQueue::Demand(Dataset& dataset, ExtentId extent, Waiter waiter, Access access,
                          Urgency urgency) {
  // Behind all earlier demands, and ahead of all background loads.
  StagingJob job = LoadOf(dataset, extent, parts_.gate.NextPriority());
  job.access = access;
  job.priority->urgency = urgency;
  job.priority->needs_whole = access == Access::kWhole;
  const std::uint64_t requests = job.priority->requests;
  std::shared_ptr<LoadPriority> joined;
  bool is_stopped = false;
  bool is_raised = false;
  {
    const MutexLock lock(mutex_);
    is_stopped = stopping_;
    if (is_stopped) {
      // The waiter is called below, without the lock.
    } else if (dataset.Join(extent, std::move(waiter))) {
      priorities_[{&dataset, extent}] = job.priority;
      demands_.push_back(std::move(job));
      EndGraceLocked(dataset);
    } else if (const auto found = priorities_.find({&dataset, extent});
               found != priorities_.end()) {
      // A shared pointer, because the load may end and erase the entry meanwhile.
      joined = found->second;
      is_raised = urgency < joined->urgency.load();
      if (is_raised) joined->urgency = urgency;
      if (access == Access::kWhole) joined->needs_whole = true;
    }
  }
  if (is_stopped) {
    waiter(ShuttingDown());
    return false;
  }
  if (joined) {
    parts_.gate.Promote(joined->requests, requests);
  } else {
    work_.NotifyOne();
  }
  return is_raised;
}

// The reader has begun to ask for extents: background staging need not wait for it any more.
void StagingQueue::EndGraceLocked(const Dataset& dataset) {
  for (Pass& pass : passes_) {
    if (pass.dataset == &dataset) pass.not_before_ns = 0;
  }
}

void StagingQueue::AddPass(Dataset& dataset) {
  {
    const MutexLock lock(mutex_);
    static_cast<void>(ListedLocked(dataset));
  }
  work_.NotifyAll();
}

void StagingQueue::AddTakeOver(Dataset& dataset) {
  {
    const MutexLock lock(mutex_);
    ListedLocked(dataset).is_take_over = true;
  }
  work_.NotifyAll();
}

// A data set is listed once: two passes would take turns for nothing.
StagingQueue::Pass& StagingQueue::ListedLocked(Dataset& dataset) {
  const auto listed = std::ranges::find(passes_, &dataset, &Pass::dataset);
  return listed != passes_.end() ? *listed : passes_.emplace_back(Pass{.dataset = &dataset});
}

// The list is short: it grows only while memory or a tier is short of space.
void StagingQueue::Defer(Dataset& dataset, ExtentId extent) {
  // Without a home it would be evicted soon after it was loaded.
  if (dataset.home(extent) == plan::HomeTier::kNone) return;
  if (parts_.cache.Holds(dataset.key(extent))) return;
  {
    const MutexLock lock(mutex_);
    const bool is_known = std::ranges::any_of(deferred_, [&](const DeferredLoad& deferred) {
      return deferred.dataset == &dataset && deferred.extent == extent;
    });
    if (is_known) return;
    deferred_.push_back({.dataset = &dataset,
                         .extent = extent,
                         .not_before_ns = parts_.clock.NowNs() + kDeferredPauseNs});
  }
  // A thread that sleeps without an end learns when it is to look again; this one may have other
  // work then.
  work_.NotifyOne();
}

void StagingQueue::AddedEarly() {
  // Without the lock, a thread that has just found no early extent would miss the call.
  {
    const MutexLock lock(mutex_);
  }
  work_.NotifyOne();
}

void StagingQueue::LookAhead() {
  {
    const MutexLock lock(mutex_);
    looks_ahead_ = true;
  }
  work_.NotifyOne();
}

// Reading ahead goes on as long as there are streams, so it leaves a thread for demands also where
// a quarter of the threads is none, unless there is only one.
bool StagingQueue::MayLookAheadLocked(std::uint32_t background_max, std::uint32_t spare) const {
  const std::uint32_t for_demands = std::max(1U, readers_ / 4);
  const std::uint32_t ahead_max = std::max(for_demands + 1, readers_) - for_demands + spare;
  return looks_ahead_ && !is_searching_ && ahead_loads_ < ahead_max &&
         background_loads_ + ahead_loads_ < background_max &&
         ahead_bytes_ < parts_.ahead_bytes_max && MayAskOthersLocked();
}

// The order of work: demands, catalogues, early extents, extents that streams need soon, resumed
// background jobs, the background pass of the data set whose grace time ends first, deferred loads.
std::optional<StagingJob> StagingQueue::Next(io::QueueCrew& crew) {
  const auto take = [](std::deque<StagingJob>& jobs) {
    StagingJob job = std::move(jobs.front());
    jobs.pop_front();
    return job;
  };
  const MutexLock lock(mutex_);
  for (;;) {
    // Ends this thread's loop.
    if (stopping_) return std::nullopt;
    if (crew.Dismisses()) {
      work_.NotifyOne();  // this thread may have been woken for a job
      return std::nullopt;
    }
    // At least one thread stays free for demands while others catalogue, and a quarter of them
    // while others stage in the background, so that a demand never waits for an extent that no
    // reader needs now.
    const std::uint32_t spare = crew.spare();
    const std::uint32_t cataloguing_max = std::max(1U, readers_ - 1) + spare;
    const std::uint32_t background_max = std::max(1U, readers_ - readers_ / 4) + spare;
    // A demanded extent is what a reader waits for.
    if (std::optional<StagingJob> job = NextDemandLocked()) return job;
    if (cataloguing_ < cataloguing_max) {
      if (std::optional<StagingJob> job = NextCatalogueLocked()) {
        ++cataloguing_;
        return job;
      }
    }
    if (std::unique_ptr<EarlyExtents::Extent> early = parts_.early.Take()) {
      StagingJob job;
      job.kind = StagingJob::Kind::kLoadEarly;
      job.dataset = early->dataset;
      job.early = std::move(early);
      return job;
    }
    if (MayLookAheadLocked(background_max, spare)) {
      looks_ahead_ = false;
      is_searching_ = true;
      ++ahead_loads_;
      StagingJob job;
      job.kind = StagingJob::Kind::kReadAhead;
      return job;
    }
    // Background loads ask other nodes rarely: for an extent that has a home here although its
    // owner answers again. None begins while it could be the last thread that may not wait.
    const bool may_begin =
        background_loads_ + ahead_loads_ < background_max && MayAskOthersLocked();
    if (!resumed_.empty() && may_begin) {
      ++background_loads_;
      if (resumed_.front().asks_others) ++loads_from_others_;
      return take(resumed_);
    }
    if (may_begin && !passes_.empty()) {
      // During the grace time a demand, which ends it, wakes this thread.
      if (const std::int64_t wait_ns = PutSoonestFirstLocked(); wait_ns > 0) {
        work_.WaitFor(mutex_, std::chrono::nanoseconds(wait_ns));
        continue;
      }
      if (std::optional<StagingJob> job = NextOfPassLocked()) return job;
      continue;
    }
    if (may_begin) {
      if (std::optional<StagingJob> job = NextDeferredLocked(spare)) return job;
    }
    AwaitWorkLocked();
  }
}

std::optional<StagingJob> StagingQueue::NextCatalogueLocked() {
  const std::int64_t now_ns = parts_.clock.NowNs();
  const auto due = std::ranges::find_if(
      catalogues_, [&](const StagingJob& job) { return job.not_before_ns <= now_ns; });
  if (due == catalogues_.end()) return std::nullopt;
  StagingJob job = std::move(*due);
  catalogues_.erase(due);
  return job;
}

// Time makes a deferred load or a postponed catalogue job due, and nobody wakes a thread for that.
void StagingQueue::AwaitWorkLocked() {
  std::optional<std::int64_t> wait_ns;
  if (!deferred_.empty()) wait_ns = kDeferredPauseNs;
  const std::int64_t now_ns = parts_.clock.NowNs();
  for (const StagingJob& job : catalogues_) {
    // A job that is due waits for a place, whose release wakes a thread.
    const std::int64_t left_ns = job.not_before_ns - now_ns;
    if (left_ns > 0) wait_ns = std::min(wait_ns.value_or(left_ns), left_ns);
  }
  if (wait_ns) {
    work_.WaitFor(mutex_, std::chrono::nanoseconds(*wait_ns));
  } else {
    work_.Wait(mutex_);
  }
}

// Few data sets are staged at a time, so a search costs less than an ordered list.
std::int64_t StagingQueue::PutSoonestFirstLocked() {
  const auto soonest = std::ranges::min_element(passes_, {}, &Pass::not_before_ns);
  std::iter_swap(passes_.begin(), soonest);
  return passes_.front().not_before_ns - parts_.clock.NowNs();
}

std::optional<StagingJob> StagingQueue::NextDemandLocked() {
  const auto next = std::ranges::find_if(demands_, [this](const StagingJob& job)
                                                       FOREBAY_REQUIRES(mutex_) {
    return !job.asks_others || MayAskOthersLocked();
  });
  if (next == demands_.end()) return std::nullopt;
  StagingJob job = std::move(*next);
  demands_.erase(next);
  if (job.asks_others) ++loads_from_others_;
  return job;
}

StagingJob StagingQueue::BackgroundLoadLocked(Dataset& dataset, ExtentId extent) {
  StagingJob job =
      LoadOf(dataset, extent, kBackgroundPriority + parts_.gate.NextPriority());
  job.background = true;
  ++background_loads_;
  if (job.asks_others) ++loads_from_others_;
  priorities_[{&dataset, extent}] = job.priority;
  return job;
}

std::optional<StagingJob> StagingQueue::NextOfPassLocked() {
  Dataset& dataset = *passes_.front().dataset;
  if (passes_.front().is_take_over) {
    passes_.erase(passes_.begin());
    ++background_loads_;  // it may take a thread for some seconds, too
    StagingJob job;
    job.kind = StagingJob::Kind::kTakeOver;
    job.dataset = &dataset;
    return job;
  }
  bool has_ended = false;
  if (const auto extent = dataset.ClaimNext(parts_.clock.NowNs(), &has_ended)) {
    return BackgroundLoadLocked(dataset, *extent);
  }
  // AddPass puts the data set back if an extent of it gets a home later.
  passes_.erase(passes_.begin());
  // While loads are under way, objects stay open; the last load ends the pass.
  if (!has_ended) return std::nullopt;
  StagingJob job;
  job.kind = StagingJob::Kind::kEndPass;
  job.dataset = &dataset;
  return job;
}

// Claims the first deferred load, if it is due.
std::optional<StagingJob> StagingQueue::NextDeferredLocked(std::uint32_t blocked) {
  if (deferred_.empty() || background_loads_ > blocked) return std::nullopt;
  const DeferredLoad deferred = deferred_.front();
  if (deferred.not_before_ns > parts_.clock.NowNs()) return std::nullopt;
  deferred_.pop_front();
  // Another load of it is under way, which serves as well.
  if (!deferred.dataset->Claim(deferred.extent)) return std::nullopt;
  return BackgroundLoadLocked(*deferred.dataset, deferred.extent);
}

std::optional<StagingJob> StagingQueue::BeginReadAhead(Dataset& dataset, ExtentId extent) {
  StagingJob job =
      LoadOf(dataset, extent, kBackgroundPriority + parts_.gate.NextPriority());
  job.priority->urgency = Urgency::kAhead;
  job.ahead = true;
  job.ahead_bytes = dataset.catalog()->extent(extent).bytes;
  const MutexLock lock(mutex_);
  if (stopping_ || job.asks_others || !dataset.Claim(extent, /*ahead=*/true)) {
    return std::nullopt;
  }
  ahead_bytes_ += job.ahead_bytes;
  priorities_[{&dataset, extent}] = job.priority;
  return job;
}

void StagingQueue::EndSearch(bool has_found) {
  {
    const MutexLock lock(mutex_);
    is_searching_ = false;
    if (has_found) looks_ahead_ = true;
    if (!has_found) --ahead_loads_;
  }
  work_.NotifyOne();
}

bool StagingQueue::IsBlocked(const Dataset& dataset, ExtentId extent) const {
  if (parts_.calls == nullptr || !parts_.calls->AnyLate()) return false;
  // An extent that is on a tier by now needs no object.
  if (parts_.cache.Holds(dataset.key(extent))) return false;
  return parts_.gfs.IsBlocked(dataset, *dataset.catalog(), extent);
}

StagingQueue::Postponement StagingQueue::Postpone(StagingJob& job) {
  if (job.kind != StagingJob::Kind::kLoad || !IsBlocked(*job.dataset, job.extent)) {
    return Postponement::kNone;
  }
  const MutexLock lock(mutex_);
  // The place in the background goes to another load. The claim stays: no other thread loads this
  // extent.
  if (job.background) --background_loads_;
  EndAskingLocked(job);
  if (!stopping_) {
    postponed_.push_back(std::move(job));
    return Postponement::kPostponed;
  }
  // Stop has returned the postponed jobs already, so nobody would look at this one again.
  priorities_.erase({job.dataset, job.extent});
  return Postponement::kCancelled;
}

void StagingQueue::ResumePostponed() {
  bool has_resumed = false;
  {
    const MutexLock lock(mutex_);
    std::deque<StagingJob> waiting = std::exchange(postponed_, {});
    for (StagingJob& job : waiting) {
      const bool is_blocked = IsBlocked(*job.dataset, job.extent);
      has_resumed = has_resumed || !is_blocked;
      std::deque<StagingJob>& next = is_blocked ? postponed_
                                     : job.background ? resumed_ : demands_;
      next.push_back(std::move(job));
    }
  }
  // This runs once a second, so an idle daemon must not be woken without need.
  if (has_resumed) work_.NotifyAll();
}

// A demand may have waited for this thread's place.
void StagingQueue::EndAskingLocked(const StagingJob& job) {
  if (!job.asks_others) return;
  --loads_from_others_;
  work_.NotifyOne();
}

// Before Report: from then on another thread may claim the extent, with a priority of its own.
void StagingQueue::EndLoad(const StagingJob& job) {
  const MutexLock lock(mutex_);
  priorities_.erase({job.dataset, job.extent});
  if (job.background) --background_loads_;
  if (job.ahead) {
    --ahead_loads_;
    ahead_bytes_ -= job.ahead_bytes;
    work_.NotifyOne();
  }
  EndAskingLocked(job);
}

void StagingQueue::EndCatalogue(const StagingJob& job, bool is_catalogued) {
  {
    const MutexLock lock(mutex_);
    --cataloguing_;
    if (is_catalogued) passes_.push_back({job.dataset, parts_.clock.NowNs() + job.grace_ns});
  }
  // Many threads may find work in a pass, and a place for another catalogue job is free.
  work_.NotifyAll();
}

void StagingQueue::EndTakeOver(const StagingJob& job) {
  {
    const MutexLock lock(mutex_);
    --background_loads_;
  }
  AddPass(*job.dataset);
}

bool StagingQueue::PostponeCatalogue(StagingJob job, std::int64_t pause_ns) {
  job.not_before_ns = parts_.clock.NowNs() + pause_ns;
  {
    const MutexLock lock(mutex_);
    --cataloguing_;
    if (stopping_) return false;
    catalogues_.push_back(std::move(job));
  }
  work_.NotifyAll();
  return true;
}

std::uint32_t StagingQueue::cataloguing() const {
  const MutexLock lock(mutex_);
  return cataloguing_;
}

}  // namespace forebay::stage
