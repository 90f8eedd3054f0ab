// GfsPieces: reads samples of extents that are on no tier from the GFS, one by one. This is slow.
// It is for extents that fit on no tier, or whose copy was lost, so that no sample is missing.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/catalog/catalog.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"
#include "server/stage/gfs/gfs_reader.h"
#include "server/stage/gfs/request_gate.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

// A piece that is read alone is verified by its own checksum. To learn these checksums, an extent
// is first *described*: read once as a whole, in memory outside the tiers, and compared with its
// first read. Only the checksums are kept, up to limits::kPieceChecksumBytesMax. Beyond that, the
// extent that was used longest ago is forgotten, and described again when it is needed.
// Thread-safe.
class GfsPieces {
 public:
  // All are borrowed.
  GfsPieces(GfsReader& gfs, RequestGate& gate, io::Clock& clock)
      : gfs_(gfs),
        gate_(gate),
        describing_(limits::kExtentsDescribedMax, clock,
                    /*lent_max=*/limits::kExtentsDescribedMax) {}

  // Whether the extents of a data set can be read in pieces. Not if it is compressed at staging,
  // because its keys and checksums belong to the compressed bytes.
  static bool CanRead(const Dataset& dataset) { return dataset.form() == nullptr; }

  // The extent, if it is described, else null.
  tier::ExtentRef Find(const tier::ExtentKey& key);
  // As Find, but also null if one of its objects has not answered other readers for
  // stage.hung_after.
  tier::ExtentRef FindReadable(const tier::ExtentKey& key);
  // Describes the extent; `dataset` must then outlive this object. At most
  // limits::kExtentsDescribedMax extents are described at a time, and as many more while the GFS
  // does not answer. Errors are those of ReadExtent.
  Status Describe(Dataset& dataset, const std::shared_ptr<const catalog::Catalog>& catalog,
                  ExtentId extent, const Priority& priority, io::IoQueue& queue);
  // As RequestGate::LendPlacesOf, for extents that are being described.
  void LendPlacesOf(std::int64_t longer_than_ns) { describing_.LendPlacesOf(longer_than_ns); }
  std::vector<std::thread::id> BlockedThreads() const { return describing_.BlockedThreads(); }
  // Call when a piece of `extent` could not be used; `found` is that error. If its bytes were wrong
  // (kDataLoss), counts and logs it, and forgets the extent, so that it is described again.
  void Forget(const tier::ExtentRef& extent, const Error& found);
  // Forgets all extents of the data sets that have this Dataset::hash. A rebuild calls it after
  // Dataset::Succeed, because it accepts the objects as they are now.
  void ForgetAll(std::uint64_t dataset);

 private:
  class Source;
  struct Entry {
    tier::ExtentRef extent;
    Dataset* dataset = nullptr;
    std::list<tier::ExtentKey>::iterator use;
  };

  void Keep(Dataset& dataset, const std::shared_ptr<const catalog::Catalog>& catalog,
            std::shared_ptr<tier::ResidentExtent> extent);

  GfsReader& gfs_;
  RequestGate& gate_;
  RequestGate describing_;  // limits how many extents are described at once
  Mutex mutex_;
  std::unordered_map<tier::ExtentKey, Entry, tier::ExtentKeyHash> known_ FOREBAY_GUARDED_BY(mutex_);
  // Keys of known_, the last used first.
  std::list<tier::ExtentKey> uses_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t checksum_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;  // kept in known_
  // One for each data set, so that pieces of several extents are read in one call.
  std::unordered_map<const Dataset*, std::shared_ptr<const Source>> sources_
      FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::stage
