// ExtentLoader: the one way of an extent from the GFS to a tier, in two halves that can be used
// alone: ReadExtent (GFS -> verified bytes) and StoreExtent (verified bytes -> tier). Background
// staging, demands of readers, early runs and the pass over tar shards all go this way.
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
#include "server/stage/extent_packer.h"
#include "server/stage/housing.h"
#include "server/stage/staging_tiers.h"
#include "server/tier/extent_key.h"
#include "server/tier/ram_arena.h"

namespace forebay::stage {

// An extent as it is to be read from the GFS.
struct ExtentToRead {
  tier::ExtentKey key;                     // as it lies on the GFS
  std::span<const catalog::Range> pieces;  // of which checksums are wanted; may be empty
  std::string objects;                     // for messages: "object 'a'" or "objects 'a' to 'c'"
};

// Fills `image` with the extent's bytes; with `past_caches`, not from caches of this node.
using ReadImageBytes = std::function<Status(std::span<std::byte> image, bool past_caches)>;

// Reads an extent's image into `image` and compares it with the extent's first read. A mismatch is
// read once more, past the caches of this node; a second mismatch is kDataLoss that names objects
// and extent. Transient failures of the GFS are repeated, and bytes counted, beneath `read`.
// Returns the checksums of the image and of `extent.pieces`.
Result<tier::ExtentChecksums> ReadExtent(Dataset& dataset, const ExtentToRead& extent,
                                         std::span<std::byte> image, const ReadImageBytes& read);

// "object 'a'" or "objects 'a' to 'c'", for ExtentToRead.
std::string NameObjects(std::span<const catalog::ObjectInfo> objects);
std::string NameObjects(const catalog::Catalog& catalog, ExtentId extent);

// What ReadExtent brought, in memory of the RAM tier.
struct VerifiedExtent {
  tier::ExtentKey key;  // as it lies on the GFS
  tier::ArenaBlock image;
  tier::ExtentChecksums checksums;
};

// Thread-safe.
class ExtentLoader {
 public:
  // Borrowed; both outlive the loader.
  ExtentLoader(StagingTiers& tiers, Housing& housing)
      : tiers_(tiers), housing_(housing), packer_(tiers) {}

  // Nobody waits for a turn to compress any more; the tiers have been stopped.
  void Stop() { packer_.Stop(); }

  // Compresses the extent where its data set is stored so, finds its home, publishes it there and
  // counts it. A tier that refuses it is no error: the extent goes to the other one, or stays in
  // RAM for as long as there is room. `wish`: publish it there, whatever its home is. Returns true
  // where the extent turned out smaller than planned and others have got a home for it.
  Result<bool> StoreExtent(Dataset& dataset, VerifiedExtent extent,
                           std::optional<plan::Home> wish, io::IoQueue& queue);

 private:
  StagingTiers& tiers_;
  Housing& housing_;
  ExtentPacker packer_;
};

}  // namespace forebay::stage
