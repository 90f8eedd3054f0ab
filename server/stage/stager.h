// Stager: moves extents from the GFS to the tiers, each byte once, while readers already use
// what has arrived. A reader's demand pulls a whole extent forward; it never starts a second
// read of one that is under way.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/io/queue_crew.h"
#include "server/stage/cataloguer.h"
#include "server/stage/dataset.h"
#include "server/stage/extent_loader.h"
#include "server/stage/gfs_pieces.h"
#include "server/stage/gfs_calls.h"
#include "server/stage/gfs_reader.h"
#include "server/stage/housing.h"
#include "server/stage/patient_backend.h"
#include "server/stage/request_gate.h"
#include "server/stage/staging_tiers.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

struct StagerOptions {
  std::uint32_t readers = 4;                         // threads; each reads one extent at a time
  std::uint64_t request_bytes = 4 * limits::kMiB;    // of one GFS read
  std::uint32_t requests = 8;                        // GFS reads in flight, over all extents
  std::uint32_t scan_depth = 8;                      // requests in flight while cataloguing
  std::int64_t hung_after_ms = 30'000;               // a request that is not answered for so long
  std::uint64_t ram_home_bytes = 0;                  // of the arena, for homes (plan::RamPlan)
  std::uint64_t ram_working_bytes = 0;               // for extents on their way to SSD; 0: no bound
  std::string catalog_path;                          // absolute; where catalogs are saved, and
                                                     // what outgrows memory while one is built
};

// What the stager works with; everything is borrowed and must outlive it.
struct StagerParts {
  io::IoBackend& backend;
  io::Directory* catalogs = nullptr;  // null: catalogs are not saved
  tier::RamArena& arena;
  tier::SegmentStore* store = nullptr;  // null: no SSD tier
  tier::ExtentCache& cache;
  io::Clock& clock;
  GfsPatience* patience = nullptr;  // of `backend`, which waits no longer once the stager stops
  GfsCalls* calls = nullptr;        // of `backend`, where it says what is under way
  tier::NextUse next_use;
};

// Thread-safe.
class Stager {
 public:
  // Starts the reader threads.
  static Result<std::unique_ptr<Stager>> Create(const StagerOptions& options, StagerParts parts);
  // Stops them: what is being read is finished, what waits is cancelled.
  ~Stager();
  // The same in two steps, for who may have to go without threads that a silent GFS holds: begins
  // to stop, and returns at once; then waits until all threads have ended. False where some have
  // not: the stager cannot be destroyed before they do.
  void BeginStop();
  bool AwaitStopped(std::chrono::milliseconds wait) { return crew_->AwaitEnd(wait); }

  // Catalogues and stages `dataset` in the background; follow Dataset::progress(). Of one that has
  // its catalog, what was evicted since, or failed, is brought again. With `rebuild`, a saved
  // catalog is ignored. No effect while work is under way.
  void Stage(Dataset& dataset, bool rebuild = false);
  // Catalogues and stages `successor`, a data set of the same name as `old`, from the objects as
  // they are now (Cataloguer::Run). Readers of `old`, which has a catalog and must stay, go on as
  // long as its objects are unchanged; beyond that they get kFailedPrecondition.
  void Replace(Dataset& old, Dataset& successor);
  // The same for a reader that is about to open a stream: once there is a catalog, its demands
  // get a moment to come before anything is read that they may not need.
  void StageForReader(Dataset& dataset);

  // What a demand asks for, where its load begins with it.
  enum class Access : std::uint8_t {
    kOnTier,            // the whole extent, where it belongs
    kInRam,             // the whole extent, in RAM: it has vanished from SSD once
    kPiecesIfHomeless,  // as kOnTier, but where it belongs on no tier as kPieces
    kPieces,            // as GfsPieces: its samples are read from the GFS one by one
  };
  // Makes `extent` resident, or readable in pieces, and calls `waiter` once it is (or has failed);
  // from this call where it already is. The catalog of `dataset` must be known.
  void Demand(Dataset& dataset, ExtentId extent, Waiter waiter, Access access = Access::kOnTier);

  // To be called about once a second, after GfsCalls::Look: requests that take too long keep no
  // others waiting, spare threads come for those that are held up, and extents that were put off go
  // on where their objects answer again.
  void Look();
  // Threads, of the stager or not, that wait for an object which does not answer.
  std::vector<std::thread::id> HeldUpThreads() const;

  GfsPieces& pieces() { return pieces_; }
  // What is left of the tiers for extents that have no home yet.
  plan::Room room_left() const { return housing_.left(); }

 private:
  // A run of whole objects that its catalog, still being built, will call an extent.
  struct EarlyRun {
    tier::ExtentKey key;
    std::uint64_t bytes = 0;
    std::string paths;  // all of them; the objects' paths lie in it
    std::vector<catalog::ObjectInfo> objects;
  };
  struct Job {
    Dataset* dataset = nullptr;
    std::optional<ExtentId> extent;   // unset: catalogue the data set
    std::unique_ptr<EarlyRun> early;  // set: read this instead
    bool rebuild = false;
    Dataset* replaced = nullptr;  // of a catalogue job: by its data set
    std::int64_t grace_ns = 0;   // of a catalogue job: for demands, before the background begins
    Access access = Access::kOnTier;
    bool background = false;
    std::shared_ptr<Rank> rank;  // when its requests are due
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

  // An extent with a home that is read in pieces, because memory was short or the tier would not
  // keep it. It is brought home as soon as there is time and memory.
  struct Stray {
    Dataset* dataset = nullptr;
    ExtentId extent;
    std::int64_t not_before_ns = 0;
  };

  Stager(const StagerOptions& options, StagerParts parts);
  void Begin(Dataset& dataset, bool rebuild, std::int64_t grace_ns, Dataset* replaced = nullptr);
  bool StageAgain(Dataset& dataset);
  void Run(io::QueueCrew& crew, io::IoQueue& queue);
  std::optional<Job> NextJob(io::QueueCrew& crew);
  std::optional<Job> NextInBackground(std::unique_lock<std::mutex>& lock);
  // `held_up` readers do nothing else, and need not be waited for.
  std::optional<Job> NextStrayLocked(std::uint32_t held_up);
  void NoteStray(const Job& job);
  void EndGraceLocked(const Dataset& dataset);
  void Perform(const Job& job, io::IoQueue& queue);
  void PerformLoad(const Job& job, io::IoQueue& queue);
  void PerformCatalogue(const Job& job, io::IoQueue& queue);
  // Whether the job needs an object that does not answer: it is put off until that does, so that
  // one such object takes as many threads as it has taken by then, and no more.
  bool PutOff(Job& job);
  bool IsHeldUp(const Job& job) const;
  void ResumePutOff();
  // A load that is under way or queued already becomes as urgent as a new demand.
  void Hurry(const Dataset& dataset, ExtentId extent);

  // While a catalog is being built from metadata, what it already describes is read: the end of
  // a pass over millions of files is not waited for.
  void StageEarly(Dataset& dataset, ExtentId extent, const catalog::ExtentInfo& info,
                  std::span<const catalog::ObjectInfo> objects);
  Status LoadEarly(Dataset& dataset, const EarlyRun& run, const Rank& rank, io::IoQueue& queue);
  void EndEarly(Dataset& dataset);

  Status Load(Dataset& dataset, ExtentId extent, const Job& job, io::IoQueue& queue);
  void BringHome(Dataset& dataset, const tier::ResidentExtent& found, const Job& job,
                 io::IoQueue& queue);
  // Extents that the data set's first pass had done with have a home now.
  void ResumeBackground(Dataset& dataset);

  const StagerOptions options_;
  StagerParts parts_;
  RequestGate gate_;
  GfsReader gfs_;
  StagingTiers tiers_;
  Housing housing_;
  ExtentLoader loader_;
  GfsPieces pieces_;
  Cataloguer cataloguer_;

  std::mutex mutex_;
  std::condition_variable work_;
  bool stopping_ = false;
  std::uint32_t cataloguing_ = 0;      // jobs of that kind under way
  std::deque<Job> catalogue_jobs_;
  std::deque<Job> demanded_;
  std::deque<Job> early_;
  std::deque<Job> put_off_;            // as many as their objects have extents, at most
  std::deque<Job> resumed_;            // of them, the background's, to be done
  std::unordered_map<const Dataset*, std::uint32_t> early_loads_;  // under way
  std::condition_variable early_over_;
  std::uint32_t background_loads_ = 0;  // under way
  std::unordered_map<LoadKey, std::shared_ptr<Rank>, LoadKeyHash> ranks_;  // queued or under way
  std::vector<Background> background_;
  std::deque<Stray> strays_;  // each extent once; those that wait longest first

  bool lacks_spare_ = false;           // and it was said

  std::unique_ptr<io::QueueCrew> crew_;  // last: joined before anything above goes
};

}  // namespace forebay::stage
