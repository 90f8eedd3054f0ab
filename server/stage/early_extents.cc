// The invariant: once End has returned, no early load of the data set publishes an extent any more.
// So the pass that follows finds an extent on a tier, or loads it without a rival. An extent is in
// waiting_, or in loads_ from Take on; both change under one lock, so End misses none.
#include "server/stage/early_extents.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "server/io/log.h"
#include "server/plan/placement.h"
#include "server/stage/extent_groups.h"
#include "server/stage/placement/staging_tiers.h"

namespace forebay::stage {
namespace {

constexpr std::size_t kWaitingMax = 64;  // others are staged after cataloguing

}  // namespace

bool EarlyExtents::Add(Dataset& dataset, ExtentId extent, const catalog::ExtentInfo& info,
                       std::span<const catalog::ObjectInfo> objects) {
  const plan::TierSpace left = parts_.placements.left();
  const plan::Footprint footprint = FootprintOf(info.bytes, objects.size());
  // An extent that will have no home would be read in vain.
  if (footprint.ram_bytes > left.ram_bytes && footprint.ssd_bytes > left.ssd_bytes) return false;
  {
    const MutexLock lock(mutex_);
    // The builder of the catalog finds extents much faster than they can be read.
    if (is_stopped_ || waiting_.size() >= kWaitingMax) return false;
  }
  auto early = std::make_unique<Extent>();
  early->dataset = &dataset;
  early->key = {dataset.hash(), extent, tier::ExtentIdentity(info, objects)};
  early->group_key = GroupKeyOf(dataset.hash(), info.first_object);
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
  early->priority = kBackgroundPriority + parts_.gate.NextPriority();
  const MutexLock lock(mutex_);
  if (is_stopped_) return false;
  waiting_.push_back(std::move(early));
  return true;
}

std::unique_ptr<EarlyExtents::Extent> EarlyExtents::Take() {
  const MutexLock lock(mutex_);
  if (waiting_.empty()) return nullptr;
  std::unique_ptr<Extent> extent = std::move(waiting_.front());
  waiting_.pop_front();
  loads_.push_back(extent.get());
  return extent;
}

void EarlyExtents::Load(Extent& extent, io::IoQueue& queue) {
  // Asked as late as this, because an object may stop answering while its extent waits.
  if (!IsBlocked(extent)) {
    const Status loaded = Read(extent, queue);
    if (!loaded.has_value()) {
      // No error yet: the extent is staged again once there is a catalog, and a failure then
      // counts.
      log::Debug("data set '{}': {}", extent.dataset->name(), loaded.error().ToString());
    }
  }
  EndLoad(extent);
}

bool EarlyExtents::IsBlocked(const Extent& extent) const {
  if (parts_.calls == nullptr || !parts_.calls->AnyLate()) return false;
  return std::ranges::any_of(extent.objects, [&](const catalog::ObjectInfo& object) {
    return parts_.calls->IsLate(
        {.root = extent.dataset->options().root_path, .path = object.path});
  });
}

Status EarlyExtents::Read(Extent& extent, io::IoQueue& queue) {
  if (parts_.cache.Find(extent.key)) return {};  // an earlier daemon stored it
  FOREBAY_ASSIGN(tier::ArenaBlock block,
                 parts_.cache.AllocateRam(extent.bytes, kNotAskedFor, &queue,
                                          /*spares_homes=*/true));
  // In an extent of whole objects, each object is the piece of one sample.
  std::vector<catalog::Range> pieces;
  std::uint64_t placed = 0;
  for (const catalog::ObjectInfo& object : extent.objects) {
    pieces.push_back({extent.key.extent, static_cast<std::uint32_t>(placed), object.bytes});
    placed += object.bytes;
  }
  Dataset& dataset = *extent.dataset;
  const auto read = [&](std::span<std::byte> image, bool past_caches) {
    return parts_.gfs.ReadRun(queue, dataset, extent.objects, extent.priority, image,
                              past_caches);
  };
  FOREBAY_ASSIGN(
      tier::ExtentChecksums checksums,
      ReadExtent(dataset,
                 {.key = extent.key,
                  .pieces = pieces,
                  .objects = NameObjects(extent.objects),
                  .group_key = extent.group_key},
                 block.bytes(), read));
  {
    const MutexLock lock(mutex_);
    // End does not wait for this load any more: the pass may be loading the extent itself.
    if (extent.is_abandoned) return {};
    extent.is_storing = true;
  }
  FOREBAY_TRY(parts_.loader.StoreExtent(
      dataset,
      {.key = extent.key,
       .extent = extent.key.extent,
       .image = std::move(block),
       .checksums = std::move(checksums)},
      std::nullopt, queue));
  return {};
}

void EarlyExtents::EndLoad(Extent& extent) {
  const MutexLock lock(mutex_);
  // If it was abandoned, End has removed it from the list already.
  std::erase(loads_, &extent);
  load_over_.NotifyAll();
}

// Waits for the loads that have begun, so that their extents are found on a tier and are not read a
// second time.
void EarlyExtents::End(const Dataset& dataset) {
  const auto is_its = [&](const Extent& extent) { return extent.dataset == &dataset; };
  const MutexLock lock(mutex_);
  std::erase_if(waiting_, [&](const auto& extent) { return is_its(*extent); });
  // A load that is storing its extent needs no answer of the GFS any more, so it will end.
  const auto may_be_left = [&](const Extent* extent) {
    return !is_its(*extent) || (!extent->is_storing && IsBlocked(*extent));
  };
  while (!std::ranges::all_of(loads_, may_be_left)) load_over_.Wait(mutex_);
  std::erase_if(loads_, [&](Extent* extent) {
    if (!is_its(*extent)) return false;
    // The thread that runs the load sees the flag before it publishes.
    extent->is_abandoned = true;
    return true;
  });
}

void EarlyExtents::Stop() {
  const MutexLock lock(mutex_);
  is_stopped_ = true;
  waiting_.clear();
}

}  // namespace forebay::stage
