// Every reader thread runs the same loop: take a job (NextJob), postpone it if its object does not
// answer, else perform it. Dataset::Claim makes sure that an extent is loaded by one thread at a
// time; mutex_ guards the queues of jobs. Early extents, postponed jobs and deferred loads change
// only when an extent is staged, not whether.
#include "server/stage/stager.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "server/io/log.h"
#include "server/stage/extent_groups.h"

namespace forebay::stage {

using tier::ArenaBlock;
using tier::ExtentChecksums;
using tier::ExtentKey;
using tier::ExtentRef;

namespace {

constexpr std::size_t kReaderDepth = 32;  // of its I/O queue
constexpr std::int64_t kReaderGraceNs = 50'000'000;  // longer than from catalog to first pull
constexpr std::int64_t kDeferredPauseNs = 1'000'000'000;  // before each try of a deferred load
constexpr std::size_t kEarlyExtentsMax = 64;  // waiting; others are staged after cataloguing

// The space for homes. Files that an earlier daemon has left on SSD take a part of it already.
plan::TierSpace SpaceOf(const StagerOptions& options, const StagerParts& parts) {
  plan::TierSpace space;
  space.ram_bytes = options.ram_home_bytes;
  if (parts.store != nullptr) {
    const std::uint64_t store_bytes = SsdPlanOf(parts.store->capacity_bytes()).HomeBytes();
    space.ssd_bytes = store_bytes - std::min(store_bytes, parts.store->used_bytes());
  }
  return space;
}

void LogCatalogued(const Dataset& dataset) {
  const std::shared_ptr<const catalog::Catalog> catalog = dataset.catalog();
  log::Info("data set '{}': catalogued, {} samples in {} objects, {} bytes, fingerprint {:016x}",
            dataset.name(), catalog->sample_count(), catalog->object_count(),
            catalog->total_bytes(), catalog->fingerprint());
}

void LogPassEnd(Dataset& dataset) {
  if (!dataset.TakePassEnded()) return;
  const DatasetProgress progress = dataset.progress();
  // At least a millisecond, because the rate below divides by it.
  const double seconds = static_cast<double>(std::max<std::uint64_t>(1, progress.staging_ms)) / 1e3;
  if (progress.state == DatasetState::kFailed) {
    log::Error("data set '{}': staging failed after {:.1f} s: {}", dataset.name(), seconds,
               progress.error);
    return;
  }
  log::Info("data set '{}': staged {} of {} bytes in {:.1f} s; {} bytes came from the GFS "
            "({:.2f} GB/s)",
            dataset.name(), progress.staged_bytes, progress.total_bytes, seconds,
            progress.staging_gfs_bytes,
            static_cast<double>(progress.staging_gfs_bytes) / seconds / 1e9);
}

}  // namespace

Result<std::unique_ptr<Stager>> Stager::Create(const StagerOptions& options, StagerParts parts) {
  if (options.readers == 0 || options.readers > 64) {
    return Error(ErrorCode::kInvalidArgument, "stage.readers must be between 1 and 64");
  }
  if (options.request_bytes < limits::kIoAlignmentBytes ||
      options.request_bytes > limits::kIoRequestBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "stage.request must be between 4 KiB and 64 MiB");
  }
  if (options.requests == 0 || options.requests > limits::kIoDepthMax) {
    return Error(ErrorCode::kInvalidArgument, "stage.requests must be between 1 and " +
                                                  std::to_string(limits::kIoDepthMax));
  }
  const bool has_others = parts.nodes != nullptr && !parts.nodes->is_alone();
  const std::uint32_t threads = options.readers + (has_others ? 1 : 0);
  std::unique_ptr<Stager> stager(new Stager(options, std::move(parts)));
  // Last: the threads use every other member as soon as they run.
  FOREBAY_ASSIGN(stager->crew_,
                 io::QueueCrew::Create(stager->parts_.backend,
                                       {.threads = threads, .queue_depth = kReaderDepth},
                                       [raw = stager.get()](io::QueueCrew& crew,
                                                            io::IoQueue& queue) {
                                         raw->Run(crew, queue);
                                       }));
  return stager;
}

Stager::Stager(const StagerOptions& options, StagerParts parts)
    : options_(options),
      parts_(std::move(parts)),
      gate_(options.requests, parts_.clock),
      gfs_(options.request_bytes, gate_, parts_.calls),
      tiers_(parts_.cache, parts_.arena.memory_signal(),
             {.has_ssd = parts_.store != nullptr, .working_bytes = options_.ram_working_bytes},
             parts_.next_use, parts_.clock),
      placements_(SpaceOf(options_, parts_),
               parts_.store != nullptr ? parts_.store->Contents()
                                       : std::vector<tier::SegmentStore::Stored>()),
      loader_(tiers_, placements_),
      pieces_(gfs_, gate_, parts_.clock),
      supplier_({.cache = parts_.cache,
                 .clock = parts_.clock,
                 .gfs = gfs_,
                 .pieces = pieces_,
                 .tiers = tiers_,
                 .placements = placements_,
                 .loader = loader_,
                 .nodes = parts_.nodes,
                 .peers = parts_.peers}),
      cataloguer_({.request_bytes = options_.request_bytes,
                   .scan_depth = options_.scan_depth,
                   .working_bytes = options_.ram_working_bytes,
                   .catalog_path = options_.catalog_path},
                  {.backend = parts_.backend,
                   .catalogs = parts_.catalogs,
                   .nodes = parts_.nodes,
                   .tiers = tiers_,
                   .placements = placements_,
                   .loader = loader_}) {}

Stager::~Stager() {
  BeginStop();
  crew_.reset();
}

void Stager::BeginStop() {
  std::deque<Job> cancelled;
  std::deque<Job> never_catalogued;
  {
    const MutexLock lock(mutex_);
    // From here on NextJob returns nothing, and Demand and Postpone cancel at once.
    if (std::exchange(stopping_, true)) return;
    cancelled.swap(demanded_);
    for (std::deque<Job>* const jobs : {&postponed_, &resumed_}) {
      std::ranges::move(*jobs, std::back_inserter(cancelled));
      jobs->clear();
    }
    never_catalogued.swap(catalogue_jobs_);
    early_.clear();
  }
  // Wakes threads that wait for jobs, for memory, or for a turn to compress, or between retries. A
  // thread that is blocked in a GFS call cannot be woken (AwaitStopped).
  work_.NotifyAll();
  tiers_.Stop();
  loader_.Stop();
  if (parts_.patience != nullptr) parts_.patience->Stop();
  const Error stopped(ErrorCode::kCancelled, "the daemon is shutting down");
  for (const Job& job : cancelled) {
    job.dataset->Report(*job.extent, stopped, parts_.clock.NowNs());
  }
  // Calls everybody who waits for a catalog.
  for (const Job& job : never_catalogued) job.dataset->Fail(stopped);
}

void Stager::Stage(Dataset& dataset, bool rebuild) {
  if (dataset.catalog() != nullptr) {
    if (StageAgain(dataset)) ResumeBackground(dataset);
  } else {
    Begin(dataset, rebuild, 0);
  }
}

void Stager::Replace(Dataset& old, Dataset& successor, std::function<void()> take_over) {
  FOREBAY_CHECK(old.catalog() != nullptr);
  Begin(successor, /*rebuild=*/true, 0, {.dataset = &old, .take_over = std::move(take_over)});
}

void Stager::StageForReader(Dataset& dataset) { Begin(dataset, false, kReaderGraceNs); }

// Queues the catalogue job, unless the data set is catalogued already or is being catalogued: then
// BeginCataloguing refuses, so that two callers never start two passes.
void Stager::Begin(Dataset& dataset, bool rebuild, std::int64_t grace_ns,
                   Replacement replaced) {
  // Before the job is queued: `progress` shows the state from now on.
  if (!dataset.BeginCataloguing(parts_.clock.NowNs())) return;
  dataset.SetSpaceLeft([this] { return placements_.left(); });
  {
    const MutexLock lock(mutex_);
    Job job;
    job.dataset = &dataset;
    job.rebuild = rebuild;
    job.grace_ns = grace_ns;
    job.replaced = std::move(replaced);
    catalogue_jobs_.push_back(std::move(job));
  }
  work_.NotifyOne();
}

// Starts another pass, over the extents that were evicted since the last one or refused by a tier.
// Returns false if there are none.
bool Stager::StageAgain(Dataset& dataset) {
  const std::shared_ptr<const catalog::Catalog> catalog = dataset.catalog();
  // A device that has failed gets no homes any more, and its extents are placed in RAM below.
  if (parts_.cache.stats(tier::TierKind::kSsd).retired) placements_.CloseSsd();
  if (parts_.nodes != nullptr) {
    // Nodes may have failed or come back since the last pass, which changes who reads an extent.
    std::vector<bool> remote(catalog->extent_count());
    for (std::uint32_t i = 0; i < remote.size(); ++i) {
      remote[i] = !supplier_.Reads(dataset.group_key(ExtentId(i)));
    }
    dataset.SetRemote(std::move(remote));
  }
  // Space may have become free since, for example because another data set was rebuilt.
  placements_.PlaceAgain(dataset);
  std::vector<bool> resident(catalog->extent_count(), false);
  for (const tier::TierKind kind : {tier::TierKind::kRam, tier::TierKind::kSsd}) {
    for (const ExtentKey& key : parts_.cache.Resident(kind)) {
      const bool is_ours = key.dataset == dataset.hash() &&
                           key.extent.value() < resident.size() && dataset.key(key.extent) == key;
      if (!is_ours || !IsAtHome(kind, dataset.home(key.extent))) continue;
      resident[key.extent.value()] = true;
      // It may have been a guest until PlaceAgain gave it its home here.
      if (dataset.home(key.extent) != plan::HomeTier::kNone) tiers_.MakeAtHome(key, kind);
    }
  }
  return dataset.BeginStagingAgain(resident, parts_.clock.NowNs());
}

void Stager::Demand(Dataset& dataset, ExtentId extent, Waiter waiter, Access access) {
  // There are three cases: the cache has the extent; or no load of it is under way, and this call
  // claims it; or one is, and the waiter joins it. The table alone is not enough: an extent that it
  // calls resident may have been evicted since.
  for (;;) {
    const ExtentKey& key = dataset.key(extent);
    const bool may_be_in_pieces = access == Access::kPieces || access == Access::kPiecesIfNoHome;
    if (parts_.cache.Find(key) || (may_be_in_pieces && pieces_.FindReadable(key))) {
      waiter(Status());
      return;
    }
    // `again`: the table may say "resident" for an extent that the cache has evicted.
    const bool claimed = dataset.Claim(extent, /*again=*/true);
    if (claimed) {
      FOREBAY_CHECK(dataset.AddWaiter(extent, std::move(waiter)));
      const bool asks_others = !supplier_.Reads(dataset.group_key(extent));
      bool stopping = false;
      {
        const MutexLock lock(mutex_);
        stopping = stopping_;
        if (!stopping) {
          Job job;
          job.dataset = &dataset;
          job.extent = extent;
          job.access = access;
          job.asks_others = asks_others;
          job.priority = std::make_shared<Priority>(gate_.NextPriority());
          priorities_[{&dataset, extent}] = job.priority;
          demanded_.push_back(std::move(job));
          EndGraceLocked(dataset);
        }
      }
      // Outside the lock, because Report calls the waiters.
      if (stopping) {
        dataset.Report(extent, Error(ErrorCode::kCancelled, "the daemon is shutting down"),
                       parts_.clock.NowNs());
      }
      work_.NotifyOne();
      return;
    }
    if (dataset.AddWaiter(extent, waiter)) {
      Hurry(dataset, extent);
      return;
    }
    // The load under way ended between the two calls: look again.
  }
}

// A background load that a reader now waits for gets the priority of a new demand.
void Stager::Hurry(const Dataset& dataset, ExtentId extent) {
  std::shared_ptr<Priority> priority;
  {
    const MutexLock lock(mutex_);
    const auto found = priorities_.find({&dataset, extent});
    if (found == priorities_.end()) return;
    // A shared pointer, because the load may end and erase the entry meanwhile.
    priority = found->second;
  }
  gate_.Promote(*priority, gate_.NextPriority());
}

void Stager::Run(io::QueueCrew& crew, io::IoQueue& queue) {
  while (std::optional<Job> job = NextJob(crew)) {
    // Checked as late as this, because an object may stop answering while its job is in a queue.
    if (!Postpone(*job)) Perform(*job, queue);
  }
}

bool Stager::IsBlocked(const Dataset& dataset, const EarlyExtent& early) const {
  if (parts_.calls == nullptr || !parts_.calls->AnyLate()) return false;
  return std::ranges::any_of(early.objects, [&](const catalog::ObjectInfo& object) {
    return parts_.calls->IsLate({.root = dataset.options().root_path, .path = object.path});
  });
}

bool Stager::IsBlocked(const Job& job) const {
  if (parts_.calls == nullptr || !parts_.calls->AnyLate()) return false;
  if (job.early) return IsBlocked(*job.dataset, *job.early);
  // An extent that is on a tier by now needs no object.
  if (!job.extent || parts_.cache.Find(job.dataset->key(*job.extent))) return false;
  return gfs_.IsBlocked(*job.dataset, *job.dataset->catalog(), *job.extent);
}

bool Stager::Postpone(Job& job) {
  if (!IsBlocked(job)) return false;
  UniqueLock lock(mutex_);
  if (job.early) {
    // Dropped, not postponed: the extent is staged like any other once there is a catalog.
    lock.Unlock();
    EndEarlyLoad(*job.dataset, *job.early);
    return true;
  }
  // The place in the background goes to another load. The claim stays: no other thread loads this
  // extent.
  if (job.background) --background_loads_;
  EndAskingLocked(job);
  if (!stopping_) {
    postponed_.push_back(std::move(job));
    return true;
  }
  // BeginStop has cancelled the postponed jobs already, so nobody would look at this one again.
  priorities_.erase({job.dataset, *job.extent});
  lock.Unlock();
  job.dataset->Report(*job.extent, Error(ErrorCode::kCancelled, "the daemon is shutting down"),
                      parts_.clock.NowNs());
  return true;
}

void Stager::ResumePostponed() {
  bool has_resumed = false;
  {
    const MutexLock lock(mutex_);
    std::deque<Job> waiting = std::exchange(postponed_, {});
    for (Job& job : waiting) {
      const bool is_blocked = IsBlocked(job);
      has_resumed = has_resumed || !is_blocked;
      std::deque<Job>& next = is_blocked ? postponed_ : job.background ? resumed_ : demanded_;
      next.push_back(std::move(job));
    }
  }
  // This runs once a second, so an idle daemon must not be woken without need.
  if (has_resumed) work_.NotifyAll();
}

std::vector<std::thread::id> Stager::BlockedThreads() const {
  std::vector<std::thread::id> threads;
  if (parts_.calls == nullptr || !parts_.calls->AnyLate()) return threads;
  threads = parts_.calls->LateThreads();
  for (const auto& waiting : {gate_.BlockedThreads(), pieces_.BlockedThreads()}) {
    threads.insert(threads.end(), waiting.begin(), waiting.end());
  }
  std::ranges::sort(threads);
  // A thread may wait in a late call and in the gate's list at once, and counts once.
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  return threads;
}

// A GFS that does not answer must not stop the rest: its requests' places and memory are lent to
// others, its blocked threads are replaced, and jobs that can run again are resumed.
void Stager::Look() {
  gate_.LendPlacesOf(options_.hung_after_ms * 1'000'000);
  pieces_.LendPlacesOf(options_.hung_after_ms * 1'000'000);
  tiers_.LendMemoryOf(options_.hung_after_ms * 1'000'000);
  if (parts_.calls == nullptr) return;
  const std::vector<std::thread::id> threads = BlockedThreads();
  std::uint32_t blocked = crew_->CountOf(threads);
  {
    // A catalogue job reads metadata with threads of its own. If some of them are blocked, one
    // reader thread of the crew waits for them, and counts as blocked too.
    const MutexLock lock(mutex_);
    blocked += std::min(cataloguing_, static_cast<std::uint32_t>(threads.size()) - blocked);
  }
  // Starts a spare thread for each blocked one, and dismisses spares that are no longer needed.
  const Status adjusted = crew_->AdjustTo(blocked);
  if (!adjusted.has_value() && !lacks_spare_) {
    log::Warn("no additional reader could be started in place of one that is blocked by the "
              "GFS; other objects are read more slowly until the GFS answers: {}",
              adjusted.error().ToString());
  }
  lacks_spare_ = !adjusted.has_value();
  ResumePostponed();
  early_over_.NotifyAll();  // EndEarly waits for loads, but not for those that are blocked now
}

// The order of work: demands, catalogues, early extents, resumed background jobs, the background
// pass of the data set whose grace time ends first, deferred loads.
std::optional<Stager::Job> Stager::NextJob(io::QueueCrew& crew) {
  const auto take = [](std::deque<Job>& jobs) {
    Job job = std::move(jobs.front());
    jobs.pop_front();
    return job;
  };
  UniqueLock lock(mutex_);
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
    const std::uint32_t cataloguing_max = std::max(1U, options_.readers - 1) + spare;
    const std::uint32_t background_max =
        std::max(1U, options_.readers - options_.readers / 4) + spare;
    // A demanded extent is what a reader waits for.
    if (std::optional<Job> job = NextDemandLocked()) return job;
    if (!catalogue_jobs_.empty() && cataloguing_ < cataloguing_max) {
      ++cataloguing_;
      return take(catalogue_jobs_);
    }
    if (!early_.empty()) {
      // Listed under the same lock under which it leaves the queue, so that EndEarly misses none.
      early_loads_[early_.front().dataset].push_back(early_.front().early.get());
      return take(early_);
    }
    // Background loads ask other nodes rarely: for an extent that has a home here although its
    // owner answers again. None begins while it could be the last thread that may not wait.
    const bool may_begin = background_loads_ < background_max && MayAskOthersLocked();
    if (!resumed_.empty() && may_begin) {
      ++background_loads_;
      if (resumed_.front().asks_others) ++loads_from_others_;
      return take(resumed_);
    }
    if (may_begin && !background_.empty()) {
      // During the grace time a demand, which ends it, wakes this thread.
      if (const std::int64_t wait_ns = PutSoonestFirstLocked(); wait_ns > 0) {
        work_.WaitFor(mutex_, std::chrono::nanoseconds(wait_ns));
        continue;
      }
      Dataset* ended = nullptr;
      if (std::optional<Job> job = NextInBackgroundLocked(ended)) return job;
      // Closing objects may take long, so the lock is released meanwhile.
      if (ended != nullptr) {
        lock.Unlock();
        gfs_.CloseObjects(*ended);
        LogPassEnd(*ended);
        lock.Lock();
      }
      continue;
    }
    if (may_begin) {
      if (std::optional<Job> job = NextDeferredLocked(spare)) return job;
    }
    if (deferred_.empty()) {
      work_.Wait(mutex_);
    } else {
      work_.WaitFor(mutex_, std::chrono::nanoseconds(kDeferredPauseNs));
    }
  }
}

std::int64_t Stager::PutSoonestFirstLocked() {
  const auto soonest = std::ranges::min_element(background_, {}, &Background::not_before_ns);
  std::iter_swap(background_.begin(), soonest);
  return background_.front().not_before_ns - parts_.clock.NowNs();
}

std::optional<Stager::Job> Stager::NextDemandLocked() {
  const auto next = std::ranges::find_if(demanded_, [this](const Job& job)
                                                        FOREBAY_REQUIRES(mutex_) {
    return !job.asks_others || MayAskOthersLocked();
  });
  if (next == demanded_.end()) return std::nullopt;
  Job job = std::move(*next);
  demanded_.erase(next);
  if (job.asks_others) ++loads_from_others_;
  return job;
}

// A demand may have waited for this thread's place.
void Stager::EndAskingLocked(const Job& job) {
  if (!job.asks_others) return;
  --loads_from_others_;
  work_.NotifyOne();
}

// Claims the first deferred load, if it is due.
std::optional<Stager::Job> Stager::NextDeferredLocked(std::uint32_t blocked) {
  if (deferred_.empty() || background_loads_ > blocked) return std::nullopt;
  const DeferredLoad deferred = deferred_.front();
  if (deferred.not_before_ns > parts_.clock.NowNs()) return std::nullopt;
  deferred_.pop_front();
  // Another load of it is under way, which serves as well.
  if (!deferred.dataset->Claim(deferred.extent, /*again=*/true)) return std::nullopt;
  ++background_loads_;
  Job job;
  job.dataset = deferred.dataset;
  job.extent = deferred.extent;
  job.background = true;
  job.asks_others = !supplier_.Reads(deferred.dataset->group_key(deferred.extent));
  if (job.asks_others) ++loads_from_others_;
  job.priority = std::make_shared<Priority>(kBackgroundPriority + gate_.NextPriority());
  priorities_[{deferred.dataset, deferred.extent}] = job.priority;
  return job;
}

// The list is short: it grows only while memory or a tier is short of space.
void Stager::DeferLoad(const Job& job) {
  // Without a home it would be evicted soon after it was loaded.
  if (job.dataset->home(*job.extent) == plan::HomeTier::kNone) return;
  if (parts_.cache.Find(job.dataset->key(*job.extent))) return;
  const MutexLock lock(mutex_);
  const bool is_known = std::ranges::any_of(deferred_, [&](const DeferredLoad& deferred) {
    return deferred.dataset == job.dataset && deferred.extent == *job.extent;
  });
  if (is_known) return;
  deferred_.push_back({.dataset = job.dataset,
                       .extent = *job.extent,
                       .not_before_ns = parts_.clock.NowNs() + kDeferredPauseNs});
}

std::optional<Stager::Job> Stager::NextInBackgroundLocked(Dataset*& ended) {
  Dataset* const dataset = background_.front().dataset;
  if (std::optional<ExtentId> extent = dataset->ClaimNext(parts_.clock.NowNs())) {
    ++background_loads_;
    Job job;
    job.dataset = dataset;
    job.extent = extent;
    job.background = true;
    job.asks_others = !supplier_.Reads(dataset->group_key(*extent));
    if (job.asks_others) ++loads_from_others_;
    job.priority = std::make_shared<Priority>(kBackgroundPriority + gate_.NextPriority());
    priorities_[{dataset, *extent}] = job.priority;
    return job;
  }
  // ResumeBackground puts the data set back if an extent of it gets a home later.
  background_.erase(background_.begin());
  // While loads are under way, objects stay open; the last load closes them (PerformLoad).
  if (dataset->progress().state != DatasetState::kStaging) ended = dataset;
  return std::nullopt;
}

// The reader has begun to ask for extents: background staging need not wait for it any more.
void Stager::EndGraceLocked(const Dataset& dataset) {
  for (Background& background : background_) {
    if (background.dataset == &dataset) background.not_before_ns = 0;
  }
}

void Stager::Perform(const Job& job, io::IoQueue& queue) {
  if (job.extent) {
    PerformLoad(job, queue);
  } else if (job.early) {
    const Status loaded = LoadEarly(*job.dataset, *job.early, *job.priority, queue);
    if (!loaded.has_value()) {
      // No error yet: the extent is staged again once there is a catalog, and a failure then
      // counts.
      log::Debug("data set '{}': {}", job.dataset->name(), loaded.error().ToString());
    }
    EndEarlyLoad(*job.dataset, *job.early);
  } else {
    PerformCatalogue(job, queue);
  }
}

void Stager::PerformLoad(const Job& job, io::IoQueue& queue) {
  Dataset& dataset = *job.dataset;
  // Blocks for as long as the GFS needs; no mutex is held.
  const Result<bool> supplied = supplier_.Load({.dataset = dataset,
                                                .extent = *job.extent,
                                                .access = job.access,
                                                .background = job.background,
                                                .priority = *job.priority},
                                               queue);
  // The pass may have ended already; the extents that got a home now would wait for the next one.
  if (supplied.has_value() && *supplied) ResumeBackground(dataset);
  const Status loaded = supplied.has_value() ? Status() : Status(supplied.error());
  {
    // Before Report: from then on another thread may claim the extent, with a priority of its own.
    const MutexLock lock(mutex_);
    priorities_.erase({&dataset, *job.extent});
    if (job.background) --background_loads_;
    EndAskingLocked(job);
  }
  if (dataset.Report(*job.extent, loaded, parts_.clock.NowNs())) gfs_.CloseObjects(dataset);
  // A demand may have been served in pieces, and a background load may have found no memory. If
  // that leaves an extent with a home on no tier, it is loaded later.
  const bool is_short = !loaded.has_value() &&
                        loaded.error().code() == ErrorCode::kResourceExhausted && job.background;
  if (is_short) {
    log::Warn("data set '{}': extent {} is on no tier yet: {}; it is loaded when there is memory",
              dataset.name(), job.extent->value(), loaded.error().message());
  }
  if (loaded.has_value() || is_short) DeferLoad(job);
  LogPassEnd(dataset);
}

void Stager::PerformCatalogue(const Job& job, io::IoQueue& queue) {
  Dataset& dataset = *job.dataset;
  const Status status = cataloguer_.Run(
      dataset, job.rebuild, job.replaced,
      {.described = [&](auto... of_extent) { StageEarly(dataset, of_extent...); },
       .ended = [&] { EndEarly(dataset); }},
      queue);
  if (!status.has_value()) {
    const bool is_old_served =
        job.replaced.dataset != nullptr && !job.replaced.dataset->is_replaced();
    const Error error = is_old_served
                            ? status.error().WithContext("not rebuilt, and served as it was")
                            : status.error();
    log::Error("data set '{}': {}", dataset.name(), error.ToString());
    // A failed scan has stored extents that nobody can find without a catalog.
    cataloguer_.Abandon(dataset);
    dataset.Fail(error);
  } else {
    LogCatalogued(dataset);
  }
  // Only now does background staging begin, for all formats: a scan has staged what fitted, and the
  // pass finds the rest.
  {
    const MutexLock lock(mutex_);
    --cataloguing_;
    if (status.has_value()) {
      background_.push_back({&dataset, parts_.clock.NowNs() + job.grace_ns});
    }
  }
  work_.NotifyAll();
}

// Called by the builder of the catalog for each extent whose objects are known. Takes it only if
// there is space for it on a tier and the list is not full; nothing is lost by leaving it out.
void Stager::StageEarly(Dataset& dataset, ExtentId extent, const catalog::ExtentInfo& info,
                        std::span<const catalog::ObjectInfo> objects) {
  // Another node of the job reads it.
  if (!supplier_.Reads(GroupKeyOf(dataset.hash(), info.first_object))) return;
  const plan::TierSpace left = placements_.left();
  const plan::Footprint footprint = FootprintOf(info.bytes, objects.size());
  // An extent that will have no home would be read in vain.
  if (footprint.ram_bytes > left.ram_bytes && footprint.ssd_bytes > left.ssd_bytes) return;
  {
    const MutexLock lock(mutex_);
    // The builder of the catalog finds extents much faster than they can be read.
    if (stopping_ || early_.size() >= kEarlyExtentsMax) return;
  }
  auto early = std::make_unique<EarlyExtent>();
  early->key = {dataset.hash(), extent, tier::ExtentIdentity(info, objects)};
  early->bytes = info.bytes;
  early->objects.assign(objects.begin(), objects.end());
  // One string for all paths: one allocation for what may be thousands of small files.
  for (const catalog::ObjectInfo& object : objects) early->paths += object.path;
  // The builder's paths end with this call, so they are copied, and the objects point to the
  // copies.
  std::size_t at = 0;
  for (catalog::ObjectInfo& object : early->objects) {
    object.path = std::string_view(early->paths).substr(at, object.path.size());
    at += object.path.size();
  }
  Job job;
  job.dataset = &dataset;
  job.early = std::move(early);
  {
    const MutexLock lock(mutex_);
    job.priority = std::make_shared<Priority>(kBackgroundPriority + gate_.NextPriority());
    early_.push_back(std::move(job));
  }
  work_.NotifyOne();
}

Status Stager::LoadEarly(Dataset& dataset, EarlyExtent& early, const Priority& priority,
                         io::IoQueue& queue) {
  if (parts_.cache.Find(early.key)) return {};  // an earlier daemon stored it
  FOREBAY_ASSIGN(ArenaBlock block, parts_.cache.AllocateRam(early.bytes, kNotAskedFor, &queue,
                                                            /*spares_homes=*/true));
  // In an extent of whole objects, each object is the piece of one sample.
  std::vector<catalog::Range> pieces;
  std::uint64_t placed = 0;
  for (const catalog::ObjectInfo& object : early.objects) {
    pieces.push_back({early.key.extent, static_cast<std::uint32_t>(placed), object.bytes});
    placed += object.bytes;
  }
  const auto read = [&](std::span<std::byte> image, bool past_caches) {
    return gfs_.ReadRun(queue, dataset, early.objects, priority, image, past_caches);
  };
  FOREBAY_ASSIGN(
      ExtentChecksums checksums,
      ReadExtent(dataset,
                 {.key = early.key, .pieces = pieces, .objects = NameObjects(early.objects)},
                 block.bytes(), read));
  {
    const MutexLock lock(mutex_);
    // EndEarly does not wait for this load any more: the pass may be loading the extent itself.
    if (early.is_abandoned) return {};
    early.is_storing = true;
  }
  FOREBAY_TRY(loader_.StoreExtent(
      dataset, {.key = early.key, .image = std::move(block), .checksums = std::move(checksums)},
      std::nullopt, queue));
  return {};
}

void Stager::EndEarlyLoad(const Dataset& dataset, EarlyExtent& early) {
  const MutexLock lock(mutex_);
  // EndEarly has removed it from the list already.
  if (early.is_abandoned) return;
  std::erase(early_loads_[&dataset], &early);
  early_over_.NotifyAll();
}

// Called when the build of the catalog has ended, before the catalog is adopted. Waits for the
// loads that have begun, so that their extents are found on a tier and are not read a second time.
// It does not wait for a load that is blocked; such a load is abandoned, and its result is not
// published.
void Stager::EndEarly(Dataset& dataset) {
  const MutexLock lock(mutex_);
  std::erase_if(early_, [&](const Job& job) { return job.dataset == &dataset; });
  std::vector<EarlyExtent*>& loads = early_loads_[&dataset];
  const auto is_blocked = [&](const EarlyExtent* early) {
    return !early->is_storing && IsBlocked(dataset, *early);
  };
  while (!std::ranges::all_of(loads, is_blocked)) early_over_.Wait(mutex_);
  // The thread that runs the load owns the object, and sees the flag before it publishes.
  for (EarlyExtent* early : loads) early->is_abandoned = true;
  early_loads_.erase(&dataset);
}

void Stager::ResumeBackground(Dataset& dataset) {
  {
    const MutexLock lock(mutex_);
    const auto is_it = [&](const Background& known) { return known.dataset == &dataset; };
    if (std::ranges::none_of(background_, is_it)) background_.push_back({.dataset = &dataset});
  }
  work_.NotifyAll();
}

}  // namespace forebay::stage
