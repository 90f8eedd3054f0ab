// LocalExtents: answers a request of another node for a whole extent (ExtentSource), with the copy
// on this node's tiers. An extent that is on no tier is staged first.
#pragma once

#include <cstdint>

#include "proto/contract/result.h"
#include "server/stage/dataset.h"
#include "server/stage/extent_source.h"
#include "server/stage/stager.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

// Thread-safe.
class LocalExtents {
 public:
  // All are borrowed.
  LocalExtents(tier::ExtentCache& cache, Stager& stager, io::Clock& clock)
      : cache_(cache), stager_(stager), clock_(clock) {}

  // Copies the extent's image into memory from `allocate`, with the image's checksum. `fingerprint`
  // is that of the asking node's catalog; kFailedPrecondition: this node has another catalog.
  // Blocks until the extent is on a tier; begins to stage the data set if nobody has yet. Errors
  // are meant for another node (ErrorForOthers).
  Result<SuppliedExtent> Read(Dataset& dataset, std::uint64_t fingerprint, ExtentId extent,
                              const AllocateImage& allocate, io::IoQueue& queue);

 private:
  tier::ExtentCache& cache_;
  Stager& stager_;
  io::Clock& clock_;
};

// Checks that another node's catalog of `dataset`, of which `fingerprint` is given, lists the same
// samples as this node's. kFailedPrecondition names both fingerprints. `dataset` has its catalog.
Status CheckFingerprint(const Dataset& dataset, std::uint64_t fingerprint);

}  // namespace forebay::stage
