// Wires the rooms in the order of the daemon and stops them in reverse. Names of the back end's
// folders are fixed: /gfs, /ssd and /state beneath the rig's folder.
#include "server/stage/testing/stage_rig.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "server/io/aligned_buffer.h"

namespace forebay::stage {

Status StageRig::Start(const DatasetOptions& dataset, const RigOptions& options) {
  FOREBAY_ASSIGN(arena_, tier::RamArena::Create({.capacity_bytes = options.ram_bytes,
                                                 .region_bytes = 1 << 30,
                                                 .first_region = RegionId(0)}));
  if (options.ssd_bytes > 0) {
    FOREBAY_ASSIGN(ssd_directory_, backend_.OpenDirectory(folder_ + options.ssd_folder));
    FOREBAY_ASSIGN(store_, tier::SegmentStore::Open(
                               backend_, *ssd_directory_,
                               {.capacity_bytes = options.ssd_bytes, .direct = true}));
  }
  const auto never = [](const tier::ExtentKey&, std::uint64_t) { return ~std::uint64_t{0} - 1; };
  const tier::NextUse next_use = options.next_use ? options.next_use : never;
  cache_ = tier::ExtentCache::Create(*arena_, store_.get(), {}, next_use);
  FOREBAY_ASSIGN(auto root, backend_.OpenDirectory(folder_ + "/gfs"));
  dataset_ = std::make_unique<Dataset>(dataset, backend_, std::move(root));
  StagerOptions staging;
  staging.readers = options.readers;
  staging.request_bytes = options.request_bytes;
  staging.scan_depth = options.scan_depth;
  staging.requests = options.requests;
  staging.has_request_cap = options.has_request_cap;
  staging.ram_home_bytes = options.ram_bytes / 1000 * 940 - options.reserve_bytes;
  staging.ram_working_bytes = options.reserve_bytes;
  if (options.saves_catalogs) {
    FOREBAY_ASSIGN(catalogs_, backend_.OpenDirectory(folder_ + "/state"));
    staging.catalog_path = folder_ + "/state";
  }
  FOREBAY_ASSIGN(stager_, Stager::Create(staging, {.backend = backend_,
                                                   .catalogs = catalogs_.get(),
                                                   .arena = *arena_,
                                                   .store = store_.get(),
                                                   .cache = *cache_,
                                                   .clock = clock_,
                                                   .throttle = options.throttle,
                                                   .next_use = next_use,
                                                   .upcoming = options.upcoming,
                                                   .nodes = options.nodes,
                                                   .peers = options.peers,
                                                   .keepers = options.keepers,
                                                   .peer_parts = options.peer_parts,
                                                   .peer_stats = options.peer_stats}));
  return {};
}

void StageRig::Stop() {
  stager_.reset();
  kept_.clear();
  dataset_.reset();
  cache_.reset();
  store_.reset();
  arena_.reset();
  ssd_directory_.reset();
  catalogs_.reset();
}

Status AwaitPassEnd(const Dataset& dataset) {
  std::mutex mutex;
  std::condition_variable pause;
  for (;;) {
    const DatasetProgress progress = dataset.progress();
    if (progress.state == DatasetState::kStaged) return {};
    if (progress.state == DatasetState::kFailed) {
      return Error(ErrorCode::kDataLoss, progress.error);
    }
    // Polled, as an admin client polls it; nothing is decided by the pause.
    std::unique_lock lock(mutex);
    pause.wait_for(lock, std::chrono::microseconds(200));
  }
}

Status StageRig::StageAll(bool rebuild, const std::function<void()>& taken_over) {
  if (rebuild && dataset_->catalog() != nullptr) {
    FOREBAY_ASSIGN(auto root, backend_.OpenDirectory(folder_ + "/gfs"));
    kept_.push_back(std::make_unique<Dataset>(dataset_->options(), backend_, std::move(root)));
    Dataset& successor = *kept_.back();
    std::atomic<bool> has_taken_over = false;
    stager_->Replace(*dataset_, successor, [&] {
      has_taken_over = true;
      if (taken_over) taken_over();
    });
    const Status settled = AwaitPassEnd(successor);
    if (has_taken_over) std::swap(dataset_, kept_.back());
    return settled;
  }
  stager_->Stage(*dataset_, rebuild);
  return AwaitPassEnd(*dataset_);
}

Status StageRig::Demand(ExtentId extent) {
  std::mutex mutex;
  std::condition_variable told;
  std::optional<Status> outcome;
  stager_->Demand(*dataset_, extent, [&](const Status& status) {
    std::lock_guard lock(mutex);
    outcome = status;
    told.notify_all();
  });
  std::unique_lock lock(mutex);
  told.wait(lock, [&] { return outcome.has_value(); });
  return *outcome;
}

Status StageRig::Verify(ExtentId extent) {
  const tier::ExtentRef ref = cache_->Find(dataset_->key(extent));
  if (!ref) return Error(ErrorCode::kNotFound, "extent " + std::to_string(extent.value()));
  std::vector<catalog::Range> pieces;
  FOREBAY_TRY(dataset_->catalog()->Pieces(extent, pieces));
  io::AlignedBuffer copy;
  std::span<const std::byte> image = ref->block.bytes();
  if (ref->tier == tier::TierKind::kSsd) {
    FOREBAY_ASSIGN(copy, io::AlignedBuffer::Create(ref->image_bytes));
    FOREBAY_ASSIGN(auto queue, backend_.CreateQueue({.depth = 1}));
    FOREBAY_TRY(io::ReadFully(*queue, *ref->segment->file, 0, copy.span()));
    image = copy.span().first(ref->image_bytes);
  }
  const tier::ExtentChecksums& sums = ref->sums();
  if (sums.pieces.size() != pieces.size()) {
    return Error(ErrorCode::kDataLoss, "another number of pieces");
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    FOREBAY_TRY(tier::VerifyPiece(ref->key, pieces[i], sums.pieces[i],
                                  image.subspan(pieces[i].offset, pieces[i].length)));
  }
  return {};
}

Status StageRig::VerifyAll() {
  for (std::uint32_t i = 0; i < extent_count(); ++i) FOREBAY_TRY(Verify(ExtentId(i)));
  return {};
}

DatasetOptions RecordDataset(std::uint64_t record_bytes) {
  DatasetOptions dataset;
  dataset.source.name = "data";
  dataset.source.format = catalog::Format::kRaw;
  dataset.source.settings.SetTexts("files", {"x=data.bin"});
  dataset.source.settings.SetNumbers("shape", {record_bytes});
  dataset.source.extent_bytes = 64 << 10;
  dataset.group_bytes = 1;  // so that nodes share a small data set, extent by extent
  return dataset;
}

}  // namespace forebay::stage
