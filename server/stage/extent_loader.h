// ExtentLoader: brings an extent from the GFS to a tier, in two steps that can be used alone:
// ReadExtent (GFS -> verified bytes) and StoreExtent (verified bytes -> tier). Background staging,
// demands of readers, early extents and the pass over the bytes of a data set all use it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/io/io_backend.h"
#include "server/plan/placement.h"
#include "server/stage/dataset.h"
#include "server/stage/packed/extent_packer.h"
#include "server/stage/placement/placement_table.h"
#include "server/stage/placement/staging_tiers.h"
#include "server/tier/extent_key.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::stage {

// An extent as it is to be read from the GFS.
struct ExtentToRead {
  tier::ExtentKey key;                     // of the raw extent
  std::span<const catalog::Range> pieces;  // pieces to take checksums of; may be empty
  std::string objects;                     // for messages: "object 'a'" or "objects 'a' to 'c'"
  // Of the extent's group (extent_groups.h): in a job of several nodes the substitutes of the group
  // get the checksum. Unset: every node reads the extent itself.
  std::optional<std::uint64_t> group_key = std::nullopt;
};

// Fills `image` with the extent's bytes; with `past_caches`, bypasses the caches of this node.
using ReadImageBytes = std::function<Status(std::span<std::byte> image, bool past_caches)>;

// Reads an extent into `image` and compares it with the extent's first read, also with that which
// its substitutes know (FirstReadSharing). After a mismatch it is read once more, past the caches
// of this node; a second mismatch is kDataLoss, which names objects and extent. `read` itself
// repeats transient failures of the GFS, and counts bytes. Returns the checksums of the image and
// of `extent.pieces`. kFailedPrecondition: a rebuild has replaced the data set meanwhile; it may be
// read again, unless it is outdated.
Result<tier::ExtentChecksums> ReadExtent(Dataset& dataset, const ExtentToRead& extent,
                                         std::span<std::byte> image, const ReadImageBytes& read);

// "object 'a'" or "objects 'a' to 'c'", for ExtentToRead.
std::string NameObjects(std::span<const catalog::ObjectInfo> objects);
std::string NameObjects(const catalog::Catalog& catalog, ExtentId extent);

// The result of ReadExtent or VerifySupplied, in memory of the RAM tier.
struct VerifiedExtent {
  tier::ExtentKey key;  // of the raw extent
  std::optional<ExtentId> extent;  // unset during a scan, which does not know its number yet
  tier::ArenaBlock image;
  tier::ExtentChecksums checksums;
  bool is_packed = false;  // another node has compressed it already (SuppliedExtent)
  std::uint32_t successors = 0;  // DatasetVersion::successors() before it was read
};

// Thread-safe.
class ExtentLoader {
 public:
  // Borrowed; both outlive the loader.
  ExtentLoader(StagingTiers& tiers, PlacementTable& placements)
      : tiers_(tiers), placements_(placements), packer_(tiers) {}

  // From now on no call waits for a turn to compress. Call after the tiers have been stopped.
  void Stop() { packer_.Stop(); }

  // Compresses the extent if its data set has a packed form and it is raw, finds its home,
  // publishes it there and counts it. An SSD that refuses it is no error: the extent goes to RAM,
  // with or without a home there. `destination`: publish it there, whatever its home is. Returns
  // true if the extent is smaller than planned and other extents got a home because of that.
  // kFailedPrecondition: a rebuild has replaced the data set since the extent was read.
  Result<bool> StoreExtent(Dataset& dataset, VerifiedExtent extent,
                           std::optional<plan::HomeTier> destination, io::IoQueue& queue);

 private:
  StagingTiers& tiers_;
  PlacementTable& placements_;
  ExtentPacker packer_;
};

}  // namespace forebay::stage
