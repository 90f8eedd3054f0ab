#include "server/stage/stager.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "server/stage/saved_catalog.h"
#include "server/stage/tar_scan.h"

namespace forebay::stage {

using tier::ArenaBlock;
using tier::ExtentChecksums;
using tier::ExtentKey;
using tier::ExtentRef;

namespace {

constexpr std::size_t kQueueDepth = 32;     // of a reader
constexpr std::int64_t kReaderGraceNs = 50'000'000;  // from catalog to first pull, and to spare
constexpr std::size_t kEarlyRunsMax = 64;   // waiting; more are staged once there is a catalog
constexpr std::uint64_t kBackgroundRank = std::uint64_t{1} << 63;  // and above: after demands

plan::Room RoomOf(const StagerOptions& options, const StagerParts& parts) {
  // Planned below the watermark at which the cache begins to evict: what has a home stays there.
  plan::Room room;
  const std::uint64_t capacity =
      parts.arena.capacity_bytes() / 1000 * tier::ExtentCache::Options().watermark_low_permille;
  room.ram_bytes = capacity - std::min(capacity, options.ram_reserve_bytes);
  if (parts.store != nullptr) {
    const std::uint64_t store_bytes = parts.store->capacity_bytes() / 1000 *
                                      tier::ExtentCache::Options().watermark_low_permille;
    room.ssd_bytes = store_bytes - std::min(store_bytes, parts.store->used_bytes());
  }
  return room;
}

// Readers hold on to the first catalog of a data set, so another one cannot take its place.
Status CheckSameCatalog(const Dataset& dataset, const catalog::Catalog& catalog) {
  const std::shared_ptr<const catalog::Catalog> before = dataset.catalog();
  if (!before || before->fingerprint() == catalog.fingerprint()) return {};
  return Error(ErrorCode::kFailedPrecondition,
               "the objects of '" + dataset.name() +
                   "' changed while this daemon runs; restart it to serve the new ones");
}

}  // namespace

Result<std::unique_ptr<Stager>> Stager::Create(const StagerOptions& options, StagerParts parts) {
  if (options.readers == 0 || options.readers > 64) {
    return Error(ErrorCode::kInvalidArgument, "stage.readers must be between 1 and 64");
  }
  if (options.request_bytes < limits::kIoAlignmentBytes ||
      options.request_bytes > limits::kIoRequestBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "stage.request_bytes must be between 4 KiB and 64 MiB");
  }
  if (options.requests == 0 || options.requests > limits::kIoDepthMax) {
    return Error(ErrorCode::kInvalidArgument, "stage.requests must be between 1 and " +
                                                  std::to_string(limits::kIoDepthMax));
  }
  std::unique_ptr<Stager> stager(new Stager(options, std::move(parts)));
  for (std::uint32_t i = 0; i < options.readers; ++i) {
    FOREBAY_ASSIGN(auto queue, stager->parts_.backend.CreateQueue({.depth = kQueueDepth}));
    stager->queues_.push_back(std::move(queue));
  }
  for (auto& queue : stager->queues_) {
    stager->threads_.emplace_back([raw = stager.get(), &queue] { raw->Run(*queue); });
  }
  return stager;
}

Stager::Stager(const StagerOptions& options, StagerParts parts)
    : options_(options),
      parts_(std::move(parts)),
      gate_(options.requests),
      gfs_(options.request_bytes, gate_),
      placer_(RoomOf(options_, parts_)) {}

Stager::~Stager() {
  std::deque<Job> cancelled;
  std::deque<Job> never_catalogued;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    cancelled.swap(demanded_);
    never_catalogued.swap(catalogue_jobs_);
    early_.clear();
  }
  work_.notify_all();
  stopped_.notify_all();
  packed_.notify_all();
  threads_.clear();
  const Error stopped(ErrorCode::kCancelled, "the daemon is shutting down");
  for (const Job& job : cancelled) {
    job.dataset->Report(*job.extent, stopped, parts_.clock.NowNs());
  }
  for (const Job& job : never_catalogued) job.dataset->Fail(stopped);
}

void Stager::StageForReader(Dataset& dataset) { Begin(dataset, false, kReaderGraceNs); }

void Stager::Begin(Dataset& dataset, bool rebuild, std::int64_t grace_ns) {
  if (!dataset.BeginCataloguing(parts_.clock.NowNs())) return;
  {
    std::lock_guard lock(mutex_);
    Job job;
    job.dataset = &dataset;
    job.rebuild = rebuild;
    job.grace_ns = grace_ns;
    catalogue_jobs_.push_back(std::move(job));
  }
  work_.notify_one();
}

void Stager::Demand(Dataset& dataset, ExtentId extent, Waiter waiter, bool in_ram) {
  // Held resident by the table but gone from the cache: it was evicted, so it is read again.
  for (;;) {
    const ExtentRef found = parts_.cache.Find(dataset.key(extent));
    if (found) {
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
          job.in_ram = in_ram;
          job.rank = std::make_shared<Rank>(next_rank_++);
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
  std::uint64_t value = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = ranks_.find({&dataset, extent});
    if (found == ranks_.end()) return;
    rank = found->second;
    value = next_rank_++;
  }
  gate_.Promote(*rank, value);
}

void Stager::Run(io::IoQueue& queue) {
  while (std::optional<Job> job = NextJob()) Perform(*job, queue);
}

std::optional<Stager::Job> Stager::NextJob() {
  const auto take = [](std::deque<Job>& jobs) {
    Job job = std::move(jobs.front());
    jobs.pop_front();
    return job;
  };
  // One thread at least stays free for demands while others scan, and a quarter of them while
  // others stage in the background: a demand does not wait for an extent nobody asked for.
  const std::uint32_t cataloguing_max = std::max(1U, options_.readers - 1);
  const std::uint32_t background_max = std::max(1U, options_.readers - options_.readers / 4);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopping_) return std::nullopt;
    if (!demanded_.empty()) return take(demanded_);
    if (!catalogue_jobs_.empty() && cataloguing_ < cataloguing_max) {
      ++cataloguing_;
      return take(catalogue_jobs_);
    }
    if (!early_.empty()) {
      ++early_loads_[early_.front().dataset];
      return take(early_);
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
    work_.wait(lock);
  }
}

// The next extent of the first data set that has one left; unset, to look again, where it had
// none and was taken off the list.
std::optional<Stager::Job> Stager::NextInBackground(std::unique_lock<std::mutex>& lock) {
  Dataset* const dataset = background_.front().dataset;
  if (std::optional<ExtentId> extent = dataset->ClaimNext(parts_.clock.NowNs())) {
    ++background_loads_;
    Job job;
    job.dataset = dataset;
    job.extent = extent;
    job.background = true;
    job.rank = std::make_shared<Rank>(kBackgroundRank + next_rank_++);
    ranks_[{dataset, *extent}] = job.rank;
    return job;
  }
  background_.erase(background_.begin());
  // Otherwise the last load to end closes them: it may not have opened its object yet.
  if (dataset->progress().state != DatasetState::kStaging) {
    lock.unlock();
    gfs_.CloseObjects(*dataset);
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
      // Whoever needs the extent tries again, and then it is an error.
      spdlog::debug("data set '{}': {}", job.dataset->name(), loaded.error().ToString());
    }
    std::lock_guard lock(mutex_);
    if (--early_loads_[job.dataset] == 0) early_over_.notify_all();
  } else {
    PerformCatalogue(job, queue);
  }
}

void Stager::PerformLoad(const Job& job, io::IoQueue& queue) {
  Dataset& dataset = *job.dataset;
  const Status loaded = Load(dataset, *job.extent, job, queue);
  {
    // Before it is reported: from then on the extent may be claimed anew.
    std::lock_guard lock(mutex_);
    ranks_.erase({&dataset, *job.extent});
    if (job.background) --background_loads_;
  }
  if (dataset.Report(*job.extent, loaded, parts_.clock.NowNs())) gfs_.CloseObjects(dataset);
}

void Stager::PerformCatalogue(const Job& job, io::IoQueue& queue) {
  Dataset& dataset = *job.dataset;
  const Status status = Catalogue(dataset, job.rebuild, queue);
  if (!status.has_value()) {
    spdlog::error("data set '{}': {}", dataset.name(), status.error().ToString());
    dataset.Fail(status.error());
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
  {
    std::lock_guard lock(mutex_);
    const plan::Room left = placer_.left();
    const std::uint64_t footprint = plan::FootprintBytes(info.bytes);
    const bool fits = footprint <= left.ram_bytes || footprint <= left.ssd_bytes;
    if (stopping_ || !fits || early_.size() >= kEarlyRunsMax) return;
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
    job.rank = std::make_shared<Rank>(kBackgroundRank + next_rank_++);
    early_.push_back(std::move(job));
  }
  work_.notify_one();
}

Status Stager::LoadEarly(Dataset& dataset, const EarlyRun& run, const Rank& rank,
                         io::IoQueue& queue) {
  if (parts_.cache.Find(run.key)) return {};  // an earlier daemon stored it
  FOREBAY_ASSIGN(ArenaBlock block, parts_.cache.AllocateRam(run.bytes, ~std::uint64_t{0} - 1));
  FOREBAY_TRY(gfs_.ReadRun(queue, dataset, run.objects, rank, block.bytes()));
  std::vector<catalog::Range> pieces;
  std::uint64_t placed = 0;
  for (const catalog::ObjectInfo& object : run.objects) {
    pieces.push_back({run.key.extent, static_cast<std::uint32_t>(placed), object.bytes});
    placed += object.bytes;
  }
  ExtentChecksums checksums = tier::ComputeChecksums(run.key, block.bytes(), pieces);
  const plan::Home home = HomeOf(std::nullopt, run.bytes);
  FOREBAY_TRY(Publish(dataset, run.key, home, std::move(block), std::move(checksums), queue));
  dataset.CountStaged(run.key.extent, run.bytes);
  return {};
}

// What has begun is finished, so that nobody reads it a second time.
void Stager::EndEarly(Dataset& dataset) {
  std::unique_lock lock(mutex_);
  std::erase_if(early_, [&](const Job& job) { return job.dataset == &dataset; });
  early_over_.wait(lock, [&] { return early_loads_[&dataset] == 0; });
  early_loads_.erase(&dataset);
}

Status Stager::Catalogue(Dataset& dataset, bool rebuild, io::IoQueue& queue) {
  const catalog::DatasetSource& source = dataset.options().source;
  if (!rebuild) {
    auto saved = LoadSavedCatalog(options_.catalog_path, source);
    if (saved.has_value()) {
      dataset.CountGfs(0, 0, 0, (*saved)->object_count());
      const Status unchanged = catalog::VerifyObjects(**saved, dataset.root());
      if (!unchanged.has_value()) {
        return unchanged.error().WithContext(
            "the saved catalog no longer fits (remedy: forebay stage --rebuild " +
            dataset.name() + ")");
      }
      spdlog::info("data set '{}': loaded its saved catalog", dataset.name());
      return Adopt(dataset, std::move(*saved), queue);
    }
    if (saved.error().code() != ErrorCode::kNotFound) {
      spdlog::warn("data set '{}': its saved catalog is not usable and is built anew: {}",
                   dataset.name(), saved.error().ToString());
    }
  }
  catalog::DatasetSource resolved = source;
  if (!resolved.format) {
    FOREBAY_ASSIGN(resolved.format, catalog::DetectFormat(dataset.root(), source));
  }
  if (!catalog::BuildsFromMetadata(*resolved.format)) return Scan(dataset, queue);
  // A data set that was served before has its homes, and what is left of it is claimed.
  const bool is_first = dataset.catalog() == nullptr;
  auto built = catalog::BuildFromMetadata(
      parts_.backend, dataset.root(), resolved, nullptr,
      [&](ExtentId extent, const catalog::ExtentInfo& info,
          std::span<const catalog::ObjectInfo> objects) {
        if (is_first) StageEarly(dataset, extent, info, objects);
      },
      {.directory = options_.catalog_path});
  EndEarly(dataset);
  FOREBAY_TRY(built);
  dataset.CountGfs(0, 0, 0, (*built)->object_count());
  Save(dataset, **built);
  return Adopt(dataset, std::move(*built), queue);
}

void Stager::Save(Dataset& dataset, const catalog::Catalog& catalog) {
  if (parts_.catalogs == nullptr) return;
  const Status saved =
      catalog::SaveCatalog(catalog, parts_.backend, *parts_.catalogs,
                           SavedCatalogName(dataset.options().source));
  if (!saved.has_value()) {
    spdlog::warn("data set '{}': its catalog could not be saved: {}", dataset.name(),
                 saved.error().ToString());
  }
}

plan::Home Stager::HomeOf(std::optional<tier::TierKind> found, std::uint64_t bytes) {
  if (found == tier::TierKind::kRam) return plan::Home::kRam;
  std::lock_guard lock(mutex_);
  const bool fits_ram = plan::FootprintBytes(bytes) <= placer_.left().ram_bytes;
  return found && !fits_ram ? plan::Home::kSsd : placer_.Place(bytes);
}

// Takes over a complete catalog: what lies on SSD already is found, the rest gets its home.
Status Stager::Adopt(Dataset& dataset, std::shared_ptr<const catalog::Catalog> catalog,
                     io::IoQueue& queue) {
  FOREBAY_TRY(CheckSameCatalog(dataset, *catalog));
  // Staged again after a failure: every extent has its home, and its room was taken then.
  const bool has_homes = dataset.catalog() != nullptr;
  if (!has_homes) ChooseForm(dataset, catalog, queue);
  const std::shared_ptr<const PackedForm> form = dataset.form();
  const std::uint32_t count = catalog->extent_count();
  std::vector<Found> found(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const ExtentKey raw = tier::KeyOf(*catalog, ExtentId(i));
    const ExtentRef ref = parts_.cache.Find(form ? form->Key(raw) : raw);
    if (!ref) continue;
    found[i] = {.image_bytes = ref->image_bytes, .tier = ref->tier};
    dataset.CountStaged(ExtentId(i), catalog->extent(ExtentId(i)).bytes);
    dataset.CountStored(ExtentId(i), ref->image_bytes);
  }
  std::vector<std::uint64_t> planned = PlanBytes(*catalog, form.get(), found);
  std::vector<plan::Home> homes(count);
  std::vector<bool> resident(count, false);
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool is_here = found[i].image_bytes > 0;
    const auto tier = is_here ? std::optional(found[i].tier) : std::nullopt;
    homes[i] = has_homes ? dataset.home(ExtentId(i)) : HomeOf(tier, planned[i]);
    // An extent on SSD whose home is RAM is still to be brought up, from SSD.
    resident[i] = is_here && (tier == tier::TierKind::kRam || homes[i] != plan::Home::kRam);
  }
  if (!has_homes && form) dataset.SetPlannedBytes(std::move(planned));
  dataset.SetCatalog(std::move(catalog), resident, std::move(homes));
  return {};
}

Status Stager::Scan(Dataset& dataset, io::IoQueue& queue) {
  // The pass keeps reads in flight while it stores an extent, and storing needs an idle queue.
  FOREBAY_ASSIGN(const auto ssd_queue, parts_.backend.CreateQueue({.depth = kQueueDepth}));
  TarScan scan(
      dataset, parts_.arena, queue,
      {.request_bytes = options_.request_bytes,
       .depth = options_.scan_depth,
       .scratch_path = options_.catalog_path},
      [&](const ExtentKey& key, ArenaBlock block, ExtentChecksums checksums) -> Status {
        // Found: an earlier daemon, or an earlier pass that failed, stored the same bytes.
        const ExtentRef found = parts_.cache.Find(key);
        const std::uint64_t bytes = block.bytes().size();
        const plan::Home home =
            HomeOf(found ? std::optional(found->tier) : std::nullopt, bytes);
        if (!found || (found->tier != tier::TierKind::kRam && home == plan::Home::kRam)) {
          FOREBAY_TRY(
              Publish(dataset, key, home, std::move(block), std::move(checksums), *ssd_queue));
        }
        dataset.CountStaged(key.extent, bytes);
        return {};
      },
      [&](std::uint64_t bytes) { return AllocateWithPatience(bytes, ~std::uint64_t{0} - 1); });
  FOREBAY_ASSIGN(auto catalog, scan.Run());
  FOREBAY_TRY(CheckSameCatalog(dataset, *catalog));
  Save(dataset, *catalog);
  ChooseForm(dataset, catalog, queue);  // says why these stay as they are
  const std::uint32_t count = catalog->extent_count();
  std::vector<bool> resident(count, false);
  std::vector<plan::Home> homes(count, plan::Home::kTransient);
  for (std::uint32_t i = 0; i < count; ++i) {
    const ExtentRef found = parts_.cache.Find(tier::KeyOf(*catalog, ExtentId(i)));
    resident[i] = found != nullptr;
    if (found) {
      homes[i] = found->tier == tier::TierKind::kRam ? plan::Home::kRam : plan::Home::kSsd;
    }
  }
  dataset.SetCatalog(std::move(catalog), resident, std::move(homes));
  return {};
}

Status Stager::Load(Dataset& dataset, ExtentId extent, const Job& job, io::IoQueue& queue) {
  plan::Home home = job.in_ram ? plan::Home::kRam : dataset.home(extent);
  const std::shared_ptr<const catalog::Catalog> catalog = dataset.catalog();
  const ExtentKey& key = dataset.key(extent);
  if (const ExtentRef found = parts_.cache.Find(key)) {
    if (found->tier == tier::TierKind::kRam || home != plan::Home::kRam) return {};
    const Status promoted = Promote(dataset, found, queue);
    // Want of memory says nothing about the copy on SSD, which goes on being served.
    const bool is_sound = promoted.has_value() ||
                          promoted.error().code() == ErrorCode::kResourceExhausted ||
                          promoted.error().code() == ErrorCode::kCancelled;
    if (is_sound) return {};
    spdlog::warn("data set '{}': {}; reading it from the GFS again", dataset.name(),
                 promoted.error().ToString());
    parts_.cache.ReportBadSegment(key, parts_.clock.NowNs());
  }
  const std::uint64_t bytes = catalog->extent(extent).bytes;
  FOREBAY_ASSIGN(ArenaBlock block, AllocateWithPatience(bytes, parts_.next_use(key)));
  FOREBAY_TRY(gfs_.ReadImage(queue, dataset, *catalog, extent, *job.rank, block.bytes()));
  const std::shared_ptr<const PackedForm> form = dataset.form();
  FOREBAY_ASSIGN(Image image, MakeImage(*catalog, form.get(), key, std::move(block)));
  const std::uint64_t image_bytes = image.block.bytes().size();
  if (form) home = Settle(dataset, extent, home, image_bytes);
  FOREBAY_TRY(Publish(dataset, key, home, std::move(image.block), std::move(image.checksums),
                      queue));
  dataset.CountStaged(extent, bytes);
  dataset.CountStored(extent, image_bytes);
  return {};
}

Result<ArenaBlock> Stager::ReadResident(const tier::ResidentExtent& extent,
                                        io::IoQueue& queue) {
  FOREBAY_ASSIGN(ArenaBlock block,
                 AllocateWithPatience(extent.image_bytes, parts_.next_use(extent.key)));
  if (extent.tier == tier::TierKind::kRam) {
    std::ranges::copy(extent.block.bytes(), block.bytes().begin());
    return block;
  }
  const std::uint64_t padded = plan::FootprintBytes(extent.image_bytes);
  // The block is made of whole pages, so a direct read may fill its padding too.
  const std::span<std::byte> whole(block.bytes().data(), padded);
  FOREBAY_TRY(io::ReadFully(queue, *extent.segment->file, 0, whole));
  const std::uint64_t image =
      Checksum(tier::PieceIdentity(extent.key, 0, extent.image_bytes), block.bytes());
  if (image != extent.sums().image) {
    return Error(ErrorCode::kDataLoss, "extent " + std::to_string(extent.key.extent.value()) +
                                           " on SSD does not match its checksum");
  }
  return block;
}

// Brings an extent from SSD up to RAM, verifying it on the way.
Status Stager::Promote(Dataset& dataset, const ExtentRef& found, io::IoQueue& queue) {
  FOREBAY_ASSIGN(ArenaBlock block, ReadResident(*found, queue));
  auto published = parts_.cache.PublishRam(found->key, std::move(block), found->sums());
  if (!published.has_value() && published.error().code() != ErrorCode::kAlreadyExists) {
    return published.error();
  }
  (void)dataset;
  return {};
}

// Stores an extent where it belongs. A tier that fails is a degraded tier, not a lost extent:
// the other one takes it.
Status Stager::Publish(Dataset& dataset, const ExtentKey& key, plan::Home home, ArenaBlock block,
                       ExtentChecksums checksums, io::IoQueue& queue) {
  const bool to_ssd = home == plan::Home::kSsd;
  if (parts_.store != nullptr && (to_ssd || dataset.options().persist)) {
    const Status stored =
        parts_.cache.PublishSsd(queue, key, block.bytes(), checksums, parts_.next_use(key));
    if (stored.has_value() && to_ssd) return {};
    if (!stored.has_value() && stored.error().code() != ErrorCode::kAlreadyExists) {
      spdlog::warn("data set '{}': extent {} could not be stored on SSD: {}", dataset.name(),
                   key.extent.value(), stored.error().ToString());
    }
  }
  auto published = parts_.cache.PublishRam(key, std::move(block), std::move(checksums));
  if (!published.has_value() && published.error().code() != ErrorCode::kAlreadyExists) {
    return published.error();
  }
  return {};
}

// Memory may be short for a moment while clients hold views; it is waited for within a bound.
Result<ArenaBlock> Stager::AllocateWithPatience(std::uint64_t bytes, std::uint64_t next_use) {
  constexpr std::int64_t kPauseMs = 20;
  constexpr int kAttemptsMax = limits::kMemoryWaitMs / kPauseMs;
  for (int attempt = 0;; ++attempt) {
    {
      // A pass over a whole data set must not outlive its daemon either.
      std::lock_guard lock(mutex_);
      if (stopping_) return Error(ErrorCode::kCancelled, "the daemon is shutting down");
    }
    auto block = parts_.cache.AllocateRam(bytes, next_use);
    if (block.has_value() || attempt == kAttemptsMax ||
        block.error().code() != ErrorCode::kResourceExhausted) {
      return block;
    }
    std::unique_lock lock(mutex_);
    stopped_.wait_for(lock, std::chrono::milliseconds(kPauseMs), [this] { return stopping_; });
  }
}

}  // namespace forebay::stage
