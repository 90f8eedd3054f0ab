// GfsPieces: extents that lie on no tier and whose samples are read from the GFS one by one. This
// is the slow way, for what has lost its tier or fits on none: it costs speed, not samples.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"
#include "server/stage/gfs_reader.h"
#include "server/stage/request_gate.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

// A piece read alone is verified by its own checksum. So an extent is read once as a whole, beside
// the tiers, compared with its first read, and the checksums of its pieces are kept, up to
// limits::kPieceChecksumBytesMax; extents that were used longest ago are forgotten first, and read
// as a whole again when they are needed. Pieces themselves are not kept. Thread-safe.
class GfsPieces {
 public:
  // All are borrowed.
  GfsPieces(GfsReader& gfs, RequestGate& gate, io::Clock& clock)
      : gfs_(gfs),
        gate_(gate),
        describing_(limits::kExtentsDescribedMax, clock,
                    /*lent_max=*/limits::kExtentsDescribedMax) {}

  // Whether the extents of a data set can be read in pieces: not where the tiers hold them
  // compressed at staging, for then their keys and checksums are of other bytes.
  static bool CanRead(const Dataset& dataset) { return dataset.form() == nullptr; }

  // The extent as it was described, or null.
  tier::ExtentRef Find(const tier::ExtentKey& key);
  // Reads the extent as a whole and keeps the checksums of its pieces; `dataset` must outlive this
  // object then. At most limits::kExtentsDescribedMax extents are read at a time, and as many that
  // the GFS does not answer, in memory that belongs to no tier. Errors are those of ReadExtent.
  Status Describe(Dataset& dataset, const std::shared_ptr<const catalog::Catalog>& catalog,
                  ExtentId extent, const Rank& rank, io::IoQueue& queue);
  // As RequestGate: whole extents that take longer keep no others waiting.
  void LendPlacesOf(std::int64_t longer_than_ns) { describing_.LendPlacesOf(longer_than_ns); }
  std::vector<std::thread::id> HeldUpThreads() const { return describing_.HeldUpThreads(); }
  // A piece of `extent` did not match its checksum, as `found` says. That is counted and logged,
  // and the extent is forgotten, so that it is described again.
  void Forget(const tier::ExtentRef& extent, const Error& found);

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
  RequestGate describing_;  // whole extents
  std::mutex mutex_;       // guards what follows
  std::unordered_map<tier::ExtentKey, Entry, tier::ExtentKeyHash> known_;
  std::list<tier::ExtentKey> uses_;   // of known_, the latest first
  std::uint64_t checksum_bytes_ = 0;  // of known_
  // One for each data set, so that its pieces are read together.
  std::unordered_map<const Dataset*, std::shared_ptr<const Source>> sources_;
};

}  // namespace forebay::stage
