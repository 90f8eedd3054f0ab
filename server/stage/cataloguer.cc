#include "server/stage/cataloguer.h"

#include <cstddef>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "server/stage/saved_catalog.h"
#include "server/stage/tar_scan.h"

namespace forebay::stage {

using tier::ArenaBlock;
using tier::ExtentChecksums;
using tier::ExtentKey;
using tier::ExtentRef;

namespace {

constexpr std::uint32_t kQueueDepth = 32;  // of a scan's writes

// Readers hold on to the first catalog of a data set, so another one cannot take its place.
Status CheckSameCatalog(const Dataset& dataset, const catalog::Catalog& catalog) {
  const std::shared_ptr<const catalog::Catalog> before = dataset.catalog();
  if (!before || before->fingerprint() == catalog.fingerprint()) return {};
  return Error(ErrorCode::kFailedPrecondition,
               "the objects of '" + dataset.name() +
                   "' changed while this daemon runs, and readers hold the old ones' catalog; "
                   "restart it to serve the new ones");
}

}  // namespace

Status Cataloguer::Run(Dataset& dataset, bool rebuild, const CatalogueWatch& watch,
                       io::IoQueue& queue) {
  const catalog::DatasetSource& source = dataset.options().source;
  OpenFirstReads(dataset, rebuild);
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
        if (is_first) watch.described(extent, info, objects);
      },
      {.directory = options_.catalog_path});
  watch.ended();
  FOREBAY_TRY(built);
  dataset.CountGfs(0, 0, 0, (*built)->object_count());
  Save(dataset, **built);
  return Adopt(dataset, std::move(*built), queue);
}

// Without the file, extents are compared within this daemon's life alone.
void Cataloguer::OpenFirstReads(Dataset& dataset, bool forget) {
  if (parts_.catalogs == nullptr) {
    if (forget) dataset.first_reads().Forget();
    return;
  }
  const Status opened =
      dataset.first_reads().Open(parts_.backend, *parts_.catalogs,
                                 SavedCatalogName(dataset.options().source) + ".reads", forget);
  if (!opened.has_value()) {
    spdlog::warn("data set '{}': checksums of first reads are not saved: {}", dataset.name(),
                 opened.error().ToString());
  }
}

void Cataloguer::Save(Dataset& dataset, const catalog::Catalog& catalog) {
  if (parts_.catalogs == nullptr) return;
  const Status saved =
      catalog::SaveCatalog(catalog, parts_.backend, *parts_.catalogs,
                           SavedCatalogName(dataset.options().source));
  if (!saved.has_value()) {
    spdlog::warn("data set '{}': its catalog could not be saved: {}", dataset.name(),
                 saved.error().ToString());
  }
}

// Takes over a complete catalog: what lies on SSD already is found, the rest gets its home.
Status Cataloguer::Adopt(Dataset& dataset, std::shared_ptr<const catalog::Catalog> catalog,
                     io::IoQueue& queue) {
  FOREBAY_TRY(CheckSameCatalog(dataset, *catalog));
  // Staged again after a failure: every extent has its home, and its room was taken then.
  const bool has_homes = dataset.catalog() != nullptr;
  if (!has_homes) parts_.chooser.Choose(dataset, catalog, queue);
  const std::shared_ptr<const PackedForm> form = dataset.form();
  const std::uint32_t count = catalog->extent_count();
  std::vector<FoundExtent> found(count);
  std::vector<ExtentKey> keys(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const ExtentKey raw = tier::KeyOf(*catalog, ExtentId(i));
    keys[i] = form ? form->Key(raw) : raw;
    const ExtentRef ref = parts_.tiers.Find(keys[i]);
    if (!ref) continue;
    found[i] = {.image_bytes = ref->image_bytes, .tier = ref->tier};
    // What an earlier daemon read is the first read, where its file did not say so.
    if (!form) (void)dataset.first_reads().Compare(raw, ref->sums().image);
    dataset.CountStaged(ExtentId(i), catalog->extent(ExtentId(i)).bytes);
    dataset.CountStored(ExtentId(i), ref->image_bytes);
  }
  std::vector<std::uint64_t> planned = PlanImageBytes(*catalog, form.get(), found);
  std::vector<plan::Home> homes(count);
  std::vector<bool> resident(count, false);
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool is_here = found[i].image_bytes > 0;
    const auto tier = is_here ? std::optional(found[i].tier) : std::nullopt;
    homes[i] = has_homes ? dataset.home(ExtentId(i))
                         : parts_.housing.HomeOf(keys[i], tier, planned[i]);
    // An extent on SSD whose home is RAM is still to be brought up, from SSD.
    resident[i] = is_here && (tier == tier::TierKind::kRam || homes[i] != plan::Home::kRam);
  }
  if (!has_homes && form) dataset.SetPlannedBytes(std::move(planned));
  EndCataloguing(dataset, keys);
  dataset.SetCatalog(std::move(catalog), resident, std::move(homes));
  return {};
}

Status Cataloguer::Scan(Dataset& dataset, io::IoQueue& queue) {
  // A data set that was served before has its homes, as far as its objects are the same.
  const std::shared_ptr<const catalog::Catalog> before = dataset.catalog();
  const auto is_known = [&](const ExtentKey& key) {
    return before && key.extent.value() < before->extent_count() &&
           dataset.key(key.extent) == key;
  };
  // The pass keeps reads in flight while it stores an extent, and storing needs an idle queue.
  FOREBAY_ASSIGN(const auto ssd_queue, parts_.backend.CreateQueue({.depth = kQueueDepth}));
  TarScan scan(
      dataset, queue, *ssd_queue,
      {.request_bytes = options_.request_bytes,
       .depth = options_.scan_depth,
       .scratch_path = options_.catalog_path},
      [&](const ExtentKey& key, ArenaBlock block, ExtentChecksums checksums) -> Status {
        // Found: an earlier daemon, or an earlier pass that failed, stored the same bytes.
        const ExtentRef found = parts_.tiers.Find(key);
        const std::uint64_t bytes = block.bytes().size();
        const plan::Home home =
            is_known(key)
                ? dataset.home(key.extent)
                : parts_.housing.HomeOf(key, found ? std::optional(found->tier) : std::nullopt,
                                        bytes);
        if (!found || (found->tier != tier::TierKind::kRam && home == plan::Home::kRam)) {
          FOREBAY_TRY(parts_.tiers.Publish(
              dataset, key, home,
              {.block = std::move(block), .checksums = std::move(checksums)}, *ssd_queue));
        }
        dataset.CountStaged(key.extent, bytes);
        return {};
      },
      [&](std::uint64_t bytes) { return parts_.tiers.Allocate(bytes, kNotAskedFor); });
  FOREBAY_ASSIGN(auto catalog, scan.Run());
  Save(dataset, *catalog);  // also where this daemon cannot serve it: the next one can
  FOREBAY_TRY(CheckSameCatalog(dataset, *catalog));
  parts_.chooser.Choose(dataset, catalog, queue);  // says why these stay as they are
  const std::uint32_t count = catalog->extent_count();
  std::vector<bool> resident(count, false);
  std::vector<plan::Home> homes(count, plan::Home::kTransient);
  std::vector<ExtentKey> keys(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    keys[i] = tier::KeyOf(*catalog, ExtentId(i));
    const ExtentRef found = parts_.tiers.Find(keys[i]);
    resident[i] = found != nullptr;
    if (found) {
      homes[i] = found->tier == tier::TierKind::kRam ? plan::Home::kRam : plan::Home::kSsd;
    }
  }
  EndCataloguing(dataset, keys);
  dataset.SetCatalog(std::move(catalog), resident, std::move(homes));
  return {};
}

// What was staged on the way, and is no part of the catalog, is of objects that have changed since.
void Cataloguer::EndCataloguing(const Dataset& dataset, std::span<const ExtentKey> keys) {
  const std::unordered_set<ExtentKey, tier::ExtentKeyHash> known(keys.begin(), keys.end());
  const std::vector<ExtentKey> others = parts_.housing.EndCataloguing(
      dataset.hash(), [&known](const ExtentKey& key) { return known.contains(key); });
  for (const ExtentKey& key : others) parts_.tiers.Evict(key, std::nullopt);
}

// Readers will not come for it: what lies in RAM is room for others until the next pass.
void Cataloguer::Abandon(const Dataset& dataset) {
  for (const ExtentKey& key : parts_.housing.AbandonCataloguing(dataset.hash())) {
    parts_.tiers.Evict(key, tier::TierKind::kRam);
  }
}

}  // namespace forebay::stage
