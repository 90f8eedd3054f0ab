// ExtentSupplier: makes one extent usable on this node, from wherever that is cheapest: another
// tier, other nodes of the job, or the GFS. Stager decides which extent is next, and calls it from
// its reader threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/catalog/catalog.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/plan/membership.h"
#include "server/stage/dataset.h"
#include "server/stage/extent_loader.h"
#include "server/stage/extent_source.h"
#include "server/stage/gfs/gfs_pieces.h"
#include "server/stage/gfs/gfs_reader.h"
#include "server/stage/gfs/request_gate.h"
#include "server/stage/placement/placement_table.h"
#include "server/stage/placement/staging_tiers.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

// Says where a caller needs an extent, and whether it needs the whole of it.
enum class Access : std::uint8_t {
  kWhole,           // the whole extent, on its home
  kOnTier,          // likewise, but the caller can use pieces instead: if memory is short, the
                    // caller is told so after a brief wait
  kInRam,           // the whole extent, in RAM: its copy on SSD was lost once
  kPiecesIfNoHome,  // kOnTier for an extent with a home, else kPieces
  kPieces,          // samples are read from the GFS one by one (GfsPieces)
};

// How soon a reader needs a demanded extent. The smaller value is the more urgent one.
enum class Urgency : std::uint8_t {
  kNow,    // a batch waits for nothing but its extents: whatever is not in use makes way for them
  kSoon,   // at first, only what is needed later makes way; after a while, as kNow
  kAhead,  // only what is needed later makes way; if that is too little, kResourceExhausted at once
};

// How long a demand waits for memory if its samples can be read one by one instead. Batches that
// are being assembled free theirs sooner than that. Readers of views may keep extents pinned for as
// long as they like, and are not waited for. A longer wait would occupy a reader thread, and a
// batch, perhaps on another node, would wait as long.
inline constexpr std::int64_t kMemoryWaitBeforePiecesMs = 100;

// One extent of a data set that has its catalog. The caller has claimed it (Dataset::Claim).
struct LoadRequest {
  Dataset& dataset;
  ExtentId extent;
  Access access = Access::kOnTier;
  bool background = false;  // nobody waits for it: guests are evicted for it, but nothing else
  bool ahead = false;       // nobody demanded it when it began: it is read ahead of need
  const Priority& priority;  // priority of its GFS requests
  // May become more urgent while the extent is loaded. Of no effect for background loads.
  const std::atomic<Urgency>& urgency;
  // Somebody who waits for it cannot use pieces (Access::kWhole). May become true meanwhile.
  const std::atomic<bool>& needs_whole;

  // Whether nobody needs it at once.
  bool can_wait() const {
    return background || (ahead && urgency.load() == Urgency::kAhead);
  }
};

// Thread-safe.
class ExtentSupplier {
 public:
  // Borrowed.
  struct Parts {
    tier::ExtentCache& cache;
    io::Clock& clock;
    GfsReader& gfs;
    GfsPieces& pieces;
    StagingTiers& tiers;
    PlacementTable& placements;
    ExtentLoader& loader;
    plan::Membership* nodes = nullptr;  // null: a job of one node
    ExtentSource* peers = nullptr;      // null: likewise
  };
  explicit ExtentSupplier(const Parts& parts) : parts_(parts), gfs_extents_(parts.gfs) {}

  // Blocks until the extent can be used, or an error is final. `queue` must be idle. True: the
  // extent is smaller than planned, and other extents got a home because of that. Errors:
  // kResourceExhausted: there is no memory; kCancelled: the tiers were stopped; kDataLoss; those of
  // the GFS.
  Result<bool> Load(const LoadRequest& load, io::IoQueue& queue);

  // Whether this node reads the extents of a group (Dataset::group_key) from the GFS for all nodes.
  bool Reads(std::uint64_t group_key) const {
    return parts_.nodes == nullptr || parts_.nodes->Reads(group_key);
  }
  // Whether another node is asked for them: this node does not read them, or takes them over from a
  // node that leaves.
  bool AsksOthers(std::uint64_t group_key) const {
    return parts_.nodes != nullptr && parts_.nodes->FirstSource(group_key).has_value();
  }
  // Whether another node that asks for an extent which is not here is to ask the next one: this
  // node yields; or it did when it began to ask a node behind itself for the extent. That node asks
  // this one first, and must not wait for what waits for it.
  bool RefusesOthers(const Dataset& dataset, ExtentId extent) const;
  // Whether this node reads them only because a node leaves, from which it gets them.
  bool TakesOver(std::uint64_t group_key) const {
    return parts_.nodes != nullptr && parts_.nodes->TakesOver(group_key, parts_.clock.NowNs());
  }

 private:
  // As Load, once. `successors`: DatasetVersion::successors() before this call.
  Result<bool> LoadOnce(const LoadRequest& load, std::uint32_t successors, io::IoQueue& queue);
  // Whether the extent is on a tier and is served from there. `home`: the tier that it is to be on,
  // to which it is brought as far as nobody has to wait for that.
  Result<bool> IsThere(const LoadRequest& load, plan::HomeTier home, std::uint32_t successors,
                       io::IoQueue& queue);
  using WorkingShare = std::unique_ptr<StagingTiers::WorkingMemory>;
  // Asks the nodes that are asked before this one reads the GFS, in turn, for the whole extent, and
  // verifies it. Nullopt: there is no such node, or none supplies it. `allocate` takes working
  // memory to `working`, which is empty while another node is waited for: two nodes that wait for
  // each other must both be able to answer.
  Result<std::optional<SuppliedExtent>> AskOthers(ExtentRequest request,
                                                  const AllocateImage& allocate,
                                                  WorkingShare& working, io::IoQueue& queue);
  struct ImageMemory {
    std::uint64_t bytes = 0;
    const tier::ExtentKey* key = nullptr;  // see StagingTiers::MemoryRequest
    bool is_passing = false;    // it only passes through RAM, to SSD or to be compressed
    bool is_read_here = false;  // no other node supplies it: it comes from the GFS
  };
  // Allocates memory for the image of a load.
  Result<tier::ArenaBlock> Allocate(const LoadRequest& load, const ImageMemory& image,
                                    io::IoQueue& queue);
  // Background loads only: copies an extent that is in RAM to its home tier.
  void BringHome(const LoadRequest& load, const tier::ResidentExtent& found,
                 std::uint32_t successors, io::IoQueue& queue);

  // A load that asks a node behind this one, from construction to destruction.
  class AskingBehind;

  const Parts parts_;
  GfsExtents gfs_extents_;
  mutable Mutex mutex_;
  // Loads that ask nodes behind this one: a few, while this node yields.
  std::vector<std::pair<const Dataset*, ExtentId>> asked_behind_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::stage
