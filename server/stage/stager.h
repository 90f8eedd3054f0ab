// Stager: moves extents from the GFS to the tiers, each byte once, while readers already use
// what has arrived. A reader's demand pulls a whole extent forward; it never starts a second
// read of one that is under way.
#pragma once

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
#include "server/plan/packing.h"
#include "server/plan/placement.h"
#include "server/stage/dataset.h"
#include "server/stage/gfs_reader.h"
#include "server/stage/packed_extent.h"
#include "server/stage/packed_form.h"
#include "server/stage/request_gate.h"
#include "server/tier/extent_cache.h"

namespace forebay::stage {

struct StagerOptions {
  std::uint32_t readers = 4;                         // threads; each reads one extent at a time
  std::uint64_t request_bytes = 4 * limits::kMiB;    // of one GFS read
  std::uint32_t requests = 8;                        // GFS reads in flight, over all extents
  std::uint32_t scan_depth = 8;                      // requests in flight while cataloguing
  std::uint64_t ram_reserve_bytes = 0;               // of the arena, kept for staging buffers
  // What the plan reckons with where a data set asks for compression.
  std::uint32_t decode_cores = 1;                    // threads that put batches together
  std::uint64_t decoded_cache_bytes = 0;
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
  tier::NextUse next_use;
};

// Thread-safe.
class Stager {
 public:
  // Starts the reader threads.
  static Result<std::unique_ptr<Stager>> Create(const StagerOptions& options, StagerParts parts);
  // Stops them: what is being read is finished, what waits is cancelled.
  ~Stager();

  // Catalogues and stages `dataset` in the background; follow Dataset::progress(). With
  // `rebuild`, a saved catalog is ignored. No effect while that is under way or done.
  void Stage(Dataset& dataset, bool rebuild = false) { Begin(dataset, rebuild, 0); }
  // The same for a reader that is about to open a stream: once there is a catalog, its demands
  // get a moment to come before anything is read that they may not need.
  void StageForReader(Dataset& dataset);

  // Makes `extent` resident and calls `waiter` once it is (or has failed); from this call where
  // it already is. The catalog of `dataset` must be known. With `in_ram`, a load that begins
  // here goes to RAM: for who has seen the extent vanish from SSD once.
  void Demand(Dataset& dataset, ExtentId extent, Waiter waiter, bool in_ram = false);

  // What the tiers have for extents that have no home yet.
  plan::Room room_left();
  // Keeps extents from being planned into `bytes` of RAM, which are wanted for something else;
  // false where what is planned already leaves less.
  bool TakeRam(std::uint64_t bytes);
  void GiveRam(std::uint64_t bytes);

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
    std::int64_t grace_ns = 0;   // of a catalogue job: for demands, before the background begins
    bool in_ram = false;
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

  Stager(const StagerOptions& options, StagerParts parts);
  void Begin(Dataset& dataset, bool rebuild, std::int64_t grace_ns);
  void Run(io::IoQueue& queue);
  std::optional<Job> NextJob();
  std::optional<Job> NextInBackground(std::unique_lock<std::mutex>& lock);
  void EndGraceLocked(const Dataset& dataset);
  void Perform(const Job& job, io::IoQueue& queue);
  void PerformLoad(const Job& job, io::IoQueue& queue);
  void PerformCatalogue(const Job& job, io::IoQueue& queue);
  // A load that is under way or queued already becomes as urgent as a new demand.
  void Hurry(const Dataset& dataset, ExtentId extent);

  // Finds, builds or scans a catalog. The scan stages as it goes.
  Status Catalogue(Dataset& dataset, bool rebuild, io::IoQueue& queue);
  void Save(Dataset& dataset, const catalog::Catalog& catalog);
  // Where an extent belongs. What is on a tier already takes no room there a second time.
  plan::Home HomeOf(std::optional<tier::TierKind> found, std::uint64_t bytes);
  Status Adopt(Dataset& dataset, std::shared_ptr<const catalog::Catalog> catalog,
               io::IoQueue& queue);
  Status Scan(Dataset& dataset, io::IoQueue& queue);
  // While a catalog is being built from metadata, what it already describes is read: the end of
  // a pass over millions of files is not waited for.
  void StageEarly(Dataset& dataset, ExtentId extent, const catalog::ExtentInfo& info,
                  std::span<const catalog::ObjectInfo> objects);
  Status LoadEarly(Dataset& dataset, const EarlyRun& run, const Rank& rank, io::IoQueue& queue);
  void EndEarly(Dataset& dataset);

  // What is published: an extent's image and its checksums.
  struct Image {
    tier::ArenaBlock block;
    tier::ExtentChecksums checksums;
  };
  // An extent that an earlier daemon stored, or the trial.
  struct Found {
    std::uint64_t image_bytes = 0;  // 0: it is on no tier
    tier::TierKind tier = tier::TierKind::kRam;
  };
  // Decides whether the data set is compressed, once, and says so to it. Some extents may be on
  // a tier afterwards.
  void ChooseForm(Dataset& dataset, const std::shared_ptr<const catalog::Catalog>& catalog,
                  io::IoQueue& queue);
  // An extent that was read and encoded before the form is decided.
  struct Trial {
    ExtentId extent;
    tier::ArenaBlock raw;
    PackedExtent packed;
    std::uint64_t gfs_ns = 0;
  };
  // Extents of a form that are on a tier already.
  struct FoundForm {
    std::vector<ExtentId> extents;
    std::uint64_t raw_bytes = 0;  // of them as they came off the GFS
    std::uint64_t ssd_bytes = 0;  // that they take on SSD
  };
  FoundForm FindForm(const catalog::Catalog& catalog, const PackedForm* form);
  // Tries some of `found`, which lie on a tier as they came off the GFS; of the GFS where there
  // are none.
  std::vector<Trial> TryForm(Dataset& dataset, const PackedForm& form,
                             std::span<const ExtentId> found, io::IoQueue& queue);
  Status ReadTrial(Dataset& dataset, const catalog::Catalog& catalog, io::IoQueue& queue,
                   Trial& trial);
  Result<Trial> TryExtent(Dataset& dataset, const PackedForm& form, ExtentId extent,
                          io::IoQueue& queue);
  plan::PackingAdvice Advise(const Dataset& dataset, const PackedForm& form,
                             std::span<const Trial> trials, std::uint64_t found_ssd_bytes);
  // Stores what was tried, in the form that was decided.
  Status Keep(Dataset& dataset, const catalog::Catalog& catalog, const PackedForm* form,
              Trial trial, io::IoQueue& queue);
  // What absent extents will take, by those of the same part that were found.
  static std::vector<std::uint64_t> PlanBytes(const catalog::Catalog& catalog,
                                              const PackedForm* form,
                                              std::span<const Found> found);
  // The image of an extent as it will be stored, from what came off the GFS.
  Result<Image> MakeImage(const catalog::Catalog& catalog, const PackedForm* form,
                          const tier::ExtentKey& key, tier::ArenaBlock raw);
  Result<Image> PlaceImage(const tier::ExtentKey& key, const PackedExtent& packed);
  Result<PackedExtent> Pack(const PackedForm& form, const tier::ExtentKey& key,
                            std::span<const std::byte> raw, std::uint32_t decode_rounds = 1);
  // Memory for what is encoded is bounded: waits for others' to end.
  void BeginPacking(std::uint64_t raw_bytes);
  void EndPacking(std::uint64_t raw_bytes);
  // Where an extent goes whose size was only planned until now.
  plan::Home Settle(Dataset& dataset, ExtentId extent, plan::Home home, std::uint64_t bytes);
  bool HouseLocked(Dataset& dataset);

  Status Load(Dataset& dataset, ExtentId extent, const Job& job, io::IoQueue& queue);
  Status Promote(Dataset& dataset, const tier::ExtentRef& found, io::IoQueue& queue);
  // A copy of what is on a tier. From SSD it is verified: kDataLoss.
  Result<tier::ArenaBlock> ReadResident(const tier::ResidentExtent& extent, io::IoQueue& queue);
  Status Publish(Dataset& dataset, const tier::ExtentKey& key, plan::Home home,
                 tier::ArenaBlock block, tier::ExtentChecksums checksums, io::IoQueue& queue);
  Result<tier::ArenaBlock> AllocateWithPatience(std::uint64_t bytes, std::uint64_t next_use);

  const StagerOptions options_;
  StagerParts parts_;
  RequestGate gate_;
  GfsReader gfs_;

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable packed_;     // for who waits for others' packing to end
  std::uint64_t packing_bytes_ = 0;    // raw ones of extents that are being packed
  std::condition_variable stopped_;    // for who waits for memory: work is not theirs to take
  bool stopping_ = false;
  std::uint32_t cataloguing_ = 0;      // jobs of that kind under way
  std::deque<Job> catalogue_jobs_;
  std::deque<Job> demanded_;
  std::deque<Job> early_;
  std::unordered_map<const Dataset*, std::uint32_t> early_loads_;  // under way
  std::condition_variable early_over_;
  std::uint32_t background_loads_ = 0;  // under way
  std::uint64_t next_rank_ = 0;
  std::unordered_map<LoadKey, std::shared_ptr<Rank>, LoadKeyHash> ranks_;  // queued or under way
  std::vector<Background> background_;
  plan::Placer placer_;                // guarded by mutex_

  std::vector<std::unique_ptr<io::IoQueue>> queues_;
  std::vector<std::jthread> threads_;  // last: joined before anything above goes
};

}  // namespace forebay::stage
