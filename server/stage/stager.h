// Stager: copies extents from the GFS to the tiers, each byte once, while readers already use what
// has arrived. Its reader threads perform the jobs of StagingQueue, in which an extent that a
// reader demands goes first; an extent that is being read is never read a second time at once.
// README.md defines the words used here. Fetcher calls Demand; the daemon and the admin service
// call Stage.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/io/queue_crew.h"
#include "server/plan/membership.h"
#include "server/stage/cataloguing/cataloguer.h"
#include "server/stage/cataloguing/local_stats.h"
#include "server/stage/dataset.h"
#include "server/stage/early_extents.h"
#include "server/stage/extent_loader.h"
#include "server/stage/extent_source.h"
#include "server/stage/extent_supplier.h"
#include "server/stage/first_read_keepers.h"
#include "server/stage/first_read_sharing.h"
#include "server/stage/gfs/gfs_calls.h"
#include "server/stage/gfs/gfs_pieces.h"
#include "server/stage/gfs/gfs_reader.h"
#include "server/stage/gfs/patient_backend.h"
#include "server/stage/gfs/request_gate.h"
#include "server/stage/part_source.h"
#include "server/stage/placement/placement_table.h"
#include "server/stage/placement/staging_tiers.h"
#include "server/stage/staging_queue.h"
#include "server/stage/stat_source.h"
#include "server/stage/upcoming_reads.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

struct StagerOptions {
  // Threads; each reads one extent at a time. In a job of several nodes there is one more, which
  // never waits for another node.
  std::uint32_t readers = 4;
  std::uint64_t request_bytes = 4 * limits::kMiB;    // size of one GFS read
  std::uint32_t requests = 8;                        // GFS reads in flight, over all extents
  // The job has a cap on requests in flight, of which the throttle knows this node's share. It
  // holds for reads while cataloguing, too, and for reads that are not answered.
  bool has_request_cap = false;
  // Files whose sizes a node is asked for in one request; the same on all nodes.
  std::size_t stat_batch_paths = limits::kStatPathsMax;
  std::uint32_t scan_depth = 8;                      // requests in flight while cataloguing
  std::int64_t hung_after_ms = 30'000;               // stage.hung_after; README.md: late, hung
  std::uint64_t ram_home_bytes = 0;                  // arena bytes for homes (plan::RamPlan)
  std::uint64_t ram_working_bytes = 0;               // for extents that pass through; 0: no bound
  std::string catalog_path;                          // absolute; saved catalogs, and scratch files
                                                     // of catalogs that outgrow memory
  // tier::DatasetHash of all data sets that this daemon has. What the SSD has of others goes when
  // space is short. Empty: nothing goes.
  std::vector<std::uint64_t> datasets = {};
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
  GfsThrottle* throttle = nullptr;  // of `backend`; stopped together with the stager
  tier::NextUse next_use;
  UpcomingReads* upcoming = nullptr;  // null: nothing is read ahead of need
  // The nodes of the job, and the sources that ask them. All null: a job of one node.
  plan::Membership* nodes = nullptr;
  ExtentSource* peers = nullptr;
  // The nodes that keep checksums of first reads for this one; null: none do.
  FirstReadKeepers* keepers = nullptr;
  PartSource* peer_parts = nullptr;  // likewise, for data sets that are scanned
  StatSource* peer_stats = nullptr;  // likewise, for data sets of many small files
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
  bool AwaitStopped(std::chrono::milliseconds wait) {
    return crew_->AwaitEnd(wait) && local_stats_.AwaitStopped(wait);
  }

  // Catalogues and stages `dataset` in the background; follow Dataset::progress(). If it has its
  // catalog already, stages the extents that failed or were evicted since. With `rebuild`, a saved
  // catalog is ignored. No effect while the data set is being catalogued or staged.
  void Stage(Dataset& dataset, bool rebuild = false);
  // Stages in the background what this node reads only because another one leaves the job
  // (plan::Membership::TakesOver), as far as the tiers have space, and nothing else but what has
  // failed before. `dataset` has its catalog; it is_preparing() until the pass has begun. No effect
  // while it is being staged.
  void TakeOver(Dataset& dataset);
  // Catalogues and stages `successor`, a data set of the same name as `old`, from the objects as
  // they are now (Cataloguer::Run), and calls `take_over`, from another thread, when `successor`
  // takes the place of `old`. `old` must have a catalog and outlive the stager. Its readers
  // continue while its objects are unchanged, and get kFailedPrecondition after that.
  void Replace(Dataset& old, Dataset& successor, std::function<void()> take_over);
  // As Stage, for a reader that is about to open a stream: after cataloguing, background staging
  // starts 50 ms later, so that the reader's first demands come first.
  void StageForReader(Dataset& dataset);

  // A stream reads these extents of `dataset`, which has its catalog, more than others, the first
  // one most. Copies of them take the place of copies that no stream wants, and are staged in the
  // background. They may be replaced when what is returned has gone, which must not outlive
  // `dataset`; null: nothing is copied.
  std::shared_ptr<void> PreferCopies(Dataset& dataset, const std::vector<ExtentId>& extents);

  using Access = stage::Access;
  using Urgency = stage::Urgency;
  // Makes `extent` resident, or readable in pieces, and calls `waiter` when this is done or has
  // failed; within this call if the extent is there already. `dataset` must have its catalog. If a
  // load of the extent is under way already, the demand waits for it: `access` has no effect then,
  // and the load becomes as urgent as `urgency` says, if it was less urgent.
  void Demand(Dataset& dataset, ExtentId extent, Waiter waiter, Access access = Access::kOnTier,
              Urgency urgency = Urgency::kSoon);

  // Call when StagerParts::upcoming may have an extent that it did not have before.
  void LookAhead() {
    if (parts_.upcoming != nullptr) queue_.LookAhead();
  }

  // Call about once a second, after GfsCalls::Look. Lends the places of requests that take too
  // long, adjusts the number of spare threads to the number of blocked ones, and resumes postponed
  // jobs whose objects answer again.
  void Look();
  // Threads, of the stager or of others, that wait for an object that does not answer.
  std::vector<std::thread::id> BlockedThreads() const;
  // Whether this node yields: it refuses rows that others ask for and that it does not have
  // (AskNext). It also refuses some extents after it has ended to yield
  // (ExtentSupplier::RefusesOthers).
  bool Yields() const { return parts_.nodes != nullptr && parts_.nodes->Yields(); }
  bool RefusesOthers(const Dataset& dataset, ExtentId extent) const {
    return supplier_.RefusesOthers(dataset, extent);
  }

  // Loads the checksums of first reads that earlier daemons have saved, if nobody has yet. Blocks
  // while the file is read.
  void OpenFirstReads(Dataset& dataset);

  GfsPieces& pieces() { return pieces_; }
  // Answers other nodes that ask for sizes and times of files.
  LocalStats& local_stats() { return local_stats_; }
  // Space on the tiers that no extent has as its home yet.
  plan::TierSpace space_left() const { return placements_.left(); }

 private:
  Stager(const StagerOptions& options, StagerParts parts);
  void Begin(Dataset& dataset, bool rebuild, std::int64_t grace_ns, Replacement replaced = {});
  // Which extents a pass is for.
  enum class Extents : std::uint8_t { kAll, kToTakeOver };
  void BeginPass(Dataset& dataset);
  void PrepareAgain(Dataset& dataset, Extents extents);
  void CloseLostTier();
  std::vector<bool> PlaceAll(Dataset& dataset);
  std::vector<bool> PlaceTakenOver(Dataset& dataset);
  void Run(io::QueueCrew& crew, io::IoQueue& queue);
  void Perform(StagingJob& job, io::IoQueue& queue);
  Status PerformLoad(const StagingJob& job, io::IoQueue& queue);
  void PerformReadAhead(io::IoQueue& queue);
  void PerformCatalogue(StagingJob& job, io::IoQueue& queue);
  void PerformTakeOver(const StagingJob& job);
  void EndPass(Dataset& dataset);
  // Ends a claimed extent that nobody will load, because the stager stops.
  void Cancel(const StagingJob& job);
  // The builder of a catalog has described an extent, which may be loaded already.
  void StageEarly(Dataset& dataset, ExtentId extent, const catalog::ExtentInfo& info,
                  std::span<const catalog::ObjectInfo> objects);

  const StagerOptions options_;
  StagerParts parts_;
  RequestGate gate_;
  GfsReader gfs_;
  StagingTiers tiers_;
  PlacementTable placements_;
  ExtentLoader loader_;
  std::optional<FirstReadSharing> sharing_;  // unset: no other node is told of first reads
  GfsPieces pieces_;
  ExtentSupplier supplier_;
  LocalStats local_stats_;
  Cataloguer cataloguer_;
  EarlyExtents early_;
  StagingQueue queue_;

  // Used by Look only: no spare reader could be started, and this was logged.
  bool lacks_spare_ = false;
  // A load in the background has found no memory since the last one that has, and this was logged.
  std::atomic<bool> lacks_memory_ = false;

  std::unique_ptr<io::QueueCrew> crew_;  // last: its threads use all of the above
};

}  // namespace forebay::stage
