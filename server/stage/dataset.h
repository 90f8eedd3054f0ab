// Dataset: one configured data set of this daemon: its catalog, the state and the home tier of each
// extent, and the callers that wait for an extent. `stage` fills this table; `fetch` and `stream`
// read it and wait for its entries.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/catalog/catalog.h"
#include "server/catalog/dataset_source.h"
#include "server/io/io_backend.h"
#include "server/plan/capacity_need.h"
#include "server/plan/placement.h"
#include "server/stage/catalog_failure.h"
#include "server/stage/dataset_version.h"
#include "server/stage/extent_table.h"
#include "server/stage/gfs/first_reads.h"
#include "server/stage/packed/compression.h"
#include "server/tier/extent_key.h"

namespace forebay::stage {

class FirstReadSharing;
class ObjectScans;
class PackedForm;

// The configuration of one data set.
struct DatasetOptions {
  catalog::DatasetSource source;
  std::string root_path;                      // absolute; everything is opened beneath it
  std::map<std::string, std::string> splits;  // "list:NAME" -> file beneath the root
  bool stage_at_start = true;
  bool persist = false;  // extents at home in RAM are written to SSD too, for the next daemon
  // Bytes of extents of other nodes that are copied to this one, as far as its tiers have space
  // left (placement/copy_choice.h). Nodes may differ.
  std::uint64_t copy_bytes = 0;
  // Size of the ranges of a large object that one node of the job reads (extent_groups.h); 0:
  // chosen by the size of the data set. Equal on all nodes of a job.
  std::uint64_t group_bytes = 0;
  Compression compression = Compression::kOff;  // at staging; packs are compressed already
  plan::TierPlan tiers = {};  // of this node; CapacityAdvice computes with it
};

enum class DatasetState : std::uint8_t { kIdle, kCataloguing, kStaging, kStaged, kFailed };
std::string_view DatasetStateName(DatasetState state);

// Space that an image of `image_bytes` with `pieces` checksums takes on each tier.
plan::Footprint FootprintOf(std::uint64_t image_bytes, std::uint64_t pieces);

// Called once, with the outcome, on a thread of the stager or on the thread that registers it.
using Waiter = std::function<void(const Status&)>;

struct DatasetProgress {
  DatasetState state = DatasetState::kIdle;
  std::string error;
  std::uint64_t total_bytes = 0;   // of all extents; 0 while unknown
  std::uint64_t staged_bytes = 0;  // of extents that were ever on a tier
  std::uint64_t gfs_bytes = 0;     // read from the GFS
  std::uint64_t gfs_opens = 0;
  std::uint64_t gfs_reads = 0;
  std::uint64_t gfs_stats = 0;
  std::uint64_t gfs_pieces = 0;  // pieces of extents on no tier, read for readers
  std::uint64_t gfs_piece_bytes = 0;
  std::uint64_t staging_ms = 0;         // of the last pass
  std::uint64_t staging_gfs_bytes = 0;  // read from the GFS by the last pass
  // How extents are stored on the tiers: "raw", "packed (balanced, 2.7x)", "raw (compress: why
  // not)", or "packs" if the data set consists of packs; empty while it has no catalog.
  std::string stored_form;
};

// Thread-safe.
class Dataset {
 public:
  Dataset(DatasetOptions options, io::IoBackend& backend, std::unique_ptr<io::Directory> root);

  const std::string& name() const { return options_.source.name; }
  const DatasetOptions& options() const { return options_; }
  std::uint64_t hash() const { return hash_; }
  // Another one for each Dataset of this process, also for those of one name.
  std::uint64_t number() const { return number_; }
  io::Directory& root() { return *root_; }
  FirstReads& first_reads() { return first_reads_; }
  const FirstReads& first_reads() const { return first_reads_; }
  // Keeps this data set apart from those that it replaced, and from those that replaced it. The
  // four functions after it forward to it.
  DatasetVersion& version() { return version_; }
  bool is_replaced() const { return version_.is_replaced(); }
  bool is_outdated() const { return version_.is_outdated(); }
  Error Outdated() const { return version_.Outdated(); }
  std::uint32_t rebuilds() const { return version_.rebuilds(); }

  // Null until the data set is catalogued.
  std::shared_ptr<const catalog::Catalog> catalog() const;
  // Calls `waiter` when cataloguing has ended or failed; within this call if it has already.
  void WhenCatalogued(Waiter waiter);
  DatasetProgress progress() const;
  // Bytes of extents that have no home tier, because they fit on none. 0 while extents are still
  // being compressed, because their sizes are not known yet.
  std::uint64_t bytes_without_home() const;
  // Bytes of extents that other nodes of the job keep (IsRemote), without those that are copied to
  // this node; and the bytes of those copies, on a tier already or not.
  std::uint64_t bytes_of_others() const;
  std::uint64_t copied_bytes() const;
  // Says which capacity to configure so that all extents get a home (plan::CapacityAdvice).
  std::string CapacityAdvice() const;
  // Reads a small file beneath the root (a split list). Its bytes are not counted in progress().
  Result<std::string> ReadSmall(std::string_view path, std::uint64_t bytes_max);
  // The key of an extent; the catalog must be known.
  const tier::ExtentKey& key(ExtentId extent) const { return keys_[extent.value()]; }
  // The extent that has this key; nullopt if none has, for example because its objects have changed
  // since. The catalog must be known.
  std::optional<ExtentId> ExtentOf(const tier::ExtentKey& key) const;
  // The key of the group to which an extent belongs (extent_groups.h), for plan::Membership; the
  // catalog must be known. Without a meaning in a job of one node.
  std::uint64_t group_key(ExtentId extent) const {
    return group_keys_.empty() ? 0 : group_keys_[extent.value()];
  }
  // How extents are stored on the tiers; null: uncompressed. Does not change once the catalog is
  // known.
  std::shared_ptr<const PackedForm> form() const;
  // Bytes of an extent's image on a tier; the planned bytes if it was never on one.
  std::uint64_t StoredBytes(ExtentId extent) const;
  // Bytes of an extent's image on a tier. For an extent that was never on a tier of this node, an
  // estimate: the extent is taken to have the ratio of those that were compressed here.
  std::uint64_t ExpectedStoredBytes(ExtentId extent) const;

  // --- for the stager -----------------------------------------------------------------------
  // `space_left` returns the space that no extent has reserved. CapacityAdvice calls it without
  // holding a lock of this data set. It must not call this data set.
  void SetSpaceLeft(std::function<plan::TierSpace()> space_left);
  // What gives checksums of first reads to other nodes of the job, borrowed; null: there are none.
  // Call before cataloguing begins.
  void SetSharing(FirstReadSharing* sharing) { sharing_ = sharing; }
  FirstReadSharing* sharing() const { return sharing_; }

  // Enters kCataloguing from kIdle, or from kFailed without a catalog; false otherwise. A Dataset
  // gets one catalog in its life: changed objects are served by another Dataset (Stager::Replace).
  bool BeginCataloguing(std::int64_t now_ns);
  // Starts another pass, from kStaged or kFailed with a catalog. It claims the extents that have a
  // home and are not `left_alone`. False if there are none.
  bool BeginStagingAgain(const std::vector<bool>& left_alone, std::int64_t now_ns);
  // Whether a pass is being prepared, or waits for that. Its state is not kStaging until it begins.
  void SetPreparing(bool is_preparing) { is_preparing_ = is_preparing; }
  bool is_preparing() const { return is_preparing_; }
  // How many passes were prepared to take over from nodes that leave.
  void NoteTakeOver() { ++take_overs_; }
  std::uint32_t take_overs() const { return take_overs_; }
  // Whether the last pass that was prepared was for that. Set before it begins.
  void SetPassTakesOver(bool takes_over) { pass_takes_over_ = takes_over; }
  bool pass_takes_over() const { return pass_takes_over_; }
  // Call before SetCatalog, because the form decides the extents' keys; no effect afterwards.
  // `note`: why the form is not what the configuration asks for.
  void SetForm(std::shared_ptr<const PackedForm> form, std::string note);
  // Expected image sizes of extents in a packed form; their homes have space for so many bytes.
  void SetPlannedBytes(std::vector<std::uint64_t> planned_bytes);
  // The planned bytes of one extent; its real size after SetHome.
  std::uint64_t PlannedBytes(ExtentId extent) const;
  // Space that an extent takes on each tier if its image has `image_bytes`.
  plan::Footprint FootprintOf(ExtentId extent, std::uint64_t image_bytes) const;
  // Publishes the catalog, the keys under which extents are stored (of the form, if there is one),
  // which extents are on a tier already, the home of each, and, in a job of several nodes, the keys
  // of their groups. Once in the life of a Dataset.
  void SetCatalog(std::shared_ptr<const catalog::Catalog> catalog,
                  std::vector<tier::ExtentKey> keys, const std::vector<bool>& resident,
                  std::vector<plan::HomeTier> homes, std::vector<std::uint64_t> group_keys = {});
  // Cataloguing has failed: sets the state and calls everybody who waits for the catalog.
  void Fail(CatalogFailure failure);
  // Why cataloguing has failed, as long as there is no catalog.
  std::optional<CatalogFailure> failure() const;
  // Whether cataloguing has failed before, also if it is tried again now.
  bool has_failed() const;
  // The objects of a data set that is scanned are being scanned: until it is catalogued or that has
  // failed, `scans` has what was found so far.
  void SetScans(std::shared_ptr<ObjectScans> scans);
  std::shared_ptr<ObjectScans> scans() const;
  // At shutdown: calls everybody who waits for the catalog with `error`, and from now on everybody
  // who comes before there is one.
  void AbandonCatalogWaiters(const Error& error);
  plan::HomeTier home(ExtentId extent) const;
  // Sets which extents are remote: another node of the job reads them from the GFS and keeps them.
  // They do not count as extents without a home. A remote extent that SetCatalog gives a home is a
  // copy, which a pass stages after all local extents. A local extent that has a home here when
  // this is called stays local. Call before SetCatalog, or between passes; without a call, all
  // extents are local.
  void SetRemote(std::vector<bool> remote);
  // This node has read the extent from the GFS in place of its owner, so it is local from now on.
  void MakeLocal(ExtentId extent);
  bool IsRemote(ExtentId extent) const;
  // Whether a copy of the extent in RAM has no space reserved there.
  bool IsGuestInRam(ExtentId extent) const {
    return is_replaced() || home(extent) != plan::HomeTier::kRam;
  }
  // Whether the last load of the extent has failed.
  bool HasFailed(ExtentId extent) const;
  // Sets the home of an extent whose image is now known to have `bytes`.
  void SetHome(ExtentId extent, plan::HomeTier home, std::uint64_t bytes);
  // Local extents without a home, in staging order, except those that are being loaded.
  std::vector<ExtentId> ExtentsWithoutHome() const;
  // During a pass: the next local extent, in staging order, that has no home and was not demanded.
  // Returns the same extent again until it has a home. Otherwise nullopt.
  std::optional<ExtentId> NextWithoutHome();
  // Gives the extent a home, so that the pass claims it. False if a demand has claimed it first;
  // that load finds a home for it.
  bool GiveHome(ExtentId extent, plan::HomeTier home);

  // An open stream reads these extents more than others, until UnwantCopies. A copy of one of them
  // stays as long as any stream wants it.
  void WantCopies(std::span<const ExtentId> extents);
  void UnwantCopies(std::span<const ExtentId> extents);
  std::vector<ExtentId> UnwantedCopies() const;
  // Takes the home of a copy away and returns it. Nullopt if the extent is being loaded, or is no
  // copy any more.
  std::optional<plan::HomeTier> DropCopy(ExtentId extent);

  // Claims an extent for loading: true unless a load of it is under way; the caller must then load
  // it and Report. It may be resident: it may have been evicted since. `ahead`: it is read ahead of
  // need. If it has no home, no pass waits for it.
  bool Claim(ExtentId extent, bool ahead = false);
  // Calls `waiter` when the load of the extent has ended or failed. True: this call has claimed the
  // extent. False: a load was under way, and the waiter has joined it.
  bool Join(ExtentId extent, Waiter waiter);
  // Claims the next extent in staging order that nobody has claimed. Nullopt if there is none; then
  // `has_ended`, if given, is set to whether the pass has ended with this call.
  std::optional<ExtentId> ClaimNext(std::int64_t now_ns, bool* has_ended = nullptr);
  // Reports the outcome of a claimed load; calls its waiters. True if the pass has ended with it.
  // A lack of memory (kResourceExhausted) does not fail the pass: the extent stays unstaged. Nor
  // does an error of a load that was made `ahead` of need, if nobody waits for it by now.
  bool Report(ExtentId extent, const Status& status, std::int64_t now_ns, bool ahead = false);

  void CountGfs(std::uint64_t opens, std::uint64_t reads, std::uint64_t bytes,
                std::uint64_t stats);
  // Counts each extent once, however often it is found or read again.
  void CountStaged(ExtentId extent, std::uint64_t bytes);
  // Counts an extent that is staged while its object is scanned and its number is not known yet.
  // SetCatalog forgets these: from then on, extents are counted by number.
  void CountScanned(std::uint64_t bytes);
  // The image size of an extent in a packed form.
  void CountStored(ExtentId extent, std::uint64_t bytes);
  // Counts pieces of extents on no tier that were read from the GFS. True for the first call.
  bool CountPieces(std::uint64_t pieces, std::uint64_t bytes);

 private:
  std::string StoredFormLocked() const FOREBAY_REQUIRES(mutex_);
  std::uint64_t PlannedBytesLocked(ExtentId extent) const FOREBAY_REQUIRES(mutex_);
  plan::Footprint FootprintLocked(ExtentId extent, std::uint64_t image_bytes) const
      FOREBAY_REQUIRES(mutex_);
  std::uint64_t RemoteBytesLocked(bool of_copies) const FOREBAY_REQUIRES(mutex_);
  // Ends the pass if every extent has been claimed and no load is under way.
  bool FinishLocked(std::int64_t now_ns) FOREBAY_REQUIRES(mutex_);

  const DatasetOptions options_;
  const std::uint64_t hash_;
  const std::uint64_t number_;
  io::IoBackend& backend_;
  const std::unique_ptr<io::Directory> root_;
  FirstReads first_reads_;
  DatasetVersion version_;

  std::atomic<FirstReadSharing*> sharing_ = nullptr;
  std::atomic<bool> is_preparing_ = false;
  std::atomic<std::uint32_t> take_overs_ = 0;
  std::atomic<bool> pass_takes_over_ = false;
  mutable Mutex mutex_;
  std::function<plan::TierSpace()> space_left_ FOREBAY_GUARDED_BY(mutex_);
  std::shared_ptr<const catalog::Catalog> catalog_ FOREBAY_GUARDED_BY(mutex_);
  std::shared_ptr<const PackedForm> form_ FOREBAY_GUARDED_BY(mutex_);
  std::string form_note_ FOREBAY_GUARDED_BY(mutex_);
  // These are immutable once catalog_ is set, so they are read without mutex_.
  std::vector<tier::ExtentKey> keys_;
  // Of a format that is scanned: the extents in the order of the identities in their keys.
  std::vector<std::uint32_t> by_identity_;
  std::vector<std::uint64_t> group_keys_;
  std::vector<std::uint64_t> planned_bytes_ FOREBAY_GUARDED_BY(mutex_);  // of a packed form
  // Of a packed form; 0: not known yet.
  std::vector<std::uint64_t> stored_bytes_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t packed_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;  // of those that are known
  std::uint64_t packed_from_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;  // raw bytes of those
  ExtentTable extents_ FOREBAY_GUARDED_BY(mutex_);
  std::unordered_map<ExtentId, std::vector<Waiter>, IdHash> waiters_ FOREBAY_GUARDED_BY(mutex_);
  std::vector<Waiter> catalog_waiters_ FOREBAY_GUARDED_BY(mutex_);
  std::optional<Error> abandoned_ FOREBAY_GUARDED_BY(mutex_);  // AbandonCatalogWaiters was called
  DatasetProgress progress_ FOREBAY_GUARDED_BY(mutex_);
  std::shared_ptr<ObjectScans> scans_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t scanned_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;  // of CountScanned
  // Extents that are part of progress_.staged_bytes.
  std::vector<bool> counted_ FOREBAY_GUARDED_BY(mutex_);
  std::int64_t started_ns_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t started_gfs_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::optional<Error> first_error_ FOREBAY_GUARDED_BY(mutex_);
  std::optional<CatalogFailure> failure_ FOREBAY_GUARDED_BY(mutex_);  // of the last call of Fail
};

}  // namespace forebay::stage
