// EarlyExtents: loads extents while the catalog of their data set is still being built, so that
// loading does not wait until millions of files were listed. The builder of a catalog reports each
// extent whose objects are known (Add); a reader thread loads it (Take, Load); and before the
// catalog is adopted, the builder waits for the loads under way (End). Nothing is lost if an extent
// is left out or fails: it is staged like any other once there is a catalog. Owned by Stager.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/catalog/catalog.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"
#include "server/stage/extent_loader.h"
#include "server/stage/gfs/gfs_calls.h"
#include "server/stage/gfs/gfs_reader.h"
#include "server/stage/gfs/request_gate.h"
#include "server/stage/placement/placement_table.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

// Thread-safe.
class EarlyExtents {
 public:
  // Borrowed.
  struct Parts {
    tier::ExtentCache& cache;
    GfsReader& gfs;
    RequestGate& gate;
    const GfsCalls* calls = nullptr;  // null: hung calls are not detected
    PlacementTable& placements;
    ExtentLoader& loader;
  };
  explicit EarlyExtents(const Parts& parts) : parts_(parts) {}

  // An extent, made of whole objects, that waits or is being loaded.
  struct Extent {
    Dataset* dataset = nullptr;
    tier::ExtentKey key;
    std::uint64_t group_key = 0;
    std::uint64_t bytes = 0;
    std::string paths;  // the objects' paths point into it
    std::vector<catalog::ObjectInfo> objects;
    Priority priority = 0;  // of its GFS requests
    // Guarded by EarlyExtents::mutex_.
    bool is_storing = false;    // it was read, and is being published
    bool is_abandoned = false;  // the catalog did not wait for it: it is not published
  };

  // Called by the builder of a catalog, once for each extent. Returns false if the extent was not
  // taken, because no tier has space for it or enough of them wait already.
  bool Add(Dataset& dataset, ExtentId extent, const catalog::ExtentInfo& info,
           std::span<const catalog::ObjectInfo> objects);
  // The extent that waits longest, or null. The caller has to call Load with it.
  std::unique_ptr<Extent> Take();
  // Loads the extent, unless one of its objects does not answer. Blocks for as long as the GFS
  // needs.
  void Load(Extent& extent, io::IoQueue& queue);
  // Called when the build of the catalog has ended, before the catalog is adopted: drops the
  // extents that wait, and returns when no load is under way that will publish its extent. It does
  // not wait for a load that is blocked by the GFS.
  void End(const Dataset& dataset);
  // Call after GfsCalls::Look: End waits no longer for loads that are blocked now.
  void Look() { load_over_.NotifyAll(); }
  // From now on no extent is taken, and none waits.
  void Stop();

 private:
  bool IsBlocked(const Extent& extent) const;
  Status Read(Extent& extent, io::IoQueue& queue);
  void EndLoad(Extent& extent);

  const Parts parts_;
  Mutex mutex_;
  CondVar load_over_;
  bool is_stopped_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::deque<std::unique_ptr<Extent>> waiting_ FOREBAY_GUARDED_BY(mutex_);
  // Under way, and not abandoned. The threads that load them own them.
  std::vector<Extent*> loads_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::stage
