// Every reader thread runs the same loop: take a job (StagingQueue::Next), postpone it if its
// object does not answer, else perform it. Dataset::Claim makes sure that an extent is loaded by
// one thread at a time. The stager has no mutex of its own: what threads share is in its parts.
#include "server/stage/stager.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/io/log.h"
#include "server/stage/extent_groups.h"

namespace forebay::stage {

using tier::ExtentKey;

namespace {

constexpr std::size_t kReaderDepth = 32;  // of its I/O queue
// The part of the RAM tier that extents may take while they are read ahead: nothing can make way
// for them at that time.
constexpr std::uint64_t kReadAheadPart = 8;
constexpr std::int64_t kReaderGraceNs = 50'000'000;  // longer than from catalog to first pull

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

void LogPassEnd(const Dataset& dataset) {
  const DatasetProgress progress = dataset.progress();
  // At least a millisecond, because the rate below divides by it.
  const double seconds = static_cast<double>(std::max<std::uint64_t>(1, progress.staging_ms)) / 1e3;
  if (progress.state == DatasetState::kFailed) {
    log::Error("data set '{}': staging failed after {:.1f} s: {}", dataset.name(), seconds,
               progress.error);
    return;
  }
  const std::uint64_t of_others = dataset.bytes_of_others();
  const std::uint64_t copied = dataset.copied_bytes();
  log::Info("data set '{}': staged {} of {} bytes in {:.1f} s; {} bytes came from the GFS "
            "({:.2f} GB/s){}{}",
            dataset.name(), progress.staged_bytes, progress.total_bytes, seconds,
            progress.staging_gfs_bytes,
            static_cast<double>(progress.staging_gfs_bytes) / seconds / 1e9,
            of_others == 0 ? ""
                           : fmt::format("; other nodes of the job keep {} bytes", of_others),
            copied == 0 ? "" : fmt::format("; {} bytes are copies of what they keep", copied));
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
      // A request that is not answered counts in the cap of the job, so its place is not lent.
      gate_(options.requests, parts_.clock,
            options.has_request_cap ? 0 : options.requests * RequestGate::kLentPerPermit,
            options.has_request_cap ? parts_.throttle : nullptr),
      gfs_(options.request_bytes, gate_, parts_.calls, parts_.throttle),
      tiers_(parts_.cache, parts_.arena.memory_signal(),
             {.has_ssd = parts_.store != nullptr, .working_bytes = options_.ram_working_bytes},
             parts_.next_use, parts_.clock),
      placements_(SpaceOf(options_, parts_), parts_.clock,
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
      local_stats_(parts_.backend, parts_.clock),
      cataloguer_({.request_bytes = options_.request_bytes,
                   .scan_depth = options_.scan_depth,
                   .working_bytes = options_.ram_working_bytes,
                   .catalog_path = options_.catalog_path,
                   .datasets = options_.datasets,
                   .stat_batch_paths = options_.stat_batch_paths,
                   .gate = options_.has_request_cap ? &gate_ : nullptr},
                  {.backend = parts_.backend,
                   .clock = parts_.clock,
                   .catalogs = parts_.catalogs,
                   .nodes = parts_.nodes,
                   .peers = parts_.peer_parts,
                   .stat_peers = parts_.peer_stats,
                   .local_stats = local_stats_,
                   .throttle = parts_.throttle,
                   .tiers = tiers_,
                   .placements = placements_,
                   .loader = loader_}),
      early_({.cache = parts_.cache,
              .gfs = gfs_,
              .gate = gate_,
              .calls = parts_.calls,
              .placements = placements_,
              .loader = loader_}),
      queue_(options_.readers, {.clock = parts_.clock,
                                .cache = parts_.cache,
                                .calls = parts_.calls,
                                .gate = gate_,
                                .gfs = gfs_,
                                .supplier = supplier_,
                                .early = early_,
                                .ahead_bytes_max =
                                    parts_.arena.capacity_bytes() / kReadAheadPart}) {
  if (parts_.nodes != nullptr && parts_.keepers != nullptr) {
    sharing_.emplace(*parts_.nodes, *parts_.keepers, parts_.clock);
  }
}

Stager::~Stager() {
  BeginStop();
  crew_.reset();
}

void Stager::BeginStop() {
  const std::optional<StagingQueue::Unfinished> unfinished = queue_.Stop();
  if (!unfinished) return;  // the destructor calls this again
  early_.Stop();
  // Wakes threads that wait for memory, or for a turn to compress, or between retries. A thread
  // that is blocked in a GFS call cannot be woken (AwaitStopped).
  tiers_.Stop();
  loader_.Stop();
  local_stats_.BeginStop();
  if (parts_.patience != nullptr) parts_.patience->Stop();
  if (parts_.throttle != nullptr) parts_.throttle->Stop();
  for (const StagingJob& job : unfinished->loads) Cancel(job);
  // Calls everybody who waits for a catalog.
  for (const StagingJob& job : unfinished->catalogues) job.dataset->Fail({.error = ShuttingDown()});
}

// Calls everybody who waits for the extent.
void Stager::Cancel(const StagingJob& job) {
  job.dataset->Report(job.extent, ShuttingDown(), parts_.clock.NowNs());
}

void Stager::Stage(Dataset& dataset, bool rebuild) {
  placements_.RetrySsd();  // whoever asks for it may have made space there
  if (dataset.catalog() != nullptr) {
    BeginPass(dataset);
  } else {
    Begin(dataset, rebuild, 0);
  }
}

void Stager::Replace(Dataset& old, Dataset& successor, std::function<void()> take_over) {
  FOREBAY_CHECK(old.catalog() != nullptr);
  Begin(successor, /*rebuild=*/true, 0,
        {.dataset = &old, .take_over = [this, &old, take_over = std::move(take_over)] {
           // Readers of the successor must not find checksums of bytes before the rebuild.
           pieces_.ForgetAll(old.hash());
           take_over();
         }});
}

void Stager::OpenFirstReads(Dataset& dataset) {
  if (!dataset.first_reads().was_opened()) cataloguer_.OpenFirstReads(dataset, /*forget=*/false);
}

void Stager::StageForReader(Dataset& dataset) { Begin(dataset, false, kReaderGraceNs); }

// Queues the catalogue job, unless the data set is catalogued already or is being catalogued: then
// BeginCataloguing refuses, so that two callers never start two passes.
void Stager::Begin(Dataset& dataset, bool rebuild, std::int64_t grace_ns,
                   Replacement replaced) {
  // Before the job is queued: `progress` shows the state from now on.
  if (!dataset.BeginCataloguing(parts_.clock.NowNs())) return;
  // A rebuild that has failed is tried again as one, also if a reader is the next to need the data
  // set: other nodes may have found their parts of the catalog before it. It counts as one rebuild.
  if (dataset.rebuilds() > 0) rebuild = true;
  if (rebuild && replaced.dataset == nullptr) {
    dataset.version().SetRebuilds(std::max(dataset.rebuilds(), 1U));
  }
  dataset.SetSpaceLeft([this] { return placements_.left(); });
  if (sharing_) dataset.SetSharing(&*sharing_);
  StagingJob job;
  job.kind = StagingJob::Kind::kCatalogue;
  job.dataset = &dataset;
  job.rebuild = rebuild;
  job.grace_ns = grace_ns;
  job.replaced = std::move(replaced);
  if (!queue_.AddCatalogue(std::move(job))) dataset.Fail({.error = ShuttingDown()});
}

// Begins another pass, over the extents that were evicted since the last one or refused by a tier,
// if there are any. A pass that is under way goes on, and comes to those that have got a home.
void Stager::BeginPass(Dataset& dataset) {
  if (dataset.progress().state != DatasetState::kStaging) PrepareAgain(dataset, Extents::kAll);
  queue_.AddPass(dataset);
}

// To prepare the pass takes some seconds for tens of millions of extents, so a reader thread does
// it.
void Stager::TakeOver(Dataset& dataset) {
  dataset.SetPreparing(true);
  queue_.AddTakeOver(dataset);
}

// Gives homes to the extents of all groups that this node reads now. Returns those that the pass
// leaves as they are: none.
std::vector<bool> Stager::PlaceAll(Dataset& dataset) {
  const std::uint32_t count = dataset.catalog()->extent_count();
  if (parts_.nodes != nullptr) {
    // Nodes may have failed or come back since the last pass, which changes who reads an extent.
    std::vector<bool> remote(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      remote[i] = !supplier_.Reads(dataset.group_key(ExtentId(i)));
    }
    dataset.SetRemote(std::move(remote));
  }
  // Space may have become free since, for example because another data set was rebuilt.
  placements_.PlaceAgain(dataset, dataset.ExtentsWithoutHome(), PlacementTable::Share::kOwn);
  return std::vector<bool>(count, false);
}

// Likewise, of the groups that this node takes over. The pass leaves all others alone, because a
// node that is only silent may soon answer again. But it tries again what has failed, so that its
// outcome is that of the whole data set.
std::vector<bool> Stager::PlaceTakenOver(Dataset& dataset) {
  std::vector<bool> left_alone(dataset.catalog()->extent_count(), true);
  for (std::uint32_t i = 0; i < left_alone.size(); ++i) {
    const ExtentId extent(i);
    if (supplier_.TakesOver(dataset.group_key(extent))) {
      left_alone[i] = false;
      dataset.MakeLocal(extent);
    } else if (dataset.HasFailed(extent)) {
      left_alone[i] = false;
    }
  }
  std::vector<ExtentId> placed = dataset.ExtentsWithoutHome();
  std::erase_if(placed, [&](ExtentId extent) { return left_alone[extent.value()]; });
  placements_.PlaceAgain(dataset, placed, PlacementTable::Share::kOfOthers);
  return left_alone;
}

// A device that has failed gets no homes any more. Own extents are placed in RAM by the next pass.
void Stager::CloseLostTier() {
  if (parts_.cache.stats(tier::TierKind::kSsd).retired) placements_.CloseSsd();
}

// This is called between two passes. If a pass begins meanwhile, for another caller, nothing is
// lost.
void Stager::PrepareAgain(Dataset& dataset, Extents extents) {
  CloseLostTier();
  dataset.SetPassTakesOver(extents == Extents::kToTakeOver);
  // Extents that the pass leaves as they are: not wanted, or on their tiers.
  std::vector<bool> left_alone =
      extents == Extents::kAll ? PlaceAll(dataset) : PlaceTakenOver(dataset);
  for (const tier::TierKind kind : {tier::TierKind::kRam, tier::TierKind::kSsd}) {
    for (const ExtentKey& key : parts_.cache.Resident(kind)) {
      if (key.dataset != dataset.hash()) continue;
      const std::optional<ExtentId> extent = dataset.ExtentOf(key);
      if (!extent || !IsAtHome(kind, dataset.home(*extent))) continue;
      left_alone[extent->value()] = true;
      // It may have been a guest until PlaceAgain gave it its home here.
      if (dataset.home(*extent) != plan::HomeTier::kNone) tiers_.MakeAtHome(key, kind);
    }
  }
  static_cast<void>(dataset.BeginStagingAgain(left_alone, parts_.clock.NowNs()));
}

std::shared_ptr<void> Stager::PreferCopies(Dataset& dataset,
                                           const std::vector<ExtentId>& extents) {
  if (parts_.nodes == nullptr || dataset.options().copy_bytes == 0 || extents.empty()) {
    return nullptr;
  }
  CloseLostTier();
  dataset.WantCopies(extents);
  // A pointer to nothing whose end is what matters.
  std::shared_ptr<void> wish(nullptr,
                             [&dataset, extents](void*) { dataset.UnwantCopies(extents); });
  const PlacementTable::NewCopies copies = placements_.PlaceCopies(dataset, extents);
  for (const ExtentKey& key : copies.dropped) tiers_.Evict(key, std::nullopt);
  if (copies.has_placed) BeginPass(dataset);
  return wish;
}

void Stager::Demand(Dataset& dataset, ExtentId extent, Waiter waiter, Access access,
                    Urgency urgency) {
  // There are three cases: the extent is there; no load of it is under way, and this demand begins
  // one; or one is, and the demand joins it. The data set's table alone is not enough: an extent
  // that it calls resident may have been evicted since.
  const ExtentKey& key = dataset.key(extent);
  const bool may_be_in_pieces = access == Access::kPieces || access == Access::kPiecesIfNoHome;
  if (parts_.cache.Find(key) || (may_be_in_pieces && pieces_.FindReadable(key))) {
    waiter(Status());
    return;
  }
  // A background load that a reader now waits for gets the priority of a demand.
  if (queue_.Demand(dataset, extent, std::move(waiter), access, urgency)) tiers_.Hurried();
}

void Stager::Run(io::QueueCrew& crew, io::IoQueue& queue) {
  while (std::optional<StagingJob> job = queue_.Next(crew)) {
    // Asked as late as this, because an object may stop answering while its job is in the queue.
    switch (queue_.Postpone(*job)) {
      case StagingQueue::Postponement::kNone: Perform(*job, queue); break;
      case StagingQueue::Postponement::kPostponed: break;
      case StagingQueue::Postponement::kCancelled: Cancel(*job); break;
    }
  }
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
  const std::int64_t late_ns = parts_.calls != nullptr ? parts_.calls->late_after_ns()
                                                       : options_.hung_after_ms * 1'000'000;
  gate_.LendPlacesOf(late_ns);
  pieces_.LendPlacesOf(late_ns);
  tiers_.LendMemoryOf(late_ns);
  if (parts_.calls == nullptr) return;
  const std::vector<std::thread::id> threads = BlockedThreads();
  std::uint32_t blocked = crew_->CountOf(threads);
  // A catalogue job reads metadata with threads of its own. If some of them are blocked, one reader
  // thread of the crew waits for them, and counts as blocked too.
  blocked += std::min(queue_.cataloguing(), static_cast<std::uint32_t>(threads.size()) - blocked);
  // Starts a spare thread for each blocked one, and dismisses spares that are no longer needed.
  const Status adjusted = crew_->AdjustTo(blocked);
  if (!adjusted.has_value() && !lacks_spare_) {
    log::Warn("no additional reader could be started in place of one that is blocked by the "
              "GFS; other objects are read more slowly until the GFS answers: {}",
              adjusted.error().ToString());
  }
  lacks_spare_ = !adjusted.has_value();
  queue_.ResumePostponed();
  early_.Look();
}

// A job of any kind may block for long, but never for another job of this queue, except that a
// catalogue job waits for early loads under way, which end or are abandoned.
void Stager::Perform(StagingJob& job, io::IoQueue& queue) {
  switch (job.kind) {
    case StagingJob::Kind::kCatalogue: return PerformCatalogue(job, queue);
    case StagingJob::Kind::kLoad: return static_cast<void>(PerformLoad(job, queue));
    case StagingJob::Kind::kReadAhead: return PerformReadAhead(queue);
    case StagingJob::Kind::kLoadEarly: return early_.Load(*job.early, queue);
    case StagingJob::Kind::kTakeOver: return PerformTakeOver(job);
    case StagingJob::Kind::kEndPass: return EndPass(*job.dataset);
  }
}

// If a pass has begun for another caller since the call of TakeOver, it was perhaps prepared before
// the news that a node leaves. Then HandOver calls again after it.
void Stager::PerformTakeOver(const StagingJob& job) {
  Dataset& dataset = *job.dataset;
  if (dataset.progress().state != DatasetState::kStaging) {
    PrepareAgain(dataset, Extents::kToTakeOver);
    dataset.NoteTakeOver();
  }
  dataset.SetPreparing(false);
  queue_.EndTakeOver(job);
}

// Closing objects may take long on a GFS, so this is a job of its own, without a lock.
void Stager::EndPass(Dataset& dataset) {
  gfs_.CloseObjects(dataset);
  LogPassEnd(dataset);
}

Status Stager::PerformLoad(const StagingJob& job, io::IoQueue& queue) {
  Dataset& dataset = *job.dataset;
  // Blocks for as long as the GFS needs; no mutex is held.
  const Result<bool> supplied = supplier_.Load({.dataset = dataset,
                                                .extent = job.extent,
                                                .access = job.access,
                                                .background = job.background,
                                                .ahead = job.ahead,
                                                .priority = job.priority->requests,
                                                .urgency = job.priority->urgency,
                                                .needs_whole = job.priority->needs_whole},
                                               queue);
  // The pass may have ended already; the extents that got a home now would wait for the next one.
  if (supplied.has_value() && *supplied) queue_.AddPass(dataset);
  const Status loaded = supplied.has_value() ? Status() : Status(supplied.error());
  queue_.EndLoad(job);
  // The pass may have skipped an extent while that was read ahead in vain.
  const bool is_skipped = job.ahead && dataset.progress().state == DatasetState::kStaging;
  if (dataset.Report(job.extent, loaded, parts_.clock.NowNs(), job.ahead)) EndPass(dataset);
  // A demand may have been served in pieces, and a load may have found no memory. If that leaves an
  // extent with a home on no tier, it is loaded later: the pass has skipped it while it was loaded.
  // An extent for which reading ahead has found no memory is tried again when its reader has come
  // closer (UpcomingReads::PutBack).
  const bool is_short = !job.ahead && !loaded.has_value() &&
                        loaded.error().code() == ErrorCode::kResourceExhausted;
  if (loaded.has_value() && job.background) lacks_memory_ = false;
  // This is said once, and again after a load has found memory, because such extents are tried
  // again each second.
  if (is_short && job.background && !lacks_memory_.exchange(true)) {
    log::Warn("data set '{}': extent {} is on no tier yet: {}; it is loaded when there is memory",
              dataset.name(), job.extent.value(), loaded.error().message());
  }
  if (loaded.has_value() || is_short || is_skipped) queue_.Defer(dataset, job.extent);
  return loaded;
}

// Reads one extent ahead of need. Only what this node reads from the GFS for the job is read ahead:
// other nodes send rows of the rest when batches ask for them. An extent takes free memory, and
// that of extents which are needed later (Urgency::kAhead). This is the strategy "aggressive" of
// Cao et al., "A Study of Integrated Prefetching and Caching Strategies", SIGMETRICS 1995.
void Stager::PerformReadAhead(io::IoQueue& queue) {
  std::optional<UpcomingExtent> next;
  std::optional<StagingJob> load;
  while (!load && (next = parts_.upcoming->Take())) {
    Dataset& dataset = *next->dataset;
    const bool is_wanted = !dataset.is_outdated() &&
                           supplier_.Reads(dataset.group_key(next->extent)) &&
                           !parts_.cache.Holds(dataset.key(next->extent)) &&
                           !queue_.IsBlocked(dataset, next->extent);
    if (is_wanted) load = queue_.BeginReadAhead(dataset, next->extent);
  }
  queue_.EndSearch(load.has_value());
  if (!load) return;
  const Status loaded = PerformLoad(*load, queue);
  if (!loaded.has_value() && loaded.error().code() == ErrorCode::kResourceExhausted) {
    parts_.upcoming->PutBack(*next);
    queue_.LookAhead();  // so that the next call of Take learns of the refusal
  }
}

void Stager::PerformCatalogue(StagingJob& job, io::IoQueue& queue) {
  Dataset& dataset = *job.dataset;
  const Result<bool> status = cataloguer_.Run(
      dataset, job.rebuild, job.replaced,
      {.described = [&](auto... of_extent) { StageEarly(dataset, of_extent...); },
       .ended = [&] { early_.End(dataset); }},
      queue);
  if (status.has_value() && !*status) {
    // Other nodes have not scanned their objects yet. This thread does other work meanwhile.
    const std::shared_ptr<ObjectScans> scans = dataset.scans();
    if (!queue_.PostponeCatalogue(std::move(job), scans->NextPauseNs())) {
      dataset.Fail({.error = ShuttingDown()});
    }
    return;
  }
  if (!status.has_value()) {
    const bool is_old_served =
        job.replaced.dataset != nullptr && !job.replaced.dataset->is_replaced();
    const Error error = is_old_served
                            ? status.error().WithContext("not rebuilt, and served as it was")
                            : status.error();
    log::Error("data set '{}': {}", dataset.name(), error.ToString());
    // A failed scan has stored extents that nobody can find without a catalog.
    cataloguer_.Abandon(dataset);
    CatalogFailure failure{.error = error, .at_ns = parts_.clock.NowNs()};
    const std::shared_ptr<ObjectScans> scans = dataset.scans();
    if (const auto reported_ns = scans ? scans->ReportedNs() : std::nullopt) {
      failure.at_ns = *reported_ns;
      failure.is_reported = true;
    }
    dataset.Fail(std::move(failure));
  } else {
    LogCatalogued(dataset);
  }
  // Only now does background staging begin, for all formats: a scan has staged what fitted, and the
  // pass finds the rest.
  queue_.EndCatalogue(job, status.has_value());
}

void Stager::StageEarly(Dataset& dataset, ExtentId extent, const catalog::ExtentInfo& info,
                        std::span<const catalog::ObjectInfo> objects) {
  // Early extents are read from the GFS. What another node reads, or may have for this one, which
  // has joined the job, takes over or yields, is copied from there once there is a catalog.
  if (supplier_.AsksOthers(GroupKeyOf(dataset.hash(), info.first_object))) return;
  if (early_.Add(dataset, extent, info, objects)) queue_.AddedEarly();
}

}  // namespace forebay::stage
