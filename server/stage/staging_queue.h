// StagingQueue: the jobs of the stager's reader threads, and which of them is next. Demands go
// first, and background work never takes all threads. It decides and counts; it reads and stores
// nothing. Stager adds jobs, and its threads take them with Next and perform them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/io/queue_crew.h"
#include "server/stage/cataloguing/cataloguer.h"
#include "server/stage/dataset.h"
#include "server/stage/early_extents.h"
#include "server/stage/extent_supplier.h"
#include "server/stage/gfs/gfs_calls.h"
#include "server/stage/gfs/gfs_reader.h"
#include "server/stage/gfs/request_gate.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

// Returns what those are told who wait when the daemon stops.
Error ShuttingDown();

// How urgent a load is, and for whom. A demand that joins the load may change all members while it
// waits or is under way.
struct LoadPriority {
  Priority requests = 0;  // of its GFS requests
  std::atomic<Urgency> urgency = Urgency::kSoon;
  std::atomic<bool> needs_whole = false;  // one of those who wait asked for Access::kWhole
};

struct StagingJob {
  enum class Kind : std::uint8_t {
    kCatalogue,
    kLoad,       // `extent`, which is claimed (Dataset::Claim)
    kLoadEarly,  // `early`
    kReadAhead,  // the thread looks for an extent that a stream needs soon, and loads it
    kTakeOver,   // prepares the pass in which this node takes over from nodes that leave
    kEndPass,    // no extent of the data set is left to stage: close its objects
  };
  Kind kind = Kind::kLoad;
  Dataset* dataset = nullptr;
  ExtentId extent = ExtentId(0);
  std::unique_ptr<EarlyExtents::Extent> early;
  // kCatalogue.
  bool rebuild = false;
  Replacement replaced;       // the data set that `dataset` replaces
  std::int64_t grace_ns = 0;  // delay of background staging after it
  std::int64_t not_before_ns = 0;
  // kLoad.
  Access access = Access::kOnTier;
  bool background = false;
  bool asks_others = false;            // other nodes of the job are asked for the extent
  bool ahead = false;                  // read ahead: nobody demanded it when it began
  std::uint64_t ahead_bytes = 0;       // of the extent, if `ahead`
  std::shared_ptr<LoadPriority> priority;
};

// Thread-safe.
class StagingQueue {
 public:
  // Borrowed.
  struct Parts {
    io::Clock& clock;
    tier::ExtentCache& cache;
    const GfsCalls* calls = nullptr;  // null: hung calls are not detected
    RequestGate& gate;
    const GfsReader& gfs;
    const ExtentSupplier& supplier;
    EarlyExtents& early;
    // Extents of this size together may be read ahead at the same time, and the last one that
    // exceeds it.
    std::uint64_t ahead_bytes_max = 0;
  };
  // `readers`: the number of threads, without spare ones and without the one that never waits for
  // other nodes (StagerOptions).
  StagingQueue(std::uint32_t readers, const Parts& parts) : readers_(readers), parts_(parts) {}

  // From now on nothing is added and Next returns nothing. Returns the jobs that nobody will
  // perform; nullopt if the queue was stopped before.
  struct Unfinished {
    std::deque<StagingJob> loads;
    std::deque<StagingJob> catalogues;
  };
  std::optional<Unfinished> Stop();

  // False: the queue is stopped, and nothing was added.
  bool AddCatalogue(StagingJob job);
  // Has the extent loaded, and calls `waiter` when that has ended or failed. If a load is queued or
  // under way, it gets the priority of this demand, and does not become less urgent. True: such a
  // load has become more urgent.
  bool Demand(Dataset& dataset, ExtentId extent, Waiter waiter, Access access, Urgency urgency);
  // Stages the extents of `dataset` that have a home and are not claimed, in the background.
  void AddPass(Dataset& dataset);
  // A job of kTakeOver is due for `dataset`. Its extents are staged after that.
  void AddTakeOver(Dataset& dataset);
  // Loads an extent in the background later, if it has a home but is on no tier, because memory or
  // a tier was short of space.
  void Defer(Dataset& dataset, ExtentId extent);
  // Call after EarlyExtents::Add has taken an extent.
  void AddedEarly();
  // There may be an extent to read ahead: a job of kReadAhead is due.
  void LookAhead();

  // Waits for the next job. nullopt: the thread has to end.
  std::optional<StagingJob> Next(io::QueueCrew& crew);
  // Puts a load that Next has returned aside if it needs an object that does not answer, so that
  // such an object blocks no further thread.
  enum class Postponement : std::uint8_t {
    kNone,      // the caller performs the job
    kPostponed,
    kCancelled,  // the queue is stopped: the caller reports the extent as cancelled
  };
  Postponement Postpone(StagingJob& job);
  // Returns postponed jobs whose objects answer again to where they were.
  void ResumePostponed();
  // For a job of kReadAhead that has found an extent which is on no tier: claims it. Returns its
  // load, for EndLoad. Nullopt: it is being loaded, or another node would have to be asked.
  std::optional<StagingJob> BeginReadAhead(Dataset& dataset, ExtentId extent);
  // Call once for each job of kReadAhead, when it has searched. `has_found`: BeginReadAhead has
  // returned a load, and another thread may look for the next extent meanwhile. Otherwise no such
  // job begins before LookAhead is called.
  void EndSearch(bool has_found);
  // Whether a load of this extent would wait for an object that does not answer.
  bool IsBlocked(const Dataset& dataset, ExtentId extent) const;
  // Call once for each job of kLoad or kCatalogue that was performed; for a load before
  // Dataset::Report. `is_catalogued`: the background pass of the data set begins.
  void EndLoad(const StagingJob& job);
  void EndCatalogue(const StagingJob& job, bool is_catalogued);
  // Likewise for a job of kTakeOver: its pass begins.
  void EndTakeOver(const StagingJob& job);
  // Call instead of EndCatalogue: the job waits for other nodes, and Next returns it again after
  // this time. False: the queue is stopped, and nobody will perform the job.
  bool PostponeCatalogue(StagingJob job, std::int64_t pause_ns);
  std::uint32_t cataloguing() const;  // catalogue jobs under way

 private:
  struct LoadKey {
    const Dataset* dataset;
    ExtentId extent;
    bool operator==(const LoadKey&) const = default;
  };
  struct LoadKeyHash {
    std::size_t operator()(const LoadKey& key) const {
      return IdHash()(key.extent) ^ reinterpret_cast<std::uintptr_t>(key.dataset);
    }
  };
  // A data set with extents that nobody has claimed.
  struct Pass {
    Dataset* dataset = nullptr;
    std::int64_t not_before_ns = 0;
    bool is_take_over = false;  // a job of kTakeOver comes first
  };
  struct DeferredLoad {
    Dataset* dataset = nullptr;
    ExtentId extent;
    std::int64_t not_before_ns = 0;
  };

  StagingJob LoadOf(Dataset& dataset, ExtentId extent, std::uint64_t priority) const;
  StagingJob BackgroundLoadLocked(Dataset& dataset, ExtentId extent) FOREBAY_REQUIRES(mutex_);
  // The first demand that may begin now (MayAskOthersLocked).
  std::optional<StagingJob> NextDemandLocked() FOREBAY_REQUIRES(mutex_);
  // Whether one more thread may wait for another node of the job. One thread never does, so that
  // nodes which wait for each other's extents can still read them.
  bool MayAskOthersLocked() const FOREBAY_REQUIRES(mutex_) {
    return loads_from_others_ < readers_;
  }
  void EndAskingLocked(const StagingJob& job) FOREBAY_REQUIRES(mutex_);
  // Whether one more extent may be read ahead. `background_max`: of all that no reader waits for.
  bool MayLookAheadLocked(std::uint32_t background_max, std::uint32_t spare) const
      FOREBAY_REQUIRES(mutex_);
  // Puts the data set whose grace time ends first at the front of passes_, which is not empty.
  // Returns the time that is left of it.
  std::int64_t PutSoonestFirstLocked() FOREBAY_REQUIRES(mutex_);
  // The next job of the first data set in passes_. If that has no extent left, it is removed from
  // the list. Then the job ends its pass, or there is none, because loads of the pass are still
  // under way.
  std::optional<StagingJob> NextOfPassLocked() FOREBAY_REQUIRES(mutex_);
  // Deferred loads run only while no other background load does, except for loads of `blocked`
  // readers.
  std::optional<StagingJob> NextDeferredLocked(std::uint32_t blocked) FOREBAY_REQUIRES(mutex_);
  void EndGraceLocked(const Dataset& dataset) FOREBAY_REQUIRES(mutex_);
  // Its entry in passes_, which is added if there is none.
  Pass& ListedLocked(Dataset& dataset) FOREBAY_REQUIRES(mutex_);
  // The first catalogue job that may begin now.
  std::optional<StagingJob> NextCatalogueLocked() FOREBAY_REQUIRES(mutex_);
  // Waits until a job is added, or until time makes one of those that wait possible.
  void AwaitWorkLocked() FOREBAY_REQUIRES(mutex_);

  const std::uint32_t readers_;
  const Parts parts_;
  mutable Mutex mutex_;
  CondVar work_;
  bool stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::uint32_t cataloguing_ FOREBAY_GUARDED_BY(mutex_) = 0;
  // Under way, with the jobs of kTakeOver.
  std::uint32_t background_loads_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint32_t loads_from_others_ FOREBAY_GUARDED_BY(mutex_) = 0;  // under way, that ask nodes
  std::deque<StagingJob> catalogues_ FOREBAY_GUARDED_BY(mutex_);
  std::deque<StagingJob> demands_ FOREBAY_GUARDED_BY(mutex_);
  std::deque<StagingJob> postponed_ FOREBAY_GUARDED_BY(mutex_);  // at most one for each extent
  // Background jobs that were postponed and can run now.
  std::deque<StagingJob> resumed_ FOREBAY_GUARDED_BY(mutex_);
  // Priorities of loads that are queued or under way.
  std::unordered_map<LoadKey, std::shared_ptr<LoadPriority>, LoadKeyHash> priorities_
      FOREBAY_GUARDED_BY(mutex_);
  // LookAhead was called since the last search began, or that has found an extent.
  bool looks_ahead_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool is_searching_ FOREBAY_GUARDED_BY(mutex_) = false;  // one thread at a time
  // Under way, the search included; not part of background_loads_.
  std::uint32_t ahead_loads_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t ahead_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::vector<Pass> passes_ FOREBAY_GUARDED_BY(mutex_);
  // Each extent once; the one that waits longest first.
  std::deque<DeferredLoad> deferred_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::stage
