// Run tries a saved catalog, then metadata, then a pass. All end in Adopt, which gives the extents
// their homes; a pass gives homes as it goes, too, because it stores what it reads. A pass scans
// the objects that this node reads for the job, and Collect asks other nodes for the parts of
// theirs (PartCollector). No thread waits there for another node. The order around a rebuild
// matters: the old data set is served until TakeOver.
#include "server/stage/cataloguing/cataloguer.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/io/aligned_buffer.h"
#include "server/io/log.h"
#include "server/stage/cataloguing/part_collector.h"
#include "server/stage/cataloguing/saved_catalog.h"
#include "server/stage/cataloguing/shared_stats.h"
#include "server/stage/extent_groups.h"
#include "server/stage/extent_source.h"
#include "server/stage/first_read_sharing.h"
#include "server/stage/packed/packed_extent.h"
#include "server/stage/packed/packed_form.h"
#include "server/stage/placement/copy_choice.h"

namespace forebay::stage {

using tier::ExtentKey;
using tier::ExtentRef;

namespace {

constexpr std::uint32_t kScanQueueDepth = 32;  // queue of a scan's writes

// Reading ahead takes at most half of the memory that staging works in, so that the image of an
// extent, and the chunks that it is copied from, fit beside it.
ScanPass::Options ReadAheadOf(const CataloguerOptions& options) {
  ScanPass::Options ahead = {.request_bytes = options.request_bytes,
                             .depth = options.scan_depth,
                             .gate = options.gate};
  if (options.working_bytes == 0) return ahead;
  constexpr std::uint64_t kPage = limits::kIoAlignmentBytes;
  const std::uint64_t quarter = std::max(kPage, options.working_bytes / 4 / kPage * kPage);
  ahead.request_bytes = std::min(ahead.request_bytes, quarter);
  const std::uint64_t requests = options.working_bytes / 2 / ahead.request_bytes;
  ahead.depth = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(requests, 1, options.scan_depth));
  return ahead;
}

// The checksum of the raw bytes of a copy. That of a compressed copy lies in its directory.
Result<std::uint64_t> RawChecksumOf(const PackedForm* form, const tier::ResidentExtent& found,
                                    io::IoQueue& queue) {
  if (form == nullptr) return found.sums().image;
  const std::uint64_t bytes = DirectoryBytes(form->ChunkCount(found.key.extent));
  if (found.tier == tier::TierKind::kRam) {
    FOREBAY_ASSIGN(const PackedDirectory directory,
                   PackedDirectory::OpenIn(*form, found.key, found.block.bytes()));
    return directory.raw_checksum();
  }
  // Whole pages, for a direct read. The file has them, because its image is padded to pages.
  if (found.image_bytes < bytes) return Error(ErrorCode::kDataLoss, "it is too short");
  FOREBAY_ASSIGN(io::AlignedBuffer pages, io::AlignedBuffer::Create(bytes));
  FOREBAY_TRY(io::ReadFully(queue, *found.segment->file, 0, pages.span()));
  FOREBAY_ASSIGN(const PackedDirectory directory,
                 PackedDirectory::Open(*form, found.key, found.image_bytes,
                                       std::as_const(pages).span().first(bytes)));
  return directory.raw_checksum();
}

std::vector<std::uint64_t> KeysOf(std::span<const plan::GroupShare> groups) {
  std::vector<std::uint64_t> keys;
  keys.reserve(groups.size());
  for (const plan::GroupShare& group : groups) keys.push_back(group.key);
  return keys;
}

}  // namespace

Result<bool> Cataloguer::Run(Dataset& dataset, bool rebuild, const Replacement& replaced,
                             const CatalogueWatch& watch, io::IoQueue& queue) {
  // An earlier call has scanned this node's objects.
  if (const std::shared_ptr<ObjectScans> scans = dataset.scans()) {
    return Collect(dataset, *scans, queue);
  }
  const catalog::DatasetSource& source = dataset.options().source;
  const bool replaces = replaced.dataset != nullptr;
  // A rebuild of a data set that is served touches nothing until TakeOver.
  if (!replaces) {
    if (rebuild) DropCopies(dataset);
    OpenFirstReads(dataset, rebuild);
  }
  if (!rebuild) {
    auto saved = LoadSavedCatalog(options_.catalog_path, source);
    if (saved.has_value()) {
      KeyedExtents extents = KeyExtents(dataset, *saved);
      const std::vector<bool> own = OwnExtents(**saved, extents);
      const Status unchanged = VerifyShare(
          dataset, **saved, own,
          [&](ExtentId extent, const catalog::ExtentInfo& info,
              std::span<const catalog::ObjectInfo> objects) {
            // Compressing needs the catalog.
            if (dataset.form() || parts_.tiers.Find(extents.keys[extent.value()])) return;
            watch.described(extent, info, objects);
          });
      watch.ended();
      if (!unchanged.has_value()) {
        // An object that cannot be looked at may be as it was: a rebuild is no remedy then.
        const bool has_changed = unchanged.error().code() == ErrorCode::kFailedPrecondition;
        return unchanged.error().WithContext(
            has_changed ? "the saved catalog does not match the objects on the GFS (remedy: "
                          "forebay stage --rebuild " + dataset.name() + ")"
                        : "comparing the saved catalog of " + Quoted(dataset.name()) +
                              " with the objects on the GFS");
      }
      log::Info("data set '{}': loaded its saved catalog", dataset.name());
      FOREBAY_TRY(Adopt(dataset, std::move(*saved), std::move(extents), queue));
      return true;
    }
    if (saved.error().code() != ErrorCode::kNotFound) {
      log::Warn("data set '{}': its saved catalog is not usable; cataloguing it again: {}",
                dataset.name(), saved.error().ToString());
    }
  }
  catalog::DatasetSource resolved = source;
  if (!resolved.format) {
    FOREBAY_ASSIGN(resolved.format, catalog::DetectFormat(dataset.root(), source));
  }
  if (!catalog::BuildsFromMetadata(*resolved.format)) {
    if (replaces) TakeOver(dataset, replaced);
    return Scan(dataset, resolved, rebuild, queue);
  }
  auto built = Build(dataset, resolved, rebuild,
                     [&](ExtentId extent, const catalog::ExtentInfo& info,
                         std::span<const catalog::ObjectInfo> objects) {
                       // During a rebuild the old data set is still served: its copies take the
                       // space, and may have the same keys.
                       if (!replaces) watch.described(extent, info, objects);
                     });
  watch.ended();
  FOREBAY_TRY(built);
  if (replaces) TakeOver(dataset, replaced);
  Save(dataset, **built);
  KeyedExtents extents = KeyExtents(dataset, *built);
  FOREBAY_TRY(Adopt(dataset, std::move(*built), std::move(extents), queue));
  return true;
}

// Builds the catalog from metadata. In a job of several nodes these share the calls for sizes and
// times of many small objects. A rebuild must see the objects as they are now, so it asks the GFS
// for all of them. So does whoever tries again after a failure: another node may still keep what it
// has found before the objects were mended.
Result<std::shared_ptr<const catalog::Catalog>> Cataloguer::Build(
    Dataset& dataset, const catalog::DatasetSource& source, bool rebuild,
    const catalog::RunSink& runs) {
  std::optional<SharedStats> shared;
  const bool may_share = !rebuild && !dataset.has_failed();
  if (may_share && parts_.nodes != nullptr && parts_.stat_peers != nullptr) {
    shared.emplace(dataset, *parts_.nodes, *parts_.stat_peers, parts_.local_stats,
                   options_.stat_batch_paths,
                   parts_.throttle != nullptr && parts_.throttle->IsCapped(Cap::kOpens));
  }
  auto built = catalog::BuildFromMetadata(parts_.backend, dataset.root(), source, nullptr, runs,
                                          {.directory = options_.catalog_path},
                                          shared ? &*shared : nullptr);
  // After a failure, files may change before somebody tries again. A rebuild is for files that have
  // changed.
  if (rebuild || !built.has_value()) parts_.local_stats.Forget(dataset);
  FOREBAY_TRY(built);
  // Those that were asked for by `shared` were counted by the nodes that have asked the GFS.
  dataset.CountGfs(0, 0, 0, (*built)->object_count() - (shared ? shared->paths_asked() : 0));
  return built;
}

// After Succeed nothing that was read before is published any more. After ReleaseAll no extent of
// the old data set gets a home; its copies are then evicted, and only then is the new data set
// served. In a job of one node, readers of the old data set continue while its objects are
// unchanged, so it is not marked as outdated here.
void Cataloguer::TakeOver(Dataset& dataset, const Replacement& replaced) {
  // Other nodes may have been rebuilt or not, so this node does not know which version of the bytes
  // they supply for the old data set, and has no first reads to compare them with.
  if (parts_.nodes != nullptr && !parts_.nodes->is_alone()) {
    replaced.dataset->version().MarkOutdated();
  }
  dataset.version().Succeed(replaced.dataset->version());
  dataset.version().SetRebuilds(replaced.dataset->rebuilds() + 1);
  EvictAll(parts_.placements.ReleaseAll(*replaced.dataset));
  DropCopies(dataset);
  // After the copies: if the daemon is killed in between, the next one compares those that are left
  // with the first reads of before.
  OpenFirstReads(dataset, /*forget=*/true);
  replaced.take_over();
}

// Evicts all extents, also of objects whose size and modification time are the same: the user asks
// for the objects as they are now, and their bytes may have changed.
void Cataloguer::DropCopies(const Dataset& dataset) {
  EvictAll(parts_.placements.ReleaseOthers(dataset.hash(), {}));
  // Extents without a home, and those that readers have fetched since an earlier rebuild failed.
  EvictAll(parts_.tiers.KeysOf(dataset.hash()));
}

// If the file cannot be used, reads are only compared with earlier reads of this daemon.
void Cataloguer::OpenFirstReads(Dataset& dataset, bool forget) {
  if (forget) RemoveSaved(dataset);
  if (parts_.catalogs == nullptr) {
    if (forget) dataset.first_reads().Forget();
    return;
  }
  const Status opened =
      dataset.first_reads().Open(parts_.backend, *parts_.catalogs,
                                 SavedCatalogName(dataset.options().source) + ".reads", forget);
  if (!opened.has_value()) {
    log::Warn("data set '{}': checksums of first reads cannot be saved in daemon.state_dir; the "
              "next daemon will not notice objects that changed: {}",
              dataset.name(), opened.error().ToString());
  }
}

// A rebuild removes what an earlier daemon has saved before it makes a catalog. If the daemon is
// killed meanwhile, or cannot save the new catalog, the next one would compare the old catalog with
// the objects, and may find their sizes and times as they were, although their bytes have changed.
void Cataloguer::RemoveSaved(const Dataset& dataset) {
  if (parts_.catalogs == nullptr) return;
  const Status removed = parts_.catalogs->Unlink(SavedCatalogName(dataset.options().source));
  if (!removed.has_value() && removed.error().code() != ErrorCode::kNotFound) {
    log::Warn("data set '{}': the catalog that an earlier daemon saved could not be removed: {}",
              dataset.name(), removed.error().ToString());
  }
}

void Cataloguer::Save(Dataset& dataset, const catalog::Catalog& catalog) {
  if (parts_.catalogs == nullptr) return;
  const std::string name = SavedCatalogName(dataset.options().source);
  const Status saved = catalog::SaveCatalog(catalog, parts_.backend, *parts_.catalogs, name);
  if (!saved.has_value()) {
    // The file may still be a catalog that could not be used, or that describes other objects.
    RemoveSaved(dataset);
    log::Warn("data set '{}': its catalog could not be saved in daemon.state_dir; the next "
              "daemon will catalogue it again: {}",
              dataset.name(), saved.error().ToString());
  }
}

// Chooses the form in which extents are stored, which is a part of their keys; finds their groups.
Cataloguer::KeyedExtents Cataloguer::KeyExtents(
    Dataset& dataset, const std::shared_ptr<const catalog::Catalog>& catalog) const {
  ChooseForm(dataset, catalog);
  KeyedExtents extents{.keys = tier::KeysOf(*catalog), .groups = {}};
  if (const std::shared_ptr<const PackedForm> form = dataset.form()) {
    for (ExtentKey& key : extents.keys) key = form->Key(key);
  }
  if (parts_.nodes != nullptr) {
    extents.groups = GroupShares(*catalog, dataset.options().group_bytes, *parts_.nodes);
  }
  return extents;
}

// By extent: whether this node reads it for the job, or has it on a tier, perhaps as a copy. What
// it has on a tier it serves without asking the owner. Objects that are scanned are few, and nodes
// without a saved catalog scan them as they are now, so each node has to look at all of them.
std::vector<bool> Cataloguer::OwnExtents(const catalog::Catalog& catalog,
                                         const KeyedExtents& extents) const {
  std::vector<bool> own(extents.keys.size(), true);
  if (!catalog::BuildsFromMetadata(catalog.format())) return own;
  for (std::uint32_t i = 0; i < extents.groups.size(); ++i) {
    own[i] = parts_.nodes->Reads(extents.groups[i]) || parts_.tiers.Find(extents.keys[i]);
  }
  return own;
}

// Takes over a complete catalog: finds extents that are on a tier already, and gives every extent
// its home.
Status Cataloguer::Adopt(Dataset& dataset, std::shared_ptr<const catalog::Catalog> catalog,
                         KeyedExtents extents, io::IoQueue& queue) {
  const std::shared_ptr<const PackedForm> form = dataset.form();
  const std::uint32_t count = catalog->extent_count();
  // No structured binding, because clang 14 cannot capture one in a lambda.
  const auto& keys = extents.keys;
  const auto& groups = extents.groups;
  std::vector<std::uint64_t> planned(count);
  std::vector<plan::HomeTier> homes(count);
  std::vector<bool> resident(count, false);
  std::vector<bool> remote(count, false);
  // First, because the space of extents of changed objects is needed for the new ones.
  EvictAll(parts_.placements.ReleaseOthers(dataset.hash(), keys));
  FOREBAY_TRY(GiveFirstReads(dataset, *catalog, keys, groups, queue));
  MakeRoom(dataset, [&] { return MissingBytes(*catalog, keys, groups); });
  for (std::uint32_t i = 0; i < count; ++i) {
    const ExtentId extent(i);
    planned[i] = form ? form->ImageBytesMax(extent) : catalog->extent(extent).bytes;
    std::optional<tier::TierKind> tier;
    ExtentRef found = parts_.tiers.Find(keys[i]);
    // In a job of several nodes, GiveFirstReads has compared the copies.
    if (found && dataset.sharing() == nullptr &&
        !IsFirstRead(dataset, tier::KeyOf(*catalog, extent), *found, queue)) {
      found = nullptr;
    }
    if (found) {
      tier = found->tier;
      planned[i] = found->image_bytes;
      dataset.CountStaged(extent, catalog->extent(extent).bytes);
      dataset.CountStored(extent, found->image_bytes);
    }
    // An extent that another node reads gets no home here, unless an earlier daemon of this node
    // has left it on a tier. Then it is a copy.
    remote[i] = parts_.nodes != nullptr && !parts_.nodes->Reads(groups[i]);
    if (remote[i] && !tier) {
      homes[i] = plan::HomeTier::kNone;
      continue;
    }
    const PlacementTable::Reservation home = parts_.placements.Reserve(
        keys[i], tier, planned[i],
        form ? form->PieceCount(extent) : catalog->PieceCount(extent));
    homes[i] = home.home;
    planned[i] = home.bytes;
    resident[i] = tier && IsAtHome(*tier, homes[i]);
    if (resident[i] && homes[i] != plan::HomeTier::kNone) {
      parts_.tiers.MakeAtHome(keys[i], *tier);
    }
  }
  // Everything that readers use must be set before SetCatalog, which lets them in.
  if (std::ranges::count(remote, true) > 0) {
    PlaceCopies(dataset, keys, remote, planned, homes, *catalog);
    dataset.SetRemote(std::move(remote));
  }
  if (form) dataset.SetPlannedBytes(std::move(planned));
  parts_.placements.EndCataloguing(dataset.hash());
  dataset.SetCatalog(std::move(catalog), std::move(extents.keys), resident, std::move(homes),
                     KeysOf(groups));
  return {};
}

// Reserves space for copies of remote extents, now that all extents of this node have their homes.
void Cataloguer::PlaceCopies(const Dataset& dataset, std::span<const ExtentKey> keys,
                             const std::vector<bool>& remote,
                             std::span<const std::uint64_t> planned,
                             std::span<plan::HomeTier> homes, const catalog::Catalog& catalog) {
  const std::uint64_t budget_bytes = dataset.options().copy_bytes;
  if (budget_bytes == 0) return;
  const auto has_home = [&](std::uint32_t extent) {
    return homes[extent] != plan::HomeTier::kNone;
  };
  std::uint64_t copied_bytes = 0;  // an earlier daemon has left these
  for (std::uint32_t i = 0; i < remote.size(); ++i) {
    if (remote[i] && has_home(i)) copied_bytes += catalog.extent(ExtentId(i)).bytes;
  }
  const std::shared_ptr<const PackedForm> form = dataset.form();
  for (const ExtentId extent : CopyOrder(remote, parts_.nodes->self_identity())) {
    const std::uint32_t i = extent.value();
    if (has_home(i)) continue;
    copied_bytes += catalog.extent(extent).bytes;
    if (copied_bytes > budget_bytes) return;
    homes[i] = parts_.placements
                   .Reserve(keys[i], std::nullopt, planned[i],
                            form ? form->PieceCount(extent) : catalog.PieceCount(extent),
                            PlacementTable::Share::kOfOthers)
                   .home;
    if (!has_home(i)) return;  // the tiers are full
  }
}

// Compares a copy that an earlier daemon left with the first read of the extent `raw`. Evicts a
// copy that differs.
bool Cataloguer::IsFirstRead(Dataset& dataset, const ExtentKey& raw,
                             const tier::ResidentExtent& found, io::IoQueue& queue) {
  const auto raw_checksum = RawChecksumOf(dataset.form().get(), found, queue);
  // A copy whose directory cannot be read stays: its reader will find that, as for any damage.
  return !raw_checksum.has_value() || CompareCopy(dataset, raw, found.key, *raw_checksum);
}

// If no first read of the extent `raw` is known, the copy at `key` becomes the first read. False:
// it differs, and was evicted.
bool Cataloguer::CompareCopy(Dataset& dataset, const ExtentKey& raw, const ExtentKey& key,
                             std::uint64_t raw_checksum) {
  const FirstReads::Outcome outcome = dataset.first_reads().Compare(raw, raw_checksum);
  if (outcome != FirstReads::Outcome::kChanged) return true;
  log::Warn("data set '{}': the copy of extent {} on a tier does not match its first read; it "
            "is dropped and read from the GFS again", dataset.name(), raw.extent.value());
  parts_.tiers.Evict(key, std::nullopt);
  return false;
}

// Copies that an earlier daemon of this node has left are served without a read from the GFS. So
// their checksums are given to other nodes now, before there is a catalog to serve from: to the
// substitutes of this node or, where another node reads the extent, to that one. A copy of which
// such a node knows another first read is evicted.
Status Cataloguer::GiveFirstReads(Dataset& dataset, const catalog::Catalog& catalog,
                                  std::span<const ExtentKey> keys,
                                  std::span<const plan::GroupShare> groups,
                                  io::IoQueue& queue) {
  FirstReadSharing* const sharing = dataset.sharing();
  if (sharing == nullptr) return {};
  std::vector<SharedRead> reads;
  std::vector<ExtentKey> copies;  // of these reads
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const ExtentRef found = parts_.tiers.Find(keys[i]);
    if (!found) continue;
    const ExtentKey raw = tier::KeyOf(catalog, ExtentId(i));
    if (!IsFirstRead(dataset, raw, *found, queue)) continue;
    // Known by now, unless the directory of a compressed copy could not be read.
    const std::optional<std::uint64_t> checksum = dataset.first_reads().Find(raw);
    if (checksum) {
      reads.push_back({.group_key = groups[i].key,
                       .read = {.key = raw, .checksum = *checksum},
                       .is_of_other = !parts_.nodes->Reads(groups[i])});
      copies.push_back(keys[i]);
    }
  }
  FOREBAY_ASSIGN(const std::vector<Contradiction> contradictions, sharing->Give(dataset, reads));
  for (const Contradiction& contradiction : contradictions) {
    const ExtentKey& copy = copies[contradiction.read];
    log::Warn("data set '{}': the copy of extent {} on a tier of node {} does not match the first "
              "read that node {} knows; it is dropped and read from the GFS again",
              dataset.name(), copy.extent.value(), sharing->self().value(),
              contradiction.node.value());
    parts_.tiers.Evict(copy, std::nullopt);
  }
  return {};
}

// Decides how extents are stored on the tiers. Extents that an earlier daemon compressed in the
// same way are found by their keys.
void Cataloguer::ChooseForm(Dataset& dataset,
                            const std::shared_ptr<const catalog::Catalog>& catalog) {
  const Compression wanted = dataset.options().compression;
  if (wanted == Compression::kOff) return;
  auto form = PackedForm::Create(catalog, wanted);
  if (form.has_value()) return dataset.SetForm(std::move(*form), "");
  log::Warn("data set '{}' is not compressed at staging: {}", dataset.name(),
            form.error().message());
  dataset.SetForm(nullptr, form.error().message());
}

Result<bool> Cataloguer::Scan(Dataset& dataset, const catalog::DatasetSource& source, bool rebuild,
                              io::IoQueue& queue) {
  FOREBAY_ASSIGN(catalog::ScanPlan plan,
                 catalog::PlanScan(dataset.root(), source, {.directory = options_.catalog_path}));
  dataset.CountGfs(0, 0, 0, plan.objects.size());
  std::vector<plan::GroupShare> groups;
  if (parts_.nodes != nullptr) {
    std::vector<std::uint64_t> bytes;
    for (const catalog::PlannedObject& object : plan.objects) bytes.push_back(object.bytes);
    groups = ScanGroupShares(dataset.hash(), bytes, *parts_.nodes);
  }
  const auto scans = std::make_shared<ObjectScans>(std::move(plan), KeysOf(groups));
  std::vector<ObjectId> own;
  for (std::uint32_t i = 0; i < scans->plan().objects.size(); ++i) {
    // Other nodes may have scanned the objects before the bytes changed for which the user asks for
    // a rebuild, so this node then scans all of them.
    const bool is_own = rebuild || parts_.nodes == nullptr || parts_.nodes->Reads(groups[i]);
    if (is_own) own.push_back(ObjectId(i));
  }
  MakeRoom(dataset, [&] {
    std::uint64_t bytes = 0;
    for (const ObjectId object : own) bytes += scans->plan().objects[object.value()].bytes;
    return bytes;
  });
  // From now on other nodes can ask for what this one has found.
  dataset.SetScans(scans);
  // The nodes that have scanned these objects so far supply their extents as well.
  const bool has_joined =
      parts_.nodes != nullptr && parts_.nodes->YieldsFor(plan::YieldReason::kArrives);
  if (has_joined && !rebuild) {
    PartCollector collector(*parts_.nodes, *parts_.peers, parts_.clock);
    FOREBAY_ASSIGN(own, collector.AskBehind(dataset, *scans, own));
  }
  FOREBAY_TRY(ScanObjects(dataset, *scans, own, rebuild, queue));
  return Collect(dataset, *scans, queue);
}

// Reads objects from the GFS, stages their extents, and keeps their parts of the catalog. Repeats
// the scan of an object that was given wrong bytes.
Status Cataloguer::ScanObjects(Dataset& dataset, ObjectScans& scans,
                               std::span<const ObjectId> objects, bool rebuild,
                               io::IoQueue& queue) {
  // The pass keeps reads in flight while it stores an extent, and storing needs an idle queue.
  FOREBAY_ASSIGN(const auto ssd_queue, parts_.backend.CreateQueue({.depth = kScanQueueDepth}));
  const ScanPass::Hooks hooks = ScanHooks(dataset, scans, rebuild, *ssd_queue);
  ScanPass::Options options = ReadAheadOf(options_);
  for (int scans_of_first = 1;; ++scans_of_first) {
    ScanPass scan(dataset, scans.plan(), objects, queue, *ssd_queue, options, hooks);
    const Status status = scan.Run();
    if (!scan.has_misread()) return status;
    // The objects before the one that was misread are done.
    if (scan.scanned() > 0) scans_of_first = 1;
    objects = objects.subspan(scan.scanned());
    if (scans_of_first >= limits::kObjectScansMax) return status;
    log::Warn("data set '{}': object '{}' is scanned again, past the caches of this node, because "
              "the scan was given wrong bytes", dataset.name(),
              scans.plan().objects[objects.front().value()].path);
    options.past_caches = true;
  }
}

// Returns what a pass over objects does with the extents and parts that it finds.
ScanPass::Hooks Cataloguer::ScanHooks(Dataset& dataset, ObjectScans& scans, bool rebuild,
                                      io::IoQueue& ssd_queue) {
  return {
      .cut =
          [this, &dataset, rebuild](const ExtentKey& key) {
            const ExtentRef found = rebuild ? nullptr : parts_.tiers.Find(key);
            if (found) CompareCopy(dataset, key, key, found->sums().image);
          },
      .publish = [this, &dataset, &ssd_queue](VerifiedExtent extent) -> Status {
        // A reader of the data set before a rebuild may have brought the old bytes to a tier.
        const ExtentRef found = parts_.tiers.Find(extent.key);
        if (found && found->sums().image != extent.checksums.image) {
          parts_.tiers.Evict(extent.key, std::nullopt);
        }
        FOREBAY_TRY(
            parts_.loader.StoreExtent(dataset, std::move(extent), std::nullopt, ssd_queue));
        return {};
      },
      .allocate =
          [this, &ssd_queue](std::uint64_t bytes) {
            return parts_.tiers.Allocate({.bytes = bytes}, ssd_queue);
          },
      .scanned =
          [&scans](ObjectId object, const catalog::CatalogPart& part) {
            scans.scanned_here()[object.value()] = true;
            return scans.Add(object, part);
          },
      .refused = [&scans](ObjectId object, const Error& error) { scans.Refuse(object, error); }};
}

// Asks other nodes for the parts that are missing. When none is, makes the catalog.
Result<bool> Cataloguer::Collect(Dataset& dataset, ObjectScans& scans, io::IoQueue& queue) {
  if (parts_.nodes != nullptr) {
    PartCollector collector(*parts_.nodes, *parts_.peers, parts_.clock);
    FOREBAY_TRY(collector.AskOnce(dataset, scans, [&](ObjectId object) {
      return ScanObjects(dataset, scans, {&object, 1}, /*rebuild=*/false, queue);
    }));
  }
  if (!scans.Missing().empty()) return false;
  FOREBAY_ASSIGN(std::shared_ptr<const catalog::Catalog> catalog, scans.Write());
  Save(dataset, *catalog);
  // Extents that this node has staged and a tier has evicted since count as staged once, too.
  for (std::uint32_t i = 0; i < catalog->extent_count(); ++i) {
    const catalog::ExtentInfo info = catalog->extent(ExtentId(i));
    if (scans.scanned_here()[info.first_object.value()]) {
      dataset.CountStaged(ExtentId(i), info.bytes);
    }
  }
  KeyedExtents extents = KeyExtents(dataset, catalog);
  FOREBAY_TRY(Adopt(dataset, std::move(catalog), std::move(extents), queue));
  return true;
}

// The bytes of this node's extents that are on no tier.
std::uint64_t Cataloguer::MissingBytes(const catalog::Catalog& catalog,
                                       std::span<const ExtentKey> keys,
                                       std::span<const plan::GroupShare> groups) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const bool is_remote = parts_.nodes != nullptr && !parts_.nodes->Reads(groups[i]);
    if (!is_remote && !parts_.tiers.Find(keys[i])) bytes += catalog.extent(ExtentId(i)).bytes;
  }
  return bytes;
}

void Cataloguer::MakeRoom(const Dataset& dataset,
                          const std::function<std::uint64_t()>& needed_bytes) {
  // Without a list, nothing is known of what is foreign. The sum is only made where it matters,
  // because it looks at every extent.
  const std::vector<std::uint64_t>& known = options_.datasets;
  if (known.empty() || !parts_.placements.HasForeign(known)) return;
  const std::vector<ExtentKey> left = parts_.placements.ReleaseForeign(known, needed_bytes());
  if (left.empty()) return;
  log::Info("data set '{}' needs space: {} extents of data sets that are not configured any more "
            "are removed from tier.ssd.directory", dataset.name(), left.size());
  EvictAll(left);
}

void Cataloguer::EvictAll(std::span<const ExtentKey> keys) {
  for (const ExtentKey& key : keys) parts_.tiers.Evict(key, std::nullopt);
}

// Without a catalog nobody reads these extents, so their RAM is free for others.
void Cataloguer::Abandon(const Dataset& dataset) {
  for (const ExtentKey& key : parts_.placements.AbandonCataloguing(dataset.hash())) {
    parts_.tiers.Evict(key, tier::TierKind::kRam);
  }
}

}  // namespace forebay::stage
