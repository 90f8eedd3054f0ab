// StageRig: the rooms from the GFS to the tiers, wired as in the daemon, on any back end. It can be
// stopped and started again with the same files. Part of forebay::stage_testing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/io/clock.h"
#include "server/io/testing/fault_injector.h"
#include "server/stage/dataset.h"
#include "server/stage/stager.h"
#include "server/stage/testing/split_backend.h"
#include "server/tier/extent_cache.h"
#include "server/tier/ram/ram_arena.h"
#include "server/tier/ssd/segment_store.h"

namespace forebay::stage {

struct RigOptions {
  std::uint64_t ram_bytes = 8 << 20;
  std::uint64_t reserve_bytes = 0;
  std::uint64_t ssd_bytes = 0;  // 0: no SSD tier
  std::uint32_t readers = 2;
  std::uint64_t request_bytes = 16 << 10;
  std::uint32_t scan_depth = 4;
  std::uint32_t requests = 8;
  bool has_request_cap = false;
  bool saves_catalogs = false;  // the back end must be a real one then
  std::string ssd_folder = "/ssd";  // beneath the rig's folder
  tier::NextUse next_use = nullptr;  // null: nothing is needed any more
  // See StagerParts; borrowed.
  GfsThrottle* throttle = nullptr;
  UpcomingReads* upcoming = nullptr;
  plan::Membership* nodes = nullptr;
  ExtentSource* peers = nullptr;
  FirstReadKeepers* keepers = nullptr;
  PartSource* peer_parts = nullptr;
  StatSource* peer_stats = nullptr;
};

// Beneath `folder` ("" on a memory back end) there must be /gfs, and ssd_folder and /state where
// they are used.
class StageRig {
 public:
  StageRig(io::IoBackend& inner, std::string folder)
      : folder_(std::move(folder)), backend_(inner, folder_ + "/gfs", gfs_faults, ssd_faults) {}
  ~StageRig() { Stop(); }

  Status Start(const DatasetOptions& dataset, const RigOptions& options = {});
  // Ends the stager and forgets the tiers' memory, as the end of a daemon does.
  void Stop();

  // Stages, waits until that has settled, and returns the data set's error where it failed. With
  // `rebuild`, dataset() is another one afterwards where it had a catalog and the objects could be
  // looked at; the one before stays. `taken_over` is called by the rebuild, on a thread of the
  // stager, when the other one has taken over and has staged nothing yet; unset: nothing is.
  Status StageAll(bool rebuild = false, const std::function<void()>& taken_over = nullptr);
  // Makes an extent resident and waits for it.
  Status Demand(ExtentId extent);
  // kNotFound where the extent is on no tier; kDataLoss where the copy that Find returns does
  // not match its checksums.
  Status Verify(ExtentId extent);
  Status VerifyAll();

  // Counts reads from the GFS from now on, without any fault.
  void CountGfsReads() { gfs_faults.Arm({.call = io::IoCall::kRead, .nth = ~0ULL}); }
  std::uint64_t gfs_reads() const { return gfs_faults.candidates_seen(); }

  io::IoBackend& backend() { return backend_; }
  Dataset& dataset() { return *dataset_; }
  Stager& stager() { return *stager_; }
  tier::ExtentCache& cache() { return *cache_; }
  tier::RamArena& arena() { return *arena_; }
  io::Clock& clock() { return clock_; }
  std::uint32_t extent_count() { return dataset_->catalog()->extent_count(); }

  io::FaultInjector gfs_faults;
  io::FaultInjector ssd_faults;

 private:
  const std::string folder_;
  SplitBackend backend_;
  io::SteadyClock clock_;
  std::unique_ptr<io::Directory> ssd_directory_;
  std::unique_ptr<io::Directory> catalogs_;
  std::unique_ptr<tier::RamArena> arena_;
  std::unique_ptr<tier::SegmentStore> store_;
  std::unique_ptr<tier::ExtentCache> cache_;
  std::unique_ptr<Dataset> dataset_;
  std::vector<std::unique_ptr<Dataset>> kept_;  // that were replaced, or failed to replace one
  std::unique_ptr<Stager> stager_;
};

// Waits until `dataset` is neither being catalogued nor staged; its error where it failed.
Status AwaitPassEnd(const Dataset& dataset);

// A raw data set "data" of one file, data.bin, in extents of 64 KiB.
DatasetOptions RecordDataset(std::uint64_t record_bytes = 1000);

}  // namespace forebay::stage
