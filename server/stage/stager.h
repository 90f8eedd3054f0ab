// Stager: copies extents from the GFS to the tiers, each byte once, while readers already use what
// has arrived. Reader threads take jobs from queues by priority: an extent that a reader demands
// goes first, and an extent that is being read is never read a second time at once. README.md
// defines the words used here. Fetcher calls Demand; the daemon and the admin service call Stage.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/io/queue_crew.h"
#include "server/plan/membership.h"
#include "server/stage/cataloguing/cataloguer.h"
#include "server/stage/dataset.h"
#include "server/stage/extent_loader.h"
#include "server/stage/extent_source.h"
#include "server/stage/extent_supplier.h"
#include "server/stage/gfs/gfs_calls.h"
#include "server/stage/gfs/gfs_pieces.h"
#include "server/stage/gfs/gfs_reader.h"
#include "server/stage/gfs/patient_backend.h"
#include "server/stage/gfs/request_gate.h"
#include "server/stage/placement/placement_table.h"
#include "server/stage/placement/staging_tiers.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

struct StagerOptions {
  // Threads; each reads one extent at a time. In a job of several nodes there is one more, which
  // never waits for another node.
  std::uint32_t readers = 4;
  std::uint64_t request_bytes = 4 * limits::kMiB;    // size of one GFS read
  std::uint32_t requests = 8;                        // GFS reads in flight, over all extents
  std::uint32_t scan_depth = 8;                      // requests in flight while cataloguing
  std::int64_t hung_after_ms = 30'000;               // stage.hung_after; README.md: late, hung
  std::uint64_t ram_home_bytes = 0;                  // arena bytes for homes (plan::RamPlan)
  std::uint64_t ram_working_bytes = 0;               // for extents that pass through; 0: no bound
  std::string catalog_path;                          // absolute; saved catalogs, and scratch files
                                                     // of catalogs that outgrow memory
};

// What the stager works with; everything is borrowed and must outlive it.
struct StagerParts {
  io::IoBackend& backend;
  io::Directory* catalogs = nullptr;  // null: catalogs are not saved
  tier::RamArena& arena;
  tier::SegmentStore* store = nullptr;  // null: no SSD tier
  tier::ExtentCache& cache;
  io::Clock& clock;
  GfsPatience* patience = nullptr;  // of `backend`; stopped together with the stager
  GfsCalls* calls = nullptr;        // of `backend`; null: hung calls are not detected
  tier::NextUse next_use;
  // The nodes of the job, and the source that asks them. Both null: a job of one node.
  plan::Membership* nodes = nullptr;
  ExtentSource* peers = nullptr;
};

// Thread-safe.
class Stager {
 public:
  // Starts the reader threads.
  static Result<std::unique_ptr<Stager>> Create(const StagerOptions& options, StagerParts parts);
  // Stops the threads: extents that are being read are finished, waiting jobs are cancelled.
  ~Stager();
  // Stopping in two steps, for a caller that must end even if the GFS never answers. BeginStop
  // returns at once. AwaitStopped waits until all threads have ended. It returns false if some have
  // not ended after `wait`; the stager must then not be destroyed.
  void BeginStop();
  bool AwaitStopped(std::chrono::milliseconds wait) { return crew_->AwaitEnd(wait); }

  // Catalogues and stages `dataset` in the background; follow Dataset::progress(). If it has its
  // catalog already, stages the extents that failed or were evicted since. With `rebuild`, a saved
  // catalog is ignored. No effect while the data set is being catalogued or staged.
  void Stage(Dataset& dataset, bool rebuild = false);
  // Catalogues and stages `successor`, a data set of the same name as `old`, from the objects as
  // they are now (Cataloguer::Run), and calls `take_over`, from another thread, when `successor`
  // takes the place of `old`. `old` must have a catalog and outlive the stager. Its readers
  // continue while its objects are unchanged, and get kFailedPrecondition after that.
  void Replace(Dataset& old, Dataset& successor, std::function<void()> take_over);
  // As Stage, for a reader that is about to open a stream: after cataloguing, background staging
  // starts 50 ms later, so that the reader's first demands come first.
  void StageForReader(Dataset& dataset);

  // What a demand requests. It has no effect on a load of the extent that is under way already.
  using Access = stage::Access;
  // Makes `extent` resident, or readable in pieces, and calls `waiter` when this is done or has
  // failed; within this call if the extent is there already. `dataset` must have its catalog.
  void Demand(Dataset& dataset, ExtentId extent, Waiter waiter, Access access = Access::kOnTier);

  // Call about once a second, after GfsCalls::Look. Lends the places of requests that take too
  // long, adjusts the number of spare threads to the number of blocked ones, and resumes postponed
  // jobs whose objects answer again.
  void Look();
  // Threads, of the stager or of others, that wait for an object that does not answer.
  std::vector<std::thread::id> BlockedThreads() const;

  GfsPieces& pieces() { return pieces_; }
  // Space on the tiers that no extent has as its home yet.
  plan::TierSpace space_left() const { return placements_.left(); }

 private:
  // An extent, made of whole objects, whose catalog is still being built.
  struct EarlyExtent {
    tier::ExtentKey key;
    std::uint64_t bytes = 0;
    std::string paths;  // the objects' paths point into it
    std::vector<catalog::ObjectInfo> objects;
    // Guarded by mutex_.
    bool is_storing = false;    // it was read, and is being published
    bool is_abandoned = false;  // the catalog did not wait for it: it is not published
  };
  struct Job {
    Dataset* dataset = nullptr;
    std::optional<ExtentId> extent;   // unset: catalogue the data set
    std::unique_ptr<EarlyExtent> early;  // set: load this early extent instead
    bool rebuild = false;
    Replacement replaced;        // catalogue job: of the data set that `dataset` replaces
    std::int64_t grace_ns = 0;   // catalogue job: delay of background staging after it
    Access access = Access::kOnTier;
    bool background = false;
    bool asks_others = false;  // other nodes of the job are asked for the extent
    std::shared_ptr<Priority> priority;  // priority of its GFS requests
  };
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
  struct Background {
    Dataset* dataset = nullptr;
    std::int64_t not_before_ns = 0;
  };

  // An extent with a home that is read in pieces for now, because memory was short or the tier did
  // not keep it. A background load brings it home when a reader thread and memory are free.
  struct DeferredLoad {
    Dataset* dataset = nullptr;
    ExtentId extent;
    std::int64_t not_before_ns = 0;
  };

  Stager(const StagerOptions& options, StagerParts parts);
  void Begin(Dataset& dataset, bool rebuild, std::int64_t grace_ns, Replacement replaced = {});
  bool StageAgain(Dataset& dataset);
  void Run(io::QueueCrew& crew, io::IoQueue& queue);
  std::optional<Job> NextJob(io::QueueCrew& crew);
  // The first demand that may begin now (MayAskOthersLocked).
  std::optional<Job> NextDemandLocked() FOREBAY_REQUIRES(mutex_);
  // Whether one more thread may wait for another node of the job. One thread never does, so that
  // nodes which wait for each other's extents can still read them.
  bool MayAskOthersLocked() const FOREBAY_REQUIRES(mutex_) {
    return loads_from_others_ < options_.readers;
  }
  void EndAskingLocked(const Job& job) FOREBAY_REQUIRES(mutex_);
  // Puts the data set whose grace time ends first at the front of background_, which is not empty.
  // Returns the time that is left of it.
  std::int64_t PutSoonestFirstLocked() FOREBAY_REQUIRES(mutex_);
  // If the first data set in background_ has no extent left, removes it from the list and returns
  // nullopt. If its pass has ended too, `ended` becomes that data set.
  std::optional<Job> NextInBackgroundLocked(Dataset*& ended) FOREBAY_REQUIRES(mutex_);
  // Deferred loads run only while no other background load does, except for loads of `blocked`
  // readers.
  std::optional<Job> NextDeferredLocked(std::uint32_t blocked) FOREBAY_REQUIRES(mutex_);
  void DeferLoad(const Job& job);  // if the extent has a home but is on no tier
  void EndGraceLocked(const Dataset& dataset) FOREBAY_REQUIRES(mutex_);
  void Perform(const Job& job, io::IoQueue& queue);
  void PerformLoad(const Job& job, io::IoQueue& queue);
  void PerformCatalogue(const Job& job, io::IoQueue& queue);
  // Postpones the job and returns true if it needs an object that does not answer, so that such an
  // object blocks no further thread.
  bool Postpone(Job& job);
  bool IsBlocked(const Job& job) const;
  bool IsBlocked(const Dataset& dataset, const EarlyExtent& early) const;
  void ResumePostponed();
  // Gives a load that is queued or under way the priority of a new demand.
  void Hurry(const Dataset& dataset, ExtentId extent);

  // While a catalog is being built from metadata, extents whose objects are known are loaded
  // already (early extents), so that loading does not wait until millions of files were listed.
  void StageEarly(Dataset& dataset, ExtentId extent, const catalog::ExtentInfo& info,
                  std::span<const catalog::ObjectInfo> objects);
  Status LoadEarly(Dataset& dataset, EarlyExtent& early, const Priority& priority,
                   io::IoQueue& queue);
  void EndEarlyLoad(const Dataset& dataset, EarlyExtent& early);
  void EndEarly(Dataset& dataset);

  // Continues background staging after extents that the pass had skipped got a home.
  void ResumeBackground(Dataset& dataset);

  const StagerOptions options_;
  StagerParts parts_;
  RequestGate gate_;
  GfsReader gfs_;
  StagingTiers tiers_;
  PlacementTable placements_;
  ExtentLoader loader_;
  GfsPieces pieces_;
  ExtentSupplier supplier_;
  Cataloguer cataloguer_;

  Mutex mutex_;
  CondVar work_;
  bool stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::uint32_t cataloguing_ FOREBAY_GUARDED_BY(mutex_) = 0;  // catalogue jobs under way
  std::deque<Job> catalogue_jobs_ FOREBAY_GUARDED_BY(mutex_);
  std::deque<Job> demanded_ FOREBAY_GUARDED_BY(mutex_);
  std::deque<Job> early_ FOREBAY_GUARDED_BY(mutex_);
  std::deque<Job> postponed_ FOREBAY_GUARDED_BY(mutex_);  // at most one for each extent
  // Background jobs that were postponed and can run now.
  std::deque<Job> resumed_ FOREBAY_GUARDED_BY(mutex_);
  // Loads under way.
  std::unordered_map<const Dataset*, std::vector<EarlyExtent*>> early_loads_
      FOREBAY_GUARDED_BY(mutex_);
  CondVar early_over_;
  std::uint32_t background_loads_ FOREBAY_GUARDED_BY(mutex_) = 0;  // number under way
  std::uint32_t loads_from_others_ FOREBAY_GUARDED_BY(mutex_) = 0;  // under way, that ask nodes
  // Priorities of loads that are queued or under way.
  std::unordered_map<LoadKey, std::shared_ptr<Priority>, LoadKeyHash> priorities_
      FOREBAY_GUARDED_BY(mutex_);
  std::vector<Background> background_ FOREBAY_GUARDED_BY(mutex_);
  // Each extent once; the one that waits longest first.
  std::deque<DeferredLoad> deferred_ FOREBAY_GUARDED_BY(mutex_);

  // Used by Look only: no spare reader could be started, and this was logged.
  bool lacks_spare_ = false;

  std::unique_ptr<io::QueueCrew> crew_;  // last: its threads use all of the above
};

}  // namespace forebay::stage
