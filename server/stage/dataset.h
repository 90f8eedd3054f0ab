// Dataset: one configured data set as this daemon knows it: its catalog once there is one, what
// has become of each extent, and who waits for it. The table through which `stage` (which
// fills it) and `fetch` (which waits on it) meet.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/catalog/dataset_source.h"
#include "server/io/io_backend.h"
#include "server/plan/placement.h"
#include "server/stage/compression.h"
#include "server/stage/first_reads.h"
#include "server/tier/extent_key.h"

namespace forebay::stage {

class PackedForm;

// What configuration says about one data set.
struct DatasetOptions {
  catalog::DatasetSource source;
  std::string root_path;                      // absolute; everything is opened beneath it
  std::map<std::string, std::string> splits;  // "list:NAME" -> file beneath the root
  bool stage_at_start = true;
  bool persist = false;  // extents kept in RAM are written to SSD too, for the next daemon
  Compression compression = Compression::kOff;  // at staging; packs have theirs already
  plan::RamPlan ram = {};  // of this node: what advice about capacities reckons with
};

enum class DatasetState : std::uint8_t { kIdle, kCataloguing, kStaging, kStaged, kFailed };
std::string_view DatasetStateName(DatasetState state);

// What an image of `image_bytes` with `pieces` checksums takes on each tier.
plan::Footprint FootprintOf(std::uint64_t image_bytes, std::uint64_t pieces);

// Called once, with the outcome, from a stager thread or from the caller's own.
using Waiter = std::function<void(const Status&)>;

struct DatasetProgress {
  DatasetState state = DatasetState::kIdle;
  std::string error;
  std::uint64_t total_bytes = 0;   // of all extents; 0 while unknown
  std::uint64_t staged_bytes = 0;  // resident, or found resident
  std::uint64_t gfs_bytes = 0;     // read from the GFS
  std::uint64_t gfs_opens = 0;
  std::uint64_t gfs_reads = 0;
  std::uint64_t gfs_stats = 0;
  std::uint64_t gfs_pieces = 0;  // read for readers, of extents that lie on no tier
  std::uint64_t gfs_piece_bytes = 0;
  std::uint64_t staging_ms = 0;         // of the last pass
  std::uint64_t staging_gfs_bytes = 0;  // that it read from the GFS
  // How extents lie on the tiers: "raw", "packed (balanced, 2.7x)", "raw (compress: why not)",
  // "packs" where the data set is packs itself; empty while that is open.
  std::string stored_form;
};

// Thread-safe.
class Dataset {
 public:
  Dataset(DatasetOptions options, io::IoBackend& backend, std::unique_ptr<io::Directory> root);

  const std::string& name() const { return options_.source.name; }
  const DatasetOptions& options() const { return options_; }
  std::uint64_t hash() const { return hash_; }
  io::Directory& root() { return *root_; }
  FirstReads& first_reads() { return first_reads_; }
  const FirstReads& first_reads() const { return first_reads_; }

  // Null until the catalog is known.
  std::shared_ptr<const catalog::Catalog> catalog() const;
  // Calls `waiter` as soon as the catalog is known or has failed; at once where it is.
  void WhenCatalogued(Waiter waiter);
  DatasetProgress progress() const;
  // Bytes of extents that fit on no tier. 0 while extents are still being compressed: how many fit
  // is known once all have their size.
  std::uint64_t transient_bytes() const;
  // What to configure so that these have room: "set tier.ram.capacity to 160 MiB (now 96 MiB) ...".
  std::string CapacityAdvice() const;
  // A small file beneath the root (a split list), whole. Not counted as sample bytes.
  Result<std::string> ReadSmall(std::string_view path, std::uint64_t bytes_max);
  // The key of an extent; the catalog must be known.
  const tier::ExtentKey& key(ExtentId extent) const { return keys_[extent.value()]; }
  // How extents lie on the tiers; null: as they came off the GFS. Does not change once the
  // catalog is known.
  std::shared_ptr<const PackedForm> form() const;
  // Bytes of an extent's image on a tier; of what was on none yet, what is planned for it.
  std::uint64_t StoredBytes(ExtentId extent) const;

  // --- for the stager -----------------------------------------------------------------------
  enum class ExtentState : std::uint8_t { kAbsent, kLoading, kResident, kFailed };

  // From kIdle, or from kFailed without a catalog; false otherwise. A data set gets one catalog in
  // its life: changed objects are served by another Dataset (Stager::Replace).
  bool BeginCataloguing(std::int64_t now_ns);
  // Starts the pass over the extents again, from kStaged or kFailed with a catalog: those that are
  // not `resident` any more, and have a home, are claimed by it. False where nothing is missing.
  bool BeginStagingAgain(const std::vector<bool>& resident, std::int64_t now_ns);
  // Before SetCatalog, of which it decides the keys; no effect once there is one. `note`: why the
  // form is not what the configuration asks for.
  void SetForm(std::shared_ptr<const PackedForm> form, std::string note);
  // What extents of a packed form are expected to take: for so much the placer gave them homes.
  void SetPlannedBytes(std::vector<std::uint64_t> planned_bytes);
  // The same of one, which is what it really takes once it was settled.
  std::uint64_t PlannedBytes(ExtentId extent) const;
  // What an extent takes on each tier where its image has `image_bytes`.
  plan::Footprint FootprintOf(ExtentId extent, std::uint64_t image_bytes) const;
  // Publishes the catalog, where each extent belongs, and which are here already. Once in the life
  // of a data set.
  void SetCatalog(std::shared_ptr<const catalog::Catalog> catalog,
                  const std::vector<bool>& resident, std::vector<plan::Home> homes);
  // Another Dataset of this name serves the objects as they are now: this one's readers go on.
  void MarkReplaced() { is_replaced_ = true; }
  bool is_replaced() const { return is_replaced_; }
  // This one replaces `replaced`, which outlives it.
  void Succeed(Dataset& replaced) { predecessor_ = &replaced; }
  // Before an extent that was read from the GFS goes to a tier: data sets before this one that know
  // it with another checksum find bytes there from now on that are not theirs.
  void OutdatePredecessors(const tier::ExtentKey& key, std::uint64_t image_checksum);
  bool is_outdated() const { return is_outdated_; }
  void Fail(const Error& error);
  // At shutdown: whoever still waits for the catalog is told `error`.
  void AbandonCatalogWaiters(const Error& error);
  plan::Home home(ExtentId extent) const;
  // Whether a copy of it in RAM has no room of its own there.
  bool IsGuestInRam(ExtentId extent) const {
    return is_replaced_ || home(extent) != plan::Home::kRam;
  }
  // Where it is after all, once it is known that it takes `bytes`.
  void Settle(ExtentId extent, plan::Home home, std::uint64_t bytes);
  // Extents without a home, in staging order, but for those being loaded.
  std::vector<ExtentId> Homeless() const;
  // While the first pass is under way: the next extent, in staging order, that fits nowhere and
  // was not asked for. The same again, until it has a home.
  std::optional<ExtentId> NextHomeless();
  // It fits after all, and is claimed by the pass. False where a demand was faster, which finds
  // a home for it itself.
  bool GiveHome(ExtentId extent, plan::Home home);

  // Claims an extent for loading: true where it was absent (or failed), and the caller must
  // load it and report. `again` also claims one that is believed resident but was evicted.
  bool Claim(ExtentId extent, bool again);
  // The next extent in staging order that nobody has claimed, claimed; nullopt where none is.
  std::optional<ExtentId> ClaimNext(std::int64_t now_ns);
  // Outcome of a claimed load; wakes its waiters. True where it settled the first pass. Want of
  // memory (kResourceExhausted) does not fail the pass: the extent stays unstaged, for the next.
  bool Report(ExtentId extent, const Status& status, std::int64_t now_ns);
  // True once after each pass that has settled: for who says so.
  bool TakeSettled();
  // Calls `waiter` once the extent has been loaded or failed. False, without keeping it, where
  // no load is under way.
  bool AddWaiter(ExtentId extent, Waiter waiter);

  void CountGfs(std::uint64_t opens, std::uint64_t reads, std::uint64_t bytes,
                std::uint64_t stats);
  // Each extent counts once, however often it is found or read again.
  void CountStaged(ExtentId extent, std::uint64_t bytes);
  // What an extent of a packed form takes.
  void CountStored(ExtentId extent, std::uint64_t bytes);
  // Pieces of extents on no tier that were read from the GFS for a reader. True for the first call.
  bool CountPieces(std::uint64_t pieces, std::uint64_t bytes);

 private:
  std::string StoredFormLocked() const;
  // Settles the first pass once every extent has been claimed and no load is under way.
  bool FinishLocked(std::int64_t now_ns);

  const DatasetOptions options_;
  const std::uint64_t hash_;
  io::IoBackend& backend_;
  const std::unique_ptr<io::Directory> root_;
  FirstReads first_reads_;

  Dataset* predecessor_ = nullptr;
  std::atomic<bool> is_replaced_ = false;
  std::atomic<bool> is_outdated_ = false;
  mutable std::mutex mutex_;
  std::shared_ptr<const catalog::Catalog> catalog_;
  std::shared_ptr<const PackedForm> form_;
  std::string form_note_;
  std::vector<tier::ExtentKey> keys_;  // immutable once catalog_ is set
  std::vector<std::uint64_t> planned_bytes_;  // of a packed form
  std::vector<std::uint64_t> stored_bytes_;   // of a packed form; 0: not known yet
  std::uint64_t packed_bytes_ = 0, packed_from_bytes_ = 0;  // of those that are known
  std::vector<ExtentState> extents_;
  std::vector<plan::Home> homes_;
  std::unordered_map<ExtentId, std::vector<Waiter>, IdHash> waiters_;
  std::vector<Waiter> catalog_waiters_;
  DatasetProgress progress_;
  std::vector<bool> counted_;  // extents that are part of progress_.staged_bytes
  std::uint32_t next_ = 0;      // staging order: everything before it has been claimed once
  std::uint32_t next_homeless_ = 0;  // likewise: those before it have a home, or were loaded
  std::deque<ExtentId> late_;    // that got a home while the pass was under way
  std::uint64_t loading_ = 0;    // extents in state kLoading
  std::int64_t started_ns_ = 0;
  std::uint64_t started_gfs_bytes_ = 0;
  std::optional<Error> first_error_;
  bool has_settled_ = false;  // TakeSettled has not been asked since
};

}  // namespace forebay::stage
