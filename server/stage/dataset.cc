// An ExtentTable and what else is known of the data set, behind one mutex. A pass claims extents
// in staging order (ClaimNext), demands claim any extent (Claim), and each load ends with Report,
// which calls the waiters. Callbacks always run after the mutex was released, because they call
// back into this object.
#include "server/stage/dataset.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "server/stage/cataloguing/object_scans.h"
#include "server/stage/packed/packed_form.h"
#include "server/tier/ssd/segment_store.h"

namespace forebay::stage {

std::string_view DatasetStateName(DatasetState state) {
  switch (state) {
    case DatasetState::kIdle: return "idle";
    case DatasetState::kCataloguing: return "cataloguing";
    case DatasetState::kStaging: return "staging";
    case DatasetState::kStaged: return "staged";
    case DatasetState::kFailed: return "failed";
  }
  return "unknown";
}

plan::Footprint FootprintOf(std::uint64_t image_bytes, std::uint64_t pieces) {
  return {.ram_bytes = plan::FootprintBytes(image_bytes),
          .ssd_bytes = tier::SegmentStore::FileBytes(image_bytes, pieces)};
}

namespace {

std::uint64_t NextNumber() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace

Dataset::Dataset(DatasetOptions options, io::IoBackend& backend,
                 std::unique_ptr<io::Directory> root)
    : options_(std::move(options)),
      hash_(tier::DatasetHash(options_.source.name)),
      number_(NextNumber()),
      backend_(backend),
      root_(std::move(root)),
      version_(options_.source.name, first_reads_) {}

std::shared_ptr<const catalog::Catalog> Dataset::catalog() const {
  const MutexLock lock(mutex_);
  return catalog_;
}

void Dataset::WhenCatalogued(Waiter waiter) {
  Status outcome;
  {
    const MutexLock lock(mutex_);
    // Registered under the lock that SetCatalog, Fail and AbandonCatalogWaiters take, so the waiter
    // is called in any case.
    if (!catalog_ && !abandoned_ && progress_.state != DatasetState::kFailed) {
      catalog_waiters_.push_back(std::move(waiter));
      return;
    }
    // A data set that failed with a catalog still serves what it has, so that is no failure here.
    if (!catalog_) outcome = abandoned_ ? *abandoned_ : *first_error_;
  }
  waiter(outcome);
}

DatasetProgress Dataset::progress() const {
  const MutexLock lock(mutex_);
  DatasetProgress progress = progress_;
  progress.stored_form = StoredFormLocked();
  progress.staged_bytes += scanned_bytes_;
  return progress;
}

// The text for `forebay status`. The ratio covers the extents whose packed size is known.
std::string Dataset::StoredFormLocked() const {
  if (!catalog_) return "";
  if (catalog_->packs() != nullptr) return "packs";
  if (!form_) return form_note_.empty() ? "raw" : fmt::format("raw (compress: {})", form_note_);
  const std::string_view profile = CompressionName(form_->compression());
  if (packed_bytes_ == 0) return fmt::format("packed ({})", profile);
  return fmt::format("packed ({}, {:.1f}x)", profile,
                     static_cast<double>(packed_from_bytes_) /
                         static_cast<double>(packed_bytes_));
}

std::shared_ptr<const PackedForm> Dataset::form() const {
  const MutexLock lock(mutex_);
  return form_;
}

std::uint64_t Dataset::StoredBytes(ExtentId extent) const {
  const MutexLock lock(mutex_);
  const bool is_known =
      extent.value() < stored_bytes_.size() && stored_bytes_[extent.value()] > 0;
  // Raw extents have no entries: their images have the size that the catalog says.
  return is_known ? stored_bytes_[extent.value()] : PlannedBytesLocked(extent);
}

std::uint64_t Dataset::ExpectedStoredBytes(ExtentId extent) const {
  const MutexLock lock(mutex_);
  const bool is_known =
      extent.value() < stored_bytes_.size() && stored_bytes_[extent.value()] > 0;
  if (is_known) return stored_bytes_[extent.value()];
  const std::uint64_t raw_bytes = catalog_->extent(extent).bytes;
  if (packed_bytes_ == 0) return raw_bytes;
  // Planned bytes are the most that the image can take, so they say nothing about its ratio.
  return static_cast<std::uint64_t>(static_cast<double>(raw_bytes) *
                                    static_cast<double>(packed_bytes_) /
                                    static_cast<double>(packed_from_bytes_));
}

void Dataset::SetPlannedBytes(std::vector<std::uint64_t> planned_bytes) {
  const MutexLock lock(mutex_);
  planned_bytes_ = std::move(planned_bytes);
}

void Dataset::SetForm(std::shared_ptr<const PackedForm> form, std::string note) {
  const MutexLock lock(mutex_);
  // The keys of the extents follow from the form, and readers have them by now.
  if (catalog_) return;
  form_ = std::move(form);
  form_note_ = std::move(note);
}

std::uint64_t Dataset::bytes_without_home() const {
  const MutexLock lock(mutex_);
  // Homes were planned for the largest possible images. As real sizes become known, extents without
  // a home get one, so the sum would be too large until the pass has ended.
  if (form_ && progress_.state == DatasetState::kStaging) return 0;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < extents_.size(); ++i) {
    const ExtentId extent(i);
    if (extents_.HasHome(extent) || extents_.IsRemote(extent)) continue;
    bytes += catalog_->extent(extent).bytes;
  }
  return bytes;
}

std::uint64_t Dataset::bytes_of_others() const {
  const MutexLock lock(mutex_);
  return RemoteBytesLocked(/*of_copies=*/false);
}

std::uint64_t Dataset::copied_bytes() const {
  const MutexLock lock(mutex_);
  return RemoteBytesLocked(/*of_copies=*/true);
}

std::uint64_t Dataset::RemoteBytesLocked(bool of_copies) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < extents_.size(); ++i) {
    const ExtentId extent(i);
    if (extents_.IsRemote(extent) && extents_.IsCopy(extent) == of_copies) {
      bytes += catalog_->extent(extent).bytes;
    }
  }
  return bytes;
}

std::string Dataset::CapacityAdvice() const {
  // space_left locks the placement table, whose mutex is taken before this one. So it is called
  // without the lock.
  std::function<plan::TierSpace()> space_left;
  {
    const MutexLock lock(mutex_);
    space_left = space_left_;
  }
  // The space that this data set may use: what is free, and what its extents have already.
  plan::TierSpace space = space_left ? space_left() : plan::TierSpace();
  const std::uint64_t ssd_left = space.ssd_bytes;
  std::vector<plan::Footprint> extents;
  {
    const MutexLock lock(mutex_);
    for (std::uint32_t i = 0; i < extents_.size(); ++i) {
      const ExtentId extent(i);
      if (extents_.IsRemote(extent)) continue;
      extents.push_back(FootprintLocked(extent, PlannedBytesLocked(extent)));
      // The space that this data set's extents take now is added to the free space, because the
      // advice may place all of them anew.
      const plan::HomeTier home = extents_.home(extent);
      if (home == plan::HomeTier::kRam) space.ram_bytes += extents.back().ram_bytes;
      if (home == plan::HomeTier::kSsd) space.ssd_bytes += extents.back().ssd_bytes;
    }
  }
  const plan::CapacityNeed need = plan::NeedOf(options_.tiers, space, extents);
  if (need.ram_bytes > options_.tiers.ram.capacity_bytes || ssd_left == 0) {
    return plan::CapacityAdvice(options_.tiers, need);
  }
  // By the numbers everything fits, so the SSD must have refused extents although it has space. The
  // advice then counts on no more space there.
  space.ssd_bytes -= ssd_left;
  return plan::RefusedSsdAdvice(options_.tiers,
                                plan::NeedOf(options_.tiers, space, extents).ram_bytes);
}

Result<std::string> Dataset::ReadSmall(std::string_view path, std::uint64_t bytes_max) {
  FOREBAY_ASSIGN(const auto file, root_->Open(path, io::OpenMode::kRead));
  FOREBAY_ASSIGN(const io::FileInfo info, file->Info());
  // Checked before memory is allocated: the size comes from outside.
  if (info.bytes > bytes_max) {
    return Error(ErrorCode::kResourceExhausted,
                 "file '" + std::string(path) + "' has " + std::to_string(info.bytes) +
                     " bytes, at most " + std::to_string(bytes_max) + " are read");
  }
  FOREBAY_ASSIGN(const auto queue, backend_.CreateQueue({.depth = 1}));
  std::string text(info.bytes, '\0');
  FOREBAY_TRY(io::ReadFully(*queue, *file, 0, std::as_writable_bytes(std::span(text))));
  return text;
}

bool Dataset::BeginStagingAgain(const std::vector<bool>& left_alone, std::int64_t now_ns) {
  const MutexLock lock(mutex_);
  // A pass that is under way will stage what is missing; two passes would share one cursor.
  const bool may_begin = catalog_ && (progress_.state == DatasetState::kStaged ||
                                      progress_.state == DatasetState::kFailed);
  if (!may_begin) return false;
  // Where all extents that have a home are on a tier, no pass begins, and an earlier failure is
  // over.
  progress_.error.clear();
  if (!extents_.BeginAgain(left_alone)) {
    progress_.state = DatasetState::kStaged;
    return false;
  }
  started_ns_ = now_ns;
  started_gfs_bytes_ = progress_.gfs_bytes;
  first_error_.reset();
  progress_.state = DatasetState::kStaging;
  return true;
}

void Dataset::SetSpaceLeft(std::function<plan::TierSpace()> space_left) {
  const MutexLock lock(mutex_);
  space_left_ = std::move(space_left);
}

bool Dataset::BeginCataloguing(std::int64_t now_ns) {
  const MutexLock lock(mutex_);
  // Of two callers at once only one gets true, and starts the job.
  const bool may_begin = !catalog_ && (progress_.state == DatasetState::kIdle ||
                                       progress_.state == DatasetState::kFailed);
  if (!may_begin) return false;
  started_ns_ = now_ns;
  started_gfs_bytes_ = progress_.gfs_bytes;
  scanned_bytes_ = 0;
  first_error_.reset();
  progress_.error.clear();
  progress_.state = DatasetState::kCataloguing;
  return true;
}

void Dataset::SetCatalog(std::shared_ptr<const catalog::Catalog> catalog,
                         std::vector<tier::ExtentKey> keys, const std::vector<bool>& resident,
                         std::vector<plan::HomeTier> homes,
                         std::vector<std::uint64_t> group_keys) {
  FOREBAY_CHECK(keys.size() == catalog->extent_count() && resident.size() == keys.size() &&
                homes.size() == keys.size());
  // Sorted before the lock is taken: there may be many, and `status` waits for it.
  std::vector<std::uint32_t> by_identity;
  if (!catalog::BuildsFromMetadata(catalog->format())) {
    by_identity.resize(keys.size());
    std::iota(by_identity.begin(), by_identity.end(), 0U);
    std::ranges::sort(by_identity, {}, [&](std::uint32_t i) { return keys[i].identity; });
  }
  std::vector<Waiter> waiters;
  {
    const MutexLock lock(mutex_);
    // Readers hold references to the keys, so they never change.
    FOREBAY_CHECK(!catalog_);
    keys_ = std::move(keys);
    by_identity_ = std::move(by_identity);
    scans_.reset();
    scanned_bytes_ = 0;
    group_keys_ = std::move(group_keys);
    catalog_ = std::move(catalog);
    progress_.total_bytes = catalog_->total_bytes();
    extents_.Fill(resident, std::move(homes));
    progress_.state = DatasetState::kStaging;
    waiters.swap(catalog_waiters_);
  }
  for (const Waiter& waiter : waiters) waiter(Status());
}

void Dataset::Fail(CatalogFailure failure) {
  const Error error = failure.error;
  std::vector<Waiter> waiters;
  {
    const MutexLock lock(mutex_);
    progress_.state = DatasetState::kFailed;
    progress_.error = error.ToString();
    first_error_ = error;
    failure_ = std::move(failure);
    scans_.reset();
    waiters.swap(catalog_waiters_);
  }
  for (const Waiter& waiter : waiters) waiter(error);
}

std::optional<CatalogFailure> Dataset::failure() const {
  const MutexLock lock(mutex_);
  if (catalog_ || progress_.state != DatasetState::kFailed) return std::nullopt;
  return failure_;
}

bool Dataset::has_failed() const {
  const MutexLock lock(mutex_);
  return failure_.has_value();
}

void Dataset::SetScans(std::shared_ptr<ObjectScans> scans) {
  const MutexLock lock(mutex_);
  scans_ = std::move(scans);
}

std::shared_ptr<ObjectScans> Dataset::scans() const {
  const MutexLock lock(mutex_);
  return scans_;
}

std::optional<ExtentId> Dataset::ExtentOf(const tier::ExtentKey& key) const {
  if (by_identity_.empty()) {
    const bool is_ours = key.extent.value() < keys_.size() && keys_[key.extent.value()] == key;
    return is_ours ? std::optional(key.extent) : std::nullopt;
  }
  // Several extents may have the same identity, which is a hash, although that is very unlikely.
  auto found = std::ranges::lower_bound(by_identity_, key.identity, {},
                                        [this](std::uint32_t i) { return keys_[i].identity; });
  for (; found != by_identity_.end() && keys_[*found].identity == key.identity; ++found) {
    if (keys_[*found] == key) return ExtentId(*found);
  }
  return std::nullopt;
}

void Dataset::AbandonCatalogWaiters(const Error& error) {
  std::vector<Waiter> waiters;
  {
    const MutexLock lock(mutex_);
    abandoned_ = error;
    waiters.swap(catalog_waiters_);
  }
  for (const Waiter& waiter : waiters) waiter(error);
}

plan::HomeTier Dataset::home(ExtentId extent) const {
  const MutexLock lock(mutex_);
  return extents_.home(extent);
}

void Dataset::SetRemote(std::vector<bool> remote) {
  const MutexLock lock(mutex_);
  extents_.SetRemote(std::move(remote));
}

void Dataset::MakeLocal(ExtentId extent) {
  const MutexLock lock(mutex_);
  extents_.MakeLocal(extent);
}

bool Dataset::IsRemote(ExtentId extent) const {
  const MutexLock lock(mutex_);
  return extents_.IsRemote(extent);
}

std::uint64_t Dataset::PlannedBytes(ExtentId extent) const {
  const MutexLock lock(mutex_);
  return PlannedBytesLocked(extent);
}

std::uint64_t Dataset::PlannedBytesLocked(ExtentId extent) const {
  return extent.value() < planned_bytes_.size() ? planned_bytes_[extent.value()]
                                                : catalog_->extent(extent).bytes;
}

plan::Footprint Dataset::FootprintOf(ExtentId extent, std::uint64_t image_bytes) const {
  const MutexLock lock(mutex_);
  return FootprintLocked(extent, image_bytes);
}

plan::Footprint Dataset::FootprintLocked(ExtentId extent, std::uint64_t image_bytes) const {
  const std::uint32_t pieces =
      form_ ? form_->PieceCount(extent) : catalog_->PieceCount(extent);
  // A file on SSD carries a checksum for each piece, so the number of pieces adds to its size.
  return stage::FootprintOf(image_bytes, pieces);
}

void Dataset::SetHome(ExtentId extent, plan::HomeTier home, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  extents_.SetHome(extent, home);
  // Empty for raw extents, whose size never differs from the plan.
  if (extent.value() < planned_bytes_.size()) planned_bytes_[extent.value()] = bytes;
}

bool Dataset::HasFailed(ExtentId extent) const {
  const MutexLock lock(mutex_);
  return extents_.HasFailed(extent);
}

std::vector<ExtentId> Dataset::ExtentsWithoutHome() const {
  const MutexLock lock(mutex_);
  return extents_.WithoutHome();
}

std::optional<ExtentId> Dataset::NextWithoutHome() {
  const MutexLock lock(mutex_);
  if (progress_.state != DatasetState::kStaging) return std::nullopt;
  return extents_.NextWithoutHome();
}

bool Dataset::GiveHome(ExtentId extent, plan::HomeTier home) {
  const MutexLock lock(mutex_);
  return extents_.GiveHome(extent, home);
}

void Dataset::WantCopies(std::span<const ExtentId> extents) {
  const MutexLock lock(mutex_);
  extents_.WantCopies(extents);
}

void Dataset::UnwantCopies(std::span<const ExtentId> extents) {
  const MutexLock lock(mutex_);
  extents_.UnwantCopies(extents);
}

std::vector<ExtentId> Dataset::UnwantedCopies() const {
  const MutexLock lock(mutex_);
  return extents_.UnwantedCopies();
}

std::optional<plan::HomeTier> Dataset::DropCopy(ExtentId extent) {
  const MutexLock lock(mutex_);
  return extents_.DropCopy(extent);
}

bool Dataset::Claim(ExtentId extent, bool ahead) {
  const MutexLock lock(mutex_);
  return extents_.Claim(extent, ahead);
}

// The waiter is added in one step with the claim, and under the lock of Report, so that it never
// waits for a load that has ended.
bool Dataset::Join(ExtentId extent, Waiter waiter) {
  const MutexLock lock(mutex_);
  const bool is_claimed = extents_.Claim(extent);
  waiters_[extent].push_back(std::move(waiter));
  return is_claimed;
}

std::optional<ExtentId> Dataset::ClaimNext(std::int64_t now_ns, bool* has_ended) {
  const MutexLock lock(mutex_);
  if (has_ended != nullptr) *has_ended = false;
  if (progress_.state != DatasetState::kStaging) return std::nullopt;
  if (const std::optional<ExtentId> next = extents_.ClaimNext()) return next;
  // Nothing is left to claim. If no load is under way either, the pass ends here.
  const bool ends_here = FinishLocked(now_ns);
  if (has_ended != nullptr) *has_ended = ends_here;
  return std::nullopt;
}

bool Dataset::Report(ExtentId extent, const Status& status, std::int64_t now_ns, bool ahead) {
  std::vector<Waiter> waiters;
  bool has_ended = false;
  {
    const MutexLock lock(mutex_);
    // A lack of memory is temporary: the extent stays absent, and the pass does not fail for it.
    const bool is_short = !status.has_value() &&
                          status.error().code() == ErrorCode::kResourceExhausted;
    const bool is_tried_again = is_short || (ahead && !waiters_.contains(extent));
    if (!status.has_value() && !is_tried_again && !first_error_) first_error_ = status.error();
    extents_.EndLoad(extent, status.has_value() ? ExtentTable::Outcome::kResident
                             : is_tried_again   ? ExtentTable::Outcome::kAbsent
                                                : ExtentTable::Outcome::kFailed);
    // Taken out under the lock: a waiter that is added from now on belongs to the next load.
    if (auto found = waiters_.find(extent); found != waiters_.end()) {
      waiters = std::move(found->second);
      waiters_.erase(found);
    }
    has_ended = FinishLocked(now_ns);
  }
  for (const Waiter& waiter : waiters) waiter(status);
  return has_ended;
}

bool Dataset::FinishLocked(std::int64_t now_ns) {
  if (progress_.state != DatasetState::kStaging || !extents_.HasPassEnded()) return false;
  // One extent that failed makes the pass "failed", but all others are staged and are served.
  progress_.staging_ms = static_cast<std::uint64_t>((now_ns - started_ns_) / 1'000'000);
  progress_.staging_gfs_bytes = progress_.gfs_bytes - started_gfs_bytes_;
  if (first_error_) {
    progress_.state = DatasetState::kFailed;
    progress_.error = first_error_->ToString();
  } else {
    progress_.state = DatasetState::kStaged;
  }
  return true;
}

void Dataset::CountGfs(std::uint64_t opens, std::uint64_t reads, std::uint64_t bytes,
                       std::uint64_t stats) {
  const MutexLock lock(mutex_);
  progress_.gfs_opens += opens;
  progress_.gfs_reads += reads;
  progress_.gfs_bytes += bytes;
  progress_.gfs_stats += stats;
}

bool Dataset::CountPieces(std::uint64_t pieces, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  // The caller warns once that a data set is read in pieces.
  const bool is_first = progress_.gfs_pieces == 0;
  progress_.gfs_pieces += pieces;
  progress_.gfs_piece_bytes += bytes;
  return is_first && pieces > 0;
}

void Dataset::CountStaged(ExtentId extent, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  // Grows as needed: during a scan the number of extents is not known.
  if (counted_.size() <= extent.value()) counted_.resize(extent.value() + std::size_t{1});
  if (counted_[extent.value()]) return;
  counted_[extent.value()] = true;
  progress_.staged_bytes += bytes;
}

void Dataset::CountScanned(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  scanned_bytes_ += bytes;
}

void Dataset::CountStored(ExtentId extent, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (!form_) return;
  // From the form and not from catalog_, which is not set yet while a catalog is adopted.
  const std::uint64_t raw_bytes = form_->catalog().extent(extent).bytes;
  if (stored_bytes_.size() <= extent.value()) {
    stored_bytes_.resize(form_->catalog().extent_count());
  }
  // An extent may be stored again after an eviction: only the difference counts.
  std::uint64_t& stored = stored_bytes_[extent.value()];
  if (stored == 0) packed_from_bytes_ += raw_bytes;
  packed_bytes_ += bytes - stored;
  stored = bytes;
}

}  // namespace forebay::stage
