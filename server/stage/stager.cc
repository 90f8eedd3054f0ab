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

constexpr std::size_t kQueueDepth = 32;  // of a reader

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
      gfs_(options.request_bytes),
      placer_(RoomOf(options_, parts_)) {}

Stager::~Stager() {
  std::deque<Job> cancelled;
  std::deque<Job> never_catalogued;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    cancelled.swap(demanded_);
    never_catalogued.swap(catalogue_jobs_);
  }
  work_.notify_all();
  stopped_.notify_all();
  threads_.clear();
  const Error stopped(ErrorCode::kCancelled, "the daemon is shutting down");
  for (const Job& job : cancelled) {
    job.dataset->Report(*job.extent, stopped, parts_.clock.NowNs());
  }
  for (const Job& job : never_catalogued) job.dataset->Fail(stopped);
}

void Stager::Stage(Dataset& dataset, bool rebuild) {
  if (!dataset.BeginCataloguing(parts_.clock.NowNs())) return;
  {
    std::lock_guard lock(mutex_);
    catalogue_jobs_.push_back({.dataset = &dataset, .extent = std::nullopt, .rebuild = rebuild});
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
          demanded_.push_back({.dataset = &dataset, .extent = extent, .in_ram = in_ram});
        }
      }
      if (stopping) {
        dataset.Report(extent, Error(ErrorCode::kCancelled, "the daemon is shutting down"),
                       parts_.clock.NowNs());
      }
      work_.notify_one();
      return;
    }
    if (dataset.AddWaiter(extent, waiter)) return;
    // The load under way ended between the two calls: look again.
  }
}

void Stager::Run(io::IoQueue& queue) {
  while (std::optional<Job> job = NextJob()) Perform(*job, queue);
}

std::optional<Stager::Job> Stager::NextJob() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopping_) return std::nullopt;
    if (!demanded_.empty()) {
      Job job = demanded_.front();
      demanded_.pop_front();
      return job;
    }
    // One thread at least stays free for demands while others scan.
    const std::uint32_t cataloguing_max = std::max(1U, options_.readers - 1);
    if (!catalogue_jobs_.empty() && cataloguing_ < cataloguing_max) {
      Job job = catalogue_jobs_.front();
      catalogue_jobs_.pop_front();
      ++cataloguing_;
      return job;
    }
    if (!background_.empty()) {
      Dataset* dataset = background_.front();
      if (std::optional<ExtentId> extent = dataset->ClaimNext(parts_.clock.NowNs())) {
        return Job{.dataset = dataset, .extent = extent};
      }
      background_.erase(background_.begin());
      // Otherwise the last load to end closes them: it may not have opened its object yet.
      if (dataset->progress().state == DatasetState::kStaging) continue;
      lock.unlock();
      gfs_.CloseObjects(*dataset);
      lock.lock();
      continue;
    }
    work_.wait(lock);
  }
}

void Stager::Perform(const Job& job, io::IoQueue& queue) {
  Dataset& dataset = *job.dataset;
  if (job.extent) {
    const plan::Home home = job.in_ram ? plan::Home::kRam : dataset.home(*job.extent);
    const Status loaded = Load(dataset, *job.extent, home, queue);
    if (dataset.Report(*job.extent, loaded, parts_.clock.NowNs())) gfs_.CloseObjects(dataset);
    return;
  }
  const Status status = Catalogue(dataset, job.rebuild, queue);
  if (!status.has_value()) {
    spdlog::error("data set '{}': {}", dataset.name(), status.error().ToString());
    dataset.Fail(status.error());
  }
  {
    std::lock_guard lock(mutex_);
    --cataloguing_;
    if (status.has_value()) background_.push_back(&dataset);
  }
  work_.notify_all();
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
      return Adopt(dataset, std::move(*saved));
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
  FOREBAY_ASSIGN(auto built, catalog::BuildFromMetadata(parts_.backend, dataset.root(), resolved,
                                                        nullptr));
  dataset.CountGfs(0, 0, 0, built->object_count());
  Save(dataset, *built);
  return Adopt(dataset, std::move(built));
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

plan::Home Stager::HomeOf(const ExtentRef& found, std::uint64_t bytes) {
  if (found && found->tier == tier::TierKind::kRam) return plan::Home::kRam;
  std::lock_guard lock(mutex_);
  const bool fits_ram = plan::FootprintBytes(bytes) <= placer_.left().ram_bytes;
  return found && !fits_ram ? plan::Home::kSsd : placer_.Place(bytes);
}

// Takes over a complete catalog: what lies on SSD already is found, the rest gets its home.
Status Stager::Adopt(Dataset& dataset, std::shared_ptr<const catalog::Catalog> catalog) {
  FOREBAY_TRY(CheckSameCatalog(dataset, *catalog));
  // Staged again after a failure: every extent has its home, and its room was taken then.
  const bool has_homes = dataset.catalog() != nullptr;
  const std::uint32_t count = catalog->extent_count();
  std::vector<plan::Home> homes(count);
  std::vector<bool> resident(count, false);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t bytes = catalog->extent(ExtentId(i)).bytes;
    const ExtentRef found = parts_.cache.Find(tier::KeyOf(*catalog, ExtentId(i)));
    homes[i] = has_homes ? dataset.home(ExtentId(i)) : HomeOf(found, bytes);
    // An extent on SSD whose home is RAM is still to be brought up, from SSD.
    resident[i] = found && (found->tier == tier::TierKind::kRam || homes[i] != plan::Home::kRam);
    if (found) dataset.CountStaged(ExtentId(i), bytes);
  }
  dataset.SetCatalog(std::move(catalog), resident, std::move(homes));
  return {};
}

Status Stager::Scan(Dataset& dataset, io::IoQueue& queue) {
  // The pass keeps reads in flight while it stores an extent, and storing needs an idle queue.
  FOREBAY_ASSIGN(const auto ssd_queue, parts_.backend.CreateQueue({.depth = kQueueDepth}));
  TarScan scan(
      dataset, parts_.arena, queue,
      {.request_bytes = options_.request_bytes, .depth = options_.scan_depth},
      [&](const ExtentKey& key, ArenaBlock block, ExtentChecksums checksums) -> Status {
        // Found: an earlier daemon, or an earlier pass that failed, stored the same bytes.
        const ExtentRef found = parts_.cache.Find(key);
        const std::uint64_t bytes = block.bytes().size();
        const plan::Home home = HomeOf(found, bytes);
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

Status Stager::Load(Dataset& dataset, ExtentId extent, plan::Home home, io::IoQueue& queue) {
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
  FOREBAY_TRY(gfs_.ReadImage(queue, dataset, *catalog, extent, block.bytes()));
  std::vector<catalog::Range> pieces;
  FOREBAY_TRY(catalog->Pieces(extent, pieces));
  ExtentChecksums checksums = tier::ComputeChecksums(key, block.bytes(), pieces);
  FOREBAY_TRY(Publish(dataset, key, home, std::move(block), std::move(checksums), queue));
  dataset.CountStaged(extent, bytes);
  return {};
}

// Brings an extent from SSD up to RAM, verifying it on the way.
Status Stager::Promote(Dataset& dataset, const ExtentRef& found, io::IoQueue& queue) {
  FOREBAY_ASSIGN(ArenaBlock block, AllocateWithPatience(found->image_bytes,
                                                        parts_.next_use(found->key)));
  const std::uint64_t padded = plan::FootprintBytes(found->image_bytes);
  // The block is made of whole pages, so a direct read may fill its padding too.
  const std::span<std::byte> whole(block.bytes().data(), padded);
  FOREBAY_TRY(io::ReadFully(queue, *found->segment->file, 0, whole));
  const ExtentChecksums& sums = found->sums();
  const std::uint64_t image =
      Checksum(tier::PieceIdentity(found->key, 0, found->image_bytes), block.bytes());
  if (image != sums.image) {
    return Error(ErrorCode::kDataLoss, "extent " + std::to_string(found->key.extent.value()) +
                                           " on SSD does not match its checksum");
  }
  auto published = parts_.cache.PublishRam(found->key, std::move(block), sums);
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
