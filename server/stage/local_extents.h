// LocalExtents: answers a request of another node for a whole extent (ExtentSource), with the copy
// on this node's tiers; an extent that is on no tier is staged first. It also answers requests for
// the catalog part of an object (PartSource), and for sizes and times of files (StatSource).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "proto/contract/result.h"
#include "server/catalog/storage/build_scratch.h"
#include "server/catalog/storage/image_sink.h"
#include "server/stage/cataloguing/local_stats.h"
#include "server/stage/dataset.h"
#include "server/stage/extent_source.h"
#include "server/stage/stager.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

// Thread-safe.
class LocalExtents {
 public:
  // All are borrowed. `scratch`: for catalog parts that are larger than memory for them.
  LocalExtents(tier::ExtentCache& cache, Stager& stager, io::Clock& clock,
               catalog::BuildScratch scratch = {})
      : cache_(cache), stager_(stager), clock_(clock), scratch_(std::move(scratch)) {}

  // Brings the extent to a tier, and calls `waiter` when it is there or an error is final; perhaps
  // within this call. Begins to stage the data set if nobody has yet. No thread waits meanwhile.
  // `fingerprint` is that of the asking node's catalog; kFailedPrecondition: this node has another
  // catalog. Errors are meant for another node (ErrorForOthers).
  void Bring(Dataset& dataset, std::uint64_t fingerprint, ExtentId extent, Waiter waiter);

  // Does that, and copies the extent's image into memory from `allocate`, with the image's
  // checksum. Blocks until the extent is on a tier, and while a copy on SSD is read.
  Result<SuppliedExtent> Read(Dataset& dataset, std::uint64_t fingerprint, ExtentId extent,
                              const AllocateImage& allocate, io::IoQueue& queue);

  // Writes the encoded part of an object of a data set that is scanned, from what was scanned so
  // far or from the complete catalog. Begins to catalogue the data set if nobody has yet, or if the
  // last attempt failed long ago (CatalogFailure::IsOld). `object_hash`: catalog::HashOf of the
  // object as the asking node has listed it; kOutOfRange: it is another one here. Never waits for a
  // scan.
  Result<PartAnswer> ReadPart(Dataset& dataset, ObjectId object, std::uint64_t object_hash,
                        catalog::ImageSink& part);
  // Calls `done` once with the sizes and times of `paths`, perhaps within this call
  // (LocalStats::Answer). Errors are meant for another node. No thread waits meanwhile.
  void Stat(Dataset& dataset, std::span<const std::string> paths, LocalStats::Done done);
  const catalog::BuildScratch& scratch() const { return scratch_; }

 private:
  tier::ExtentCache& cache_;
  Stager& stager_;
  io::Clock& clock_;
  const catalog::BuildScratch scratch_;
};

// Checks that another node's catalog of `dataset`, of which `fingerprint` is given, lists the same
// samples as this node's. kFailedPrecondition names both fingerprints. `dataset` has its catalog.
Status CheckFingerprint(const Dataset& dataset, std::uint64_t fingerprint);

}  // namespace forebay::stage
