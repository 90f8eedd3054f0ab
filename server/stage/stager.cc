#include "server/stage/stager.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "server/io/log.h"

namespace forebay::stage {

using tier::ArenaBlock;
using tier::ExtentChecksums;
using tier::ExtentKey;
using tier::ExtentRef;

namespace {

constexpr std::size_t kQueueDepth = 32;     // I/O queue of a reader
constexpr std::int64_t kReaderGraceNs = 50'000'000;  // longer than from catalog to first pull
constexpr std::int64_t kStrayPauseNs = 1'000'000'000;  // before each try to load a stray
constexpr std::size_t kEarlyRunsMax = 64;   // waiting; others are staged after cataloguing

plan::Room RoomOf(const StagerOptions& options, const StagerParts& parts) {
  plan::Room room;
  room.ram_bytes = options.ram_home_bytes;
  if (parts.store != nullptr) {
    const std::uint64_t store_bytes = SsdPlanOf(parts.store->capacity_bytes()).HomeBytes();
    room.ssd_bytes = store_bytes - std::min(store_bytes, parts.store->used_bytes());
  }
  return room;
}

void LogCatalogued(const Dataset& dataset) {
  const std::shared_ptr<const catalog::Catalog> catalog = dataset.catalog();
  log::Info("data set '{}': catalogued, {} samples in {} objects, {} bytes, fingerprint {:016x}",
            dataset.name(), catalog->sample_count(), catalog->object_count(),
            catalog->total_bytes(), catalog->fingerprint());
}

void LogSettled(Dataset& dataset) {
  if (!dataset.TakeSettled()) return;
  const DatasetProgress progress = dataset.progress();
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
  std::unique_ptr<Stager> stager(new Stager(options, std::move(parts)));
  FOREBAY_ASSIGN(stager->crew_,
                 io::QueueCrew::Create(stager->parts_.backend,
                                       {.threads = options.readers, .queue_depth = kQueueDepth},
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
      gfs_extents_(gfs_),
      tiers_(parts_.cache,
             {.has_ssd = parts_.store != nullptr, .working_bytes = options_.ram_working_bytes},
             parts_.next_use, parts_.clock),
      housing_(RoomOf(options_, parts_),
               parts_.store != nullptr ? parts_.store->Contents()
                                       : std::vector<tier::SegmentStore::Stored>()),
      loader_(tiers_, housing_),
      pieces_(gfs_, gate_, parts_.clock),
      cataloguer_({.request_bytes = options_.request_bytes,
                   .scan_depth = options_.scan_depth,
                   .catalog_path = options_.catalog_path},
                  {.backend = parts_.backend,
                   .catalogs = parts_.catalogs,
                   .nodes = parts_.nodes,
                   .tiers = tiers_,
                   .housing = housing_,
                   .loader = loader_}) {}

Stager::~Stager() {
  BeginStop();
  crew_.reset();
}

void Stager::BeginStop() {
  std::deque<Job> cancelled;
  std::deque<Job> never_catalogued;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(stopping_, true)) return;
    cancelled.swap(demanded_);
    for (std::deque<Job>* const jobs : {&put_off_, &resumed_}) {
      std::ranges::move(*jobs, std::back_inserter(cancelled));
      jobs->clear();
    }
    never_catalogued.swap(catalogue_jobs_);
    early_.clear();
  }
  work_.notify_all();
  tiers_.Stop();
  loader_.Stop();
  if (parts_.patience != nullptr) parts_.patience->Stop();
  const Error stopped(ErrorCode::kCancelled, "the daemon is shutting down");
  for (const Job& job : cancelled) {
    job.dataset->Report(*job.extent, stopped, parts_.clock.NowNs());
  }
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

void Stager::Begin(Dataset& dataset, bool rebuild, std::int64_t grace_ns,
                   Replacement replaced) {
  if (!dataset.BeginCataloguing(parts_.clock.NowNs())) return;
  dataset.SetRoomLeft([this] { return housing_.left(); });
  {
    std::lock_guard lock(mutex_);
    Job job;
    job.dataset = &dataset;
    job.rebuild = rebuild;
    job.grace_ns = grace_ns;
    job.replaced = std::move(replaced);
    catalogue_jobs_.push_back(std::move(job));
  }
  work_.notify_one();
}

// Stages the extents again that were evicted since, or refused by a tier.
bool Stager::StageAgain(Dataset& dataset) {
  const std::shared_ptr<const catalog::Catalog> catalog = dataset.catalog();
  if (parts_.cache.stats(tier::TierKind::kSsd).retired) housing_.CloseSsd();
  if (parts_.nodes != nullptr) {
    // Nodes may have gone or come since the last pass.
    std::vector<bool> elsewhere(catalog->extent_count());
    for (std::uint32_t i = 0; i < elsewhere.size(); ++i) {
      elsewhere[i] = !Reads(dataset, ExtentId(i));
    }
    dataset.SetElsewhere(std::move(elsewhere));
  }
  housing_.HouseAgain(dataset);
  std::vector<bool> resident(catalog->extent_count(), false);
  for (const tier::TierKind kind : {tier::TierKind::kRam, tier::TierKind::kSsd}) {
    for (const ExtentKey& key : parts_.cache.Resident(kind)) {
      const bool is_ours = key.dataset == dataset.hash() &&
                           key.extent.value() < resident.size() && dataset.key(key.extent) == key;
      if (!is_ours || !IsAtHome(kind, dataset.home(key.extent))) continue;
      resident[key.extent.value()] = true;
      // It may have been a guest until now.
      if (dataset.home(key.extent) != plan::Home::kTransient) tiers_.MakeAtHome(key, kind);
    }
  }
  return dataset.BeginStagingAgain(resident, parts_.clock.NowNs());
}

void Stager::Demand(Dataset& dataset, ExtentId extent, Waiter waiter, Access access) {
  // An extent that the table calls resident but the cache does not have was evicted.
  for (;;) {
    const ExtentKey& key = dataset.key(extent);
    const bool may_be_in_pieces = access == Access::kPieces || access == Access::kPiecesIfHomeless;
    if (parts_.cache.Find(key) || (may_be_in_pieces && pieces_.FindReadable(key))) {
      waiter(Status());
      return;
    }
    const bool claimed = dataset.Claim(extent, /*again=*/true);
    if (claimed) {
      FOREBAY_CHECK(dataset.AddWaiter(extent, std::move(waiter)));
      bool stopping = false;
      {
        std::lock_guard lock(mutex_);
        stopping = stopping_;
        if (!stopping) {
          Job job;
          job.dataset = &dataset;
          job.extent = extent;
          job.access = access;
          job.rank = std::make_shared<Rank>(gate_.DrawRank());
          ranks_[{&dataset, extent}] = job.rank;
          demanded_.push_back(std::move(job));
          EndGraceLocked(dataset);
        }
      }
      if (stopping) {
        dataset.Report(extent, Error(ErrorCode::kCancelled, "the daemon is shutting down"),
                       parts_.clock.NowNs());
      }
      work_.notify_one();
      return;
    }
    if (dataset.AddWaiter(extent, waiter)) {
      Hurry(dataset, extent);
      return;
    }
    // The load under way ended between the two calls: look again.
  }
}

void Stager::Hurry(const Dataset& dataset, ExtentId extent) {
  std::shared_ptr<Rank> rank;
  {
    std::lock_guard lock(mutex_);
    const auto found = ranks_.find({&dataset, extent});
    if (found == ranks_.end()) return;
    rank = found->second;
  }
  gate_.Promote(*rank, gate_.DrawRank());
}

void Stager::Run(io::QueueCrew& crew, io::IoQueue& queue) {
  while (std::optional<Job> job = NextJob(crew)) {
    if (!PutOff(*job)) Perform(*job, queue);
  }
}

bool Stager::IsHeldUp(const Dataset& dataset, const EarlyRun& run) const {
  if (parts_.calls == nullptr || !parts_.calls->AnyLate()) return false;
  return std::ranges::any_of(run.objects, [&](const catalog::ObjectInfo& object) {
    return parts_.calls->IsLate({.root = dataset.options().root_path, .path = object.path});
  });
}

bool Stager::IsHeldUp(const Job& job) const {
  if (parts_.calls == nullptr || !parts_.calls->AnyLate()) return false;
  if (job.early) return IsHeldUp(*job.dataset, *job.early);
  if (!job.extent || parts_.cache.Find(job.dataset->key(*job.extent))) return false;
  return gfs_.IsHeldUp(*job.dataset, *job.dataset->catalog(), *job.extent);
}

bool Stager::PutOff(Job& job) {
  if (!IsHeldUp(job)) return false;
  std::unique_lock lock(mutex_);
  if (job.early) {
    // The extent is staged like any other once there is a catalog.
    lock.unlock();
    EndEarlyLoad(*job.dataset, *job.early);
    return true;
  }
  if (job.background) --background_loads_;
  if (!stopping_) {
    put_off_.push_back(std::move(job));
    return true;
  }
  ranks_.erase({job.dataset, *job.extent});
  lock.unlock();
  job.dataset->Report(*job.extent, Error(ErrorCode::kCancelled, "the daemon is shutting down"),
                      parts_.clock.NowNs());
  return true;
}

void Stager::ResumePutOff() {
  bool has_resumed = false;
  {
    std::lock_guard lock(mutex_);
    std::deque<Job> waiting = std::exchange(put_off_, {});
    for (Job& job : waiting) {
      const bool is_held_up = IsHeldUp(job);
      has_resumed = has_resumed || !is_held_up;
      std::deque<Job>& next = is_held_up ? put_off_ : job.background ? resumed_ : demanded_;
      next.push_back(std::move(job));
    }
  }
  // This runs once a second, so an idle daemon must not be woken without need.
  if (has_resumed) work_.notify_all();
}

std::vector<std::thread::id> Stager::HeldUpThreads() const {
  std::vector<std::thread::id> threads;
  if (parts_.calls == nullptr || !parts_.calls->AnyLate()) return threads;
  threads = parts_.calls->LateThreads();
  for (const auto& waiting : {gate_.HeldUpThreads(), pieces_.HeldUpThreads()}) {
    threads.insert(threads.end(), waiting.begin(), waiting.end());
  }
  std::ranges::sort(threads);
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  return threads;
}

void Stager::Look() {
  gate_.LendPlacesOf(options_.hung_after_ms * 1'000'000);
  pieces_.LendPlacesOf(options_.hung_after_ms * 1'000'000);
  tiers_.LendMemoryOf(options_.hung_after_ms * 1'000'000);
  if (parts_.calls == nullptr) return;
  const std::vector<std::thread::id> threads = HeldUpThreads();
  std::uint32_t held_up = crew_->CountOf(threads);
  {
    // A catalogue job reads metadata with threads of its own, which may be held up; one of our
    // readers waits for them.
    std::lock_guard lock(mutex_);
    held_up += std::min(cataloguing_, static_cast<std::uint32_t>(threads.size()) - held_up);
  }
  const Status adjusted = crew_->AdjustTo(held_up);
  if (!adjusted.has_value() && !lacks_spare_) {
    log::Warn("no additional reader could be started in place of one that is blocked by the "
              "GFS; other objects are read more slowly until the GFS answers: {}",
              adjusted.error().ToString());
  }
  lacks_spare_ = !adjusted.has_value();
  ResumePutOff();
  early_over_.notify_all();  // objects may have stopped answering
}

std::optional<Stager::Job> Stager::NextJob(io::QueueCrew& crew) {
  const auto take = [](std::deque<Job>& jobs) {
    Job job = std::move(jobs.front());
    jobs.pop_front();
    return job;
  };
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopping_) return std::nullopt;
    if (crew.Dismisses()) {
      work_.notify_one();  // this thread may have been woken for a job
      return std::nullopt;
    }
    // At least one thread stays free for demands while others catalogue, and a quarter of them
    // while others stage in the background: a demand does not wait for an extent nobody needs.
    const std::uint32_t spare = crew.spare();
    const std::uint32_t cataloguing_max = std::max(1U, options_.readers - 1) + spare;
    const std::uint32_t background_max =
        std::max(1U, options_.readers - options_.readers / 4) + spare;
    if (!demanded_.empty()) return take(demanded_);
    if (!catalogue_jobs_.empty() && cataloguing_ < cataloguing_max) {
      ++cataloguing_;
      return take(catalogue_jobs_);
    }
    if (!early_.empty()) {
      early_loads_[early_.front().dataset].push_back(early_.front().early.get());
      return take(early_);
    }
    if (!resumed_.empty() && background_loads_ < background_max) {
      ++background_loads_;
      return take(resumed_);
    }
    if (background_loads_ < background_max) {
      const auto soonest = std::min_element(
          background_.begin(), background_.end(),
          [](const Background& a, const Background& b) {
            return a.not_before_ns < b.not_before_ns;
          });
      if (soonest != background_.end()) {
        const std::int64_t wait_ns = soonest->not_before_ns - parts_.clock.NowNs();
        if (wait_ns > 0) {
          work_.wait_for(lock, std::chrono::nanoseconds(wait_ns));
          continue;
        }
        std::iter_swap(background_.begin(), soonest);
        if (std::optional<Job> job = NextInBackground(lock)) return job;
        continue;
      }
    }
    if (std::optional<Job> job = NextStrayLocked(spare)) return job;
    if (strays_.empty()) {
      work_.wait(lock);
    } else {
      work_.wait_for(lock, std::chrono::nanoseconds(kStrayPauseNs));
    }
  }
}

// Claims the first stray that is due, for a background load.
std::optional<Stager::Job> Stager::NextStrayLocked(std::uint32_t held_up) {
  if (strays_.empty() || background_loads_ > held_up) return std::nullopt;
  const Stray stray = strays_.front();
  if (stray.not_before_ns > parts_.clock.NowNs()) return std::nullopt;
  strays_.pop_front();
  if (!stray.dataset->Claim(stray.extent, /*again=*/true)) return std::nullopt;
  ++background_loads_;
  Job job;
  job.dataset = stray.dataset;
  job.extent = stray.extent;
  job.background = true;
  job.rank = std::make_shared<Rank>(kBackgroundRank + gate_.DrawRank());
  ranks_[{stray.dataset, stray.extent}] = job.rank;
  return job;
}

// Notes the extent of a load as a stray if it has a home but is on no tier.
void Stager::NoteStray(const Job& job) {
  if (job.dataset->home(*job.extent) == plan::Home::kTransient) return;
  if (parts_.cache.Find(job.dataset->key(*job.extent))) return;
  std::lock_guard lock(mutex_);
  const bool is_known = std::ranges::any_of(strays_, [&](const Stray& stray) {
    return stray.dataset == job.dataset && stray.extent == *job.extent;
  });
  if (is_known) return;
  strays_.push_back({.dataset = job.dataset,
                     .extent = *job.extent,
                     .not_before_ns = parts_.clock.NowNs() + kStrayPauseNs});
}

// The next extent of the first data set in background_. If that has none left, removes it from the
// list and returns nullopt; the caller looks again.
std::optional<Stager::Job> Stager::NextInBackground(std::unique_lock<std::mutex>& lock) {
  Dataset* const dataset = background_.front().dataset;
  if (std::optional<ExtentId> extent = dataset->ClaimNext(parts_.clock.NowNs())) {
    ++background_loads_;
    Job job;
    job.dataset = dataset;
    job.extent = extent;
    job.background = true;
    job.rank = std::make_shared<Rank>(kBackgroundRank + gate_.DrawRank());
    ranks_[{dataset, *extent}] = job.rank;
    return job;
  }
  background_.erase(background_.begin());
  // While loads are under way, the last of them closes the objects: it may still open one.
  if (dataset->progress().state != DatasetState::kStaging) {
    lock.unlock();
    gfs_.CloseObjects(*dataset);
    LogSettled(*dataset);
    lock.lock();
  }
  return std::nullopt;
}

void Stager::EndGraceLocked(const Dataset& dataset) {
  for (Background& background : background_) {
    if (background.dataset == &dataset) background.not_before_ns = 0;
  }
}

void Stager::Perform(const Job& job, io::IoQueue& queue) {
  if (job.extent) {
    PerformLoad(job, queue);
  } else if (job.early) {
    const Status loaded = LoadEarly(*job.dataset, *job.early, *job.rank, queue);
    if (!loaded.has_value()) {
      // The extent is staged again once there is a catalog; only that failure is an error.
      log::Debug("data set '{}': {}", job.dataset->name(), loaded.error().ToString());
    }
    EndEarlyLoad(*job.dataset, *job.early);
  } else {
    PerformCatalogue(job, queue);
  }
}

void Stager::PerformLoad(const Job& job, io::IoQueue& queue) {
  Dataset& dataset = *job.dataset;
  const Status loaded = Load(dataset, *job.extent, job, queue);
  {
    // Before it is reported: from then on the extent may be claimed again.
    std::lock_guard lock(mutex_);
    ranks_.erase({&dataset, *job.extent});
    if (job.background) --background_loads_;
  }
  if (dataset.Report(*job.extent, loaded, parts_.clock.NowNs())) gfs_.CloseObjects(dataset);
  const bool is_short = !loaded.has_value() &&
                        loaded.error().code() == ErrorCode::kResourceExhausted && job.background;
  if (loaded.has_value() || is_short) NoteStray(job);
  LogSettled(dataset);
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
    cataloguer_.Abandon(dataset);
    dataset.Fail(error);
  } else {
    LogCatalogued(dataset);
  }
  {
    std::lock_guard lock(mutex_);
    --cataloguing_;
    if (status.has_value()) {
      background_.push_back({&dataset, parts_.clock.NowNs() + job.grace_ns});
    }
  }
  work_.notify_all();
}

void Stager::StageEarly(Dataset& dataset, ExtentId extent, const catalog::ExtentInfo& info,
                        std::span<const catalog::ObjectInfo> objects) {
  if (!Reads(dataset, extent)) return;
  const plan::Room left = housing_.left();
  const plan::Footprint footprint = FootprintOf(info.bytes, objects.size());
  if (footprint.ram_bytes > left.ram_bytes && footprint.ssd_bytes > left.ssd_bytes) return;
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || early_.size() >= kEarlyRunsMax) return;
  }
  auto run = std::make_unique<EarlyRun>();
  run->key = {dataset.hash(), extent, tier::ExtentIdentity(info, objects)};
  run->bytes = info.bytes;
  run->objects.assign(objects.begin(), objects.end());
  for (const catalog::ObjectInfo& object : objects) run->paths += object.path;
  std::size_t at = 0;
  for (catalog::ObjectInfo& object : run->objects) {
    object.path = std::string_view(run->paths).substr(at, object.path.size());
    at += object.path.size();
  }
  Job job;
  job.dataset = &dataset;
  job.early = std::move(run);
  {
    std::lock_guard lock(mutex_);
    job.rank = std::make_shared<Rank>(kBackgroundRank + gate_.DrawRank());
    early_.push_back(std::move(job));
  }
  work_.notify_one();
}

Status Stager::LoadEarly(Dataset& dataset, EarlyRun& run, const Rank& rank,
                         io::IoQueue& queue) {
  if (parts_.cache.Find(run.key)) return {};  // an earlier daemon stored it
  FOREBAY_ASSIGN(ArenaBlock block, parts_.cache.AllocateRam(run.bytes, kNotAskedFor, &queue,
                                                            /*spares_homes=*/true));
  std::vector<catalog::Range> pieces;
  std::uint64_t placed = 0;
  for (const catalog::ObjectInfo& object : run.objects) {
    pieces.push_back({run.key.extent, static_cast<std::uint32_t>(placed), object.bytes});
    placed += object.bytes;
  }
  const auto read = [&](std::span<std::byte> image, bool past_caches) {
    return gfs_.ReadRun(queue, dataset, run.objects, rank, image, past_caches);
  };
  FOREBAY_ASSIGN(
      ExtentChecksums checksums,
      ReadExtent(dataset,
                 {.key = run.key, .pieces = pieces, .objects = NameObjects(run.objects)},
                 block.bytes(), read));
  {
    std::lock_guard lock(mutex_);
    if (run.is_abandoned) return {};
    run.is_storing = true;
  }
  FOREBAY_TRY(loader_.StoreExtent(
      dataset, {.key = run.key, .image = std::move(block), .checksums = std::move(checksums)},
      std::nullopt, queue));
  return {};
}

void Stager::EndEarlyLoad(const Dataset& dataset, EarlyRun& run) {
  std::lock_guard lock(mutex_);
  if (run.is_abandoned) return;
  std::erase(early_loads_[&dataset], &run);
  early_over_.notify_all();
}

// Loads that have begun are finished, so that nobody reads their extents a second time. But the
// catalog does not wait for an object that does not answer.
void Stager::EndEarly(Dataset& dataset) {
  std::unique_lock lock(mutex_);
  std::erase_if(early_, [&](const Job& job) { return job.dataset == &dataset; });
  std::vector<EarlyRun*>& loads = early_loads_[&dataset];
  early_over_.wait(lock, [&] {
    return std::ranges::all_of(loads, [&](const EarlyRun* run) {
      return !run->is_storing && IsHeldUp(dataset, *run);
    });
  });
  for (EarlyRun* run : loads) run->is_abandoned = true;
  early_loads_.erase(&dataset);
}

// The extent is in RAM, which is enough for a reader. A background load puts it on its home.
void Stager::BringHome(Dataset& dataset, const tier::ResidentExtent& found, const Job& job,
                       io::IoQueue& queue) {
  if (!job.background || dataset.is_replaced()) return;
  plan::Home home = dataset.home(found.key.extent);
  if (home == plan::Home::kSsd && !tiers_.CopyToSsd(found, queue).has_value()) {
    home = housing_.Refuse(dataset, found.key.extent, found.image_bytes);
  }
  if (home == plan::Home::kRam) tiers_.MakeAtHome(found.key, tier::TierKind::kRam);
}

Status Stager::Load(Dataset& dataset, ExtentId extent, const Job& job, io::IoQueue& queue) {
  const plan::Home home = job.access == Access::kInRam ? plan::Home::kRam : dataset.home(extent);
  const ExtentKey& key = dataset.key(extent);
  if (const ExtentRef found = parts_.cache.Find(key)) {
    if (found->tier == tier::TierKind::kRam) BringHome(dataset, *found, job, queue);
    if (found->tier == tier::TierKind::kRam || home != plan::Home::kRam) return {};
    const Status promoted = tiers_.Promote(
        *found,
        {.is_guest = dataset.IsGuestInRam(extent), .spares_homes = job.background}, queue);
    // A lack of memory says nothing about the copy on SSD, which is still served.
    const bool is_sound = promoted.has_value() ||
                          promoted.error().code() == ErrorCode::kResourceExhausted ||
                          promoted.error().code() == ErrorCode::kCancelled;
    if (is_sound) return {};
    log::Warn("data set '{}': {}; reading it from the GFS again", dataset.name(),
              promoted.error().ToString());
    parts_.cache.ReportBadSegment(key, promoted.error(), parts_.clock.NowNs());
  }
  const std::shared_ptr<const catalog::Catalog> catalog = dataset.catalog();
  // Pieces come from the GFS, so only the node that reads the extent may read it in pieces. An
  // extent of another node has no home here, but if this node takes that node's place, it reads the
  // extent once, whole.
  const bool is_homeless = home == plan::Home::kTransient && !dataset.IsElsewhere(extent);
  const bool in_pieces = job.access == Access::kPieces ||
                         (job.access == Access::kPiecesIfHomeless && is_homeless);
  if (in_pieces && GfsPieces::CanRead(dataset) && Reads(dataset, extent)) {
    if (pieces_.Find(key)) return {};  // and its objects answer again
    return pieces_.Describe(dataset, catalog, extent, *job.rank, queue);
  }
  std::unique_ptr<StagingTiers::WorkingMemory> working;
  // Homes in RAM are planned for compressed images, not for the raw bytes that they are made of.
  const bool is_passing = home == plan::Home::kSsd || dataset.form();
  if (is_passing) {
    working = tiers_.AwaitWorkingMemory(catalog->extent(extent).bytes, job.background);
  }
  // A reader waits only briefly: if memory stays short, it reads in pieces.
  const bool may_be_in_pieces = !job.background && GfsPieces::CanRead(dataset);
  const auto allocate = [&](std::uint64_t bytes) {
    return tiers_.Allocate({.bytes = bytes,
                            .key = home == plan::Home::kSsd ? nullptr : &key,
                            .wait_ms = may_be_in_pieces ? limits::kDemandMemoryWaitMs
                                                        : limits::kMemoryWaitMs,
                            .spares_homes = job.background},
                           queue);
  };
  FOREBAY_ASSIGN(SuppliedExtent supplied,
                 Supply(dataset, *catalog, extent, *job.rank, allocate, queue));
  FOREBAY_ASSIGN(
      const bool has_housed_others,
      loader_.StoreExtent(dataset,
                          {.key = tier::KeyOf(*catalog, extent),
                           .image = std::move(supplied.image),
                           .checksums = std::move(supplied.checksums),
                           .is_packed = supplied.is_packed},
                          job.access == Access::kInRam ? std::optional(home) : std::nullopt,
                          queue));
  if (has_housed_others) ResumeBackground(dataset);
  return {};
}

Result<SuppliedExtent> Stager::Supply(Dataset& dataset, const catalog::Catalog& catalog,
                                      ExtentId extent, const Rank& rank,
                                      const AllocateImage& allocate, io::IoQueue& queue) {
  ExtentRequest request{.node = {}, .dataset = dataset, .catalog = catalog, .extent = extent,
                        .rank = rank};
  // A replaced data set is the one from before its objects changed. Other nodes have the objects as
  // they are now, so its last readers get their extents from the GFS.
  if (parts_.nodes != nullptr && !dataset.is_replaced()) {
    for (const NodeRank node : parts_.nodes->AskedBefore(dataset.hash(), extent)) {
      request.node = node;
      Result<SuppliedExtent> supplied = parts_.peers->Read(request, allocate, queue);
      if (supplied.has_value()) {
        Result<ExtentChecksums> verified = VerifySupplied(dataset, catalog, extent, *supplied);
        if (verified.has_value()) {
          supplied->checksums = std::move(*verified);
          return supplied;
        }
        log::Warn("data set '{}': from node {}: {}; the next node is asked", dataset.name(),
                  node.value(), verified.error().message());
        continue;
      }
      if (!IsNoAnswer(supplied.error())) return ErrorFromOthers(supplied.error());
      log::Warn("node {} does not answer; its substitutes are asked in its place: {}",
                node.value(), supplied.error().message());
      parts_.nodes->SetLives(node, false);
    }
  }
  FOREBAY_ASSIGN(SuppliedExtent supplied, gfs_extents_.Read(request, allocate, queue));
  dataset.MakeOurs(extent);
  return supplied;
}

void Stager::ResumeBackground(Dataset& dataset) {
  {
    std::lock_guard lock(mutex_);
    const auto is_it = [&](const Background& known) { return known.dataset == &dataset; };
    if (std::ranges::none_of(background_, is_it)) background_.push_back({.dataset = &dataset});
  }
  work_.notify_all();
}

}  // namespace forebay::stage
