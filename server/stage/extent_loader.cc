// The two steps from the GFS to a tier. ReadExtent enforces promise P1 at its source: bytes that
// differ from the first read never go further. StoreExtent tries the home tier first and RAM last,
// so that an extent that was read is not lost because a tier refuses it.
#include "server/stage/extent_loader.h"

#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/io/log.h"
#include "server/stage/first_read_sharing.h"
#include "server/stage/packed/packed_form.h"

namespace forebay::stage {
namespace {

// Compares a read with the first read that this node knows, or that the substitutes of the extent
// know, and makes it the first read of all of them if there is none. kDataLoss: it differs; the
// text says who knows another one, and is empty if that is this node.
Status AgreeOnFirstRead(Dataset& dataset, const ExtentToRead& extent,
                        std::uint64_t image_checksum) {
  FirstReads& reads = dataset.first_reads();
  FirstReadSharing* const sharing = dataset.sharing();
  // What differs from this node's own first read is not given to others. A replaced data set
  // describes the objects as they were, and other nodes know them as they are now.
  const bool is_shared = sharing != nullptr && extent.group_key && !dataset.is_replaced() &&
                         !reads.Differs(extent.key, image_checksum);
  if (is_shared) {
    const SharedRead read{.group_key = *extent.group_key,
                          .read = {.key = extent.key, .checksum = image_checksum}};
    FOREBAY_ASSIGN(const std::vector<Contradiction> contradictions,
                   sharing->Give(dataset, {&read, 1}));
    if (!contradictions.empty()) {
      // Not recorded here either, so that a second read can still be the right one.
      reads.CountMismatch();
      return Error(ErrorCode::kDataLoss,
                   fmt::format("node {} has another checksum of the first read of data set '{}' "
                               "than node {} has read now",
                               contradictions.front().node.value(), dataset.name(),
                               sharing->self().value()));
    }
  }
  if (reads.Compare(extent.key, image_checksum) != FirstReads::Outcome::kChanged) return {};
  return Error(ErrorCode::kDataLoss,
               reads.IsOfOther(extent.key) ? "another node of the job has read it first" : "");
}

}  // namespace

Result<tier::ExtentChecksums> ReadExtent(Dataset& dataset, const ExtentToRead& extent,
                                         std::span<std::byte> image, const ReadImageBytes& read) {
  const std::uint32_t number = extent.key.extent.value();
  const std::uint32_t successors = dataset.version().successors();  // before the bytes are read
  std::string who_knows;
  // The second round bypasses the node's caches: a stale page of a GFS client looks like a change.
  for (const bool past_caches : {false, true}) {
    // Reads into the same memory in both rounds; wrong bytes are overwritten.
    FOREBAY_TRY(read(image, past_caches));
    tier::ExtentChecksums checksums = tier::ComputeChecksums(extent.key, image, extent.pieces);
    const Status agreed = AgreeOnFirstRead(dataset, extent, checksums.image);
    if (agreed.has_value()) {
      // Data sets that were rebuilt share keys with their predecessors, which have to agree, too.
      FOREBAY_TRY(dataset.version().ShareRead(extent.key, checksums.image, successors));
      return checksums;
    }
    if (agreed.error().code() != ErrorCode::kDataLoss) return agreed.error();
    who_knows = agreed.error().message();
    if (!who_knows.empty()) who_knows = fmt::format(" ({})", who_knows);
    log::Warn("data set '{}': extent {} ({}) does not match its first read{}; {}", dataset.name(),
              number, extent.objects, who_knows,
              past_caches ? "the extent is refused"
                          : "it is read again past the caches of this node");
  }
  return Error(ErrorCode::kDataLoss,
               fmt::format("{}, extent {}: changed since first read, although size and "
                           "modification time are the same{}; restore the objects, or accept the "
                           "new bytes with 'forebay stage --rebuild'{}",
                           extent.objects, number, who_knows,
                           who_knows.empty() ? "" : " on every node of the job"));
}

std::string NameObjects(std::span<const catalog::ObjectInfo> objects) {
  if (objects.empty()) return "no object";
  // Extents of many small files are named by the first and the last one.
  if (objects.size() == 1) return fmt::format("object '{}'", objects.front().path);
  return fmt::format("objects '{}' to '{}'", objects.front().path, objects.back().path);
}

std::string NameObjects(const catalog::Catalog& catalog, ExtentId extent) {
  const catalog::ExtentInfo info = catalog.extent(extent);
  std::vector<catalog::ObjectInfo> ends = {catalog.object(info.first_object)};
  if (info.object_count > 1) {
    ends.push_back(catalog.object(ObjectId(info.first_object.value() + info.object_count - 1)));
  }
  return NameObjects(ends);
}

Result<bool> ExtentLoader::StoreExtent(Dataset& dataset, VerifiedExtent extent,
                                       std::optional<plan::HomeTier> destination,
                                       io::IoQueue& queue) {
  // Used only for a data set with a catalog, or one that is not scanned.
  const ExtentId number = extent.extent.value_or(ExtentId(0));
  const bool is_scanned = !extent.extent.has_value();
  const std::shared_ptr<const PackedForm> form = dataset.form();
  const bool is_packed = form && extent.is_packed;
  const std::uint64_t raw_bytes =
      is_packed ? form->catalog().extent(number).bytes : extent.image.bytes().size();
  const std::uint64_t raw_checksum = extent.checksums.image;
  tier::ExtentKey key = extent.key;
  ExtentImage image{.block = std::move(extent.image), .checksums = std::move(extent.checksums)};
  // The stored image has a key of its own, so that raw and packed copies are never confused.
  if (form) key = form->Key(extent.key);
  // Frees the raw image before it allocates the packed one, so both need not fit at once.
  if (form && !is_packed) {
    FOREBAY_ASSIGN(image, packer_.Make(*form, key, std::move(image.block), raw_checksum, queue));
  }
  const std::uint64_t image_bytes = image.block.bytes().size();
  bool has_placed_others = false;
  plan::HomeTier home = plan::HomeTier::kNone;
  // Without a catalog (a scan, an early extent) the reservation is kept by key, not by the Dataset.
  if (destination) {
    home = *destination;
  } else if (dataset.catalog() != nullptr) {
    // The real size is known only now; what the plan reserved in excess goes to other extents.
    const PlacementTable::Placement placed = placements_.Place(dataset, number, image_bytes);
    home = placed.home;
    has_placed_others = placed.has_placed_others;
  } else {
    const tier::ExtentRef found = tiers_.Find(key);
    home = placements_
               .Reserve(key, found ? std::optional(found->tier) : std::nullopt, image_bytes,
                       image.checksums.pieces.size())
               .home;
  }
  // A rebuild evicts the data set's extents. From here on either it waits for this one first, or
  // this one is not published, because it was read before the rebuild.
  const DatasetVersion::Publishing publishing(dataset.version(), extent.successors);
  if (!publishing.may_publish()) return dataset.Outdated();
  // With `persist`, an extent at home in RAM is written to SSD too, but evicts nothing there.
  const bool is_for_ssd = home == plan::HomeTier::kSsd;
  const bool is_on_ssd = (is_for_ssd || dataset.options().persist) &&
                         tiers_.StoreOnSsd(dataset, key, image, is_for_ssd, queue);
  if (is_for_ssd && !is_on_ssd) {
    // The SSD has refused the extent. It gets a home in RAM if there is space, or none.
    home = dataset.catalog() != nullptr ? placements_.MoveOffSsd(dataset, number, image_bytes)
                                        : placements_.MoveOffSsd(key);
  }
  if (!is_for_ssd || !is_on_ssd) {
    // A guest has no space of its own in RAM, and is evicted before all others.
    const bool is_guest = destination ? dataset.IsGuestInRam(number) : home != plan::HomeTier::kRam;
    FOREBAY_TRY(tiers_.StoreInRam(key, std::move(image), is_guest));
  }
  if (dataset.is_replaced()) {
    // The data set that replaced this one may have read the extent after ReadExtent compared the
    // bytes. They are compared again, now that they are published.
    const Status shared = dataset.version().ShareRead(extent.key, raw_checksum, extent.successors);
    if (!shared.has_value()) {
      tiers_.Evict(key, std::nullopt);
      return shared.error();
    }
  }
  if (is_scanned) {
    dataset.CountScanned(raw_bytes);
  } else {
    dataset.CountStaged(number, raw_bytes);
    dataset.CountStored(number, image_bytes);
  }
  return has_placed_others;
}

}  // namespace forebay::stage
