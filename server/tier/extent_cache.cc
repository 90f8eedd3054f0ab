#include "server/tier/extent_cache.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/log.h"
#include "server/tier/eviction_ledger.h"
#include "server/tier/ram/compaction.h"
#include "server/tier/ssd/segment_format.h"

namespace forebay::tier {
namespace {

constexpr std::int64_t kErrorWindowNs = 60'000'000'000;
constexpr std::uint64_t kEvictsNobody = ~std::uint64_t{0};  // as a next use
constexpr std::uint64_t kPageBytes = limits::kIoAlignmentBytes;

std::uint64_t Permille(std::uint64_t bytes, std::uint32_t permille) {
  return bytes / 1000 * permille + bytes % 1000 * permille / 1000;
}

// Of a block, among those of all regions: unique, in no order that means anything.
std::uint64_t Address(RegionId region, std::uint64_t offset) {
  return (std::uint64_t{region.value()} << 48) | offset;
}

bool Fits(std::uint64_t used, std::uint64_t wanted, std::uint64_t limit) {
  return used <= limit && wanted <= limit - used;
}

class TwoTierCache final : public ExtentCache {
 public:
  TwoTierCache(RamArena& arena, SegmentStore* store, const Options& options, NextUse next_use);

  ExtentRef Find(const ExtentKey& key) override;
  void Find(std::span<const ExtentKey> keys, std::span<ExtentRef> results) override;
  ExtentRef FindOn(const ExtentKey& key, TierKind tier) override;
  Result<ArenaBlock> AllocateRam(std::uint64_t bytes, std::uint64_t next_use, io::IoQueue* queue,
                                 bool spares_homes) override;
  Result<ExtentRef> PublishRam(const ExtentKey& key, ArenaBlock block, ExtentChecksums checksums,
                               bool is_guest) override;
  void MakeAtHome(const ExtentKey& key, TierKind tier) override;
  Status PublishSsd(io::IoQueue& queue, const ExtentKey& key, std::span<std::byte> image,
                    const ExtentChecksums& checksums, std::uint64_t next_use,
                    bool is_guest) override;
  Status Evict(const ExtentKey& key, std::optional<TierKind> tier) override;
  void ReportBadSegment(const ExtentKey& key, const Error& found, std::int64_t now_ns) override;
  void ReportBadRam(const ExtentKey& key) override;
  std::vector<ExtentKey> Resident(TierKind tier) const override;
  TierStats stats(TierKind tier) const override;

 private:
  struct Entry {
    std::shared_ptr<ResidentExtent> ram;
    bool is_guest_in_ram = false;  // its home is not there
    bool is_on_ssd = false;
    bool is_guest_on_ssd = false;
    std::weak_ptr<const ResidentExtent> ssd;  // what readers hold of it; made on demand
  };
  struct Counters {
    std::uint64_t hits = 0;
    std::uint64_t evictions = 0;
    std::uint64_t extents = 0;
    std::uint64_t bad = 0;
  };
  // How little is lost with a copy that is needed as late as another.
  enum class Worth : std::uint8_t { kCopyOfHome, kGuest, kAtHome };
  struct Candidate {
    std::uint64_t next_use = 0;
    Worth worth = Worth::kAtHome;
    ExtentKey key;
  };
  using Index = std::unordered_map<ExtentKey, Entry, ExtentKeyHash>;

  ExtentRef FindResident(const ExtentKey& key, bool& must_open) FOREBAY_REQUIRES(mutex_);
  ExtentRef OpenFromSsd(const ExtentKey& key, std::uint64_t hits)
      FOREBAY_EXCLUDES(mutex_);
  std::vector<Candidate> RamCandidates(std::uint64_t next_use, bool spares_homes) const
      FOREBAY_REQUIRES(mutex_);
  std::vector<Candidate> SsdCandidates(std::uint64_t next_use) const FOREBAY_REQUIRES(mutex_);
  bool HasRunLocked(std::uint64_t wanted) FOREBAY_REQUIRES(mutex_);
  bool CanSpillLocked(const ResidentExtent& extent) const FOREBAY_REQUIRES(mutex_);
  void EvictFromRam(const Candidate& candidate, io::IoQueue* queue)
      FOREBAY_EXCLUDES(mutex_);
  void DropEvicted(Index::iterator found) FOREBAY_REQUIRES(mutex_);
  static void SortFarthestFirst(std::vector<Candidate>& candidates);
  void DropRam(Index::iterator found, EvictionCause cause) FOREBAY_REQUIRES(mutex_);
  bool DropSsd(Index::iterator found, EvictionCause cause) FOREBAY_REQUIRES(mutex_);
  void CountInLedger(const ExtentKey& key, const Entry& left, TierKind tier, EvictionCause cause);
  void EraseIfEmpty(Index::iterator found) FOREBAY_REQUIRES(mutex_);
  Status MakeSsdRoom(std::uint64_t file_bytes, std::uint64_t next_use, bool for_guest)
      FOREBAY_EXCLUDES(mutex_);
  Status RemoveFromStore(const ExtentKey& key) FOREBAY_EXCLUDES(mutex_);
  void CountDeviceError(const ExtentKey& key, std::int64_t now_ns) FOREBAY_REQUIRES(mutex_);
  void CountBadSegment(const ExtentKey& key, const Error& found) FOREBAY_REQUIRES(mutex_);
  Counters& counters(TierKind tier) FOREBAY_REQUIRES(mutex_) {
    return counters_[static_cast<std::size_t>(tier)];
  }

  RamArena& arena_;
  SegmentStore* const store_;
  const Options options_;
  const io::SteadyClock system_clock_;
  const io::Clock& clock_;
  const NextUse next_use_;

  // Never held during I/O. While it is held, the cache calls `next_use_`, the eviction ledger, the
  // arena, and those functions of the store that do no I/O; each may lock a mutex of its own, and
  // none may call the cache.
  mutable Mutex mutex_;
  Index index_ FOREBAY_GUARDED_BY(mutex_);
  // Dropped extents whose files are not removed yet; extents that are being written to SSD.
  std::unordered_set<ExtentKey, ExtentKeyHash> removing_ FOREBAY_GUARDED_BY(mutex_);
  std::unordered_set<ExtentKey, ExtentKeyHash> writing_ FOREBAY_GUARDED_BY(mutex_);
  // Writes of guests to SSD.
  std::uint64_t guests_begun_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t guests_ended_ FOREBAY_GUARDED_BY(mutex_) = 0;
  CondVar ssd_changed_;  // removing_, writing_ or guests_ended_
  Counters counters_[2] FOREBAY_GUARDED_BY(mutex_);
  struct DeviceError {
    std::int64_t at_ns = 0;
    ExtentKey key;
  };
  // The last error of each extent, oldest first.
  std::deque<DeviceError> last_device_errors_ FOREBAY_GUARDED_BY(mutex_);
  bool is_ssd_retired_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::uint64_t device_errors_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t spilled_ FOREBAY_GUARDED_BY(mutex_) = 0;  // of ExtentCache::TierStats
  std::uint64_t moved_ FOREBAY_GUARDED_BY(mutex_) = 0;
};

TwoTierCache::TwoTierCache(RamArena& arena, SegmentStore* store, const Options& options,
                           NextUse next_use)
    : arena_(arena),
      store_(store),
      options_(options),
      clock_(options.clock != nullptr ? *options.clock : system_clock_),
      next_use_(std::move(next_use)) {
  FOREBAY_CHECK(options.watermark_low_permille <= options.watermark_high_permille);
  FOREBAY_CHECK(options.watermark_high_permille <= 1000);
  if (store_ == nullptr) return;
  for (const ExtentKey& key : store_->Keys()) {
    Entry& entry = index_[key];
    entry.is_on_ssd = true;
    entry.is_guest_on_ssd = true;  // until somebody says that it is at home there
    ++counters(TierKind::kSsd).extents;
  }
}

// The extent if it can be had without I/O. Sets `must_open` where it lies on SSD and no reader
// holds it.
ExtentRef TwoTierCache::FindResident(const ExtentKey& key, bool& must_open) {
  must_open = false;
  const auto found = index_.find(key);
  if (found == index_.end()) return nullptr;
  const Entry& entry = found->second;
  if (entry.ram) {
    ++counters(TierKind::kRam).hits;
    return entry.ram;
  }
  if (!entry.is_on_ssd) return nullptr;
  ExtentRef held = entry.ssd.lock();
  must_open = held == nullptr;
  if (held) ++counters(TierKind::kSsd).hits;
  return held;
}

// `hits` is what a success adds to the count.
ExtentRef TwoTierCache::OpenFromSsd(const ExtentKey& key, std::uint64_t hits) {
  const Result<std::shared_ptr<const Segment>> segment = store_->Get(key);
  MutexLock lock(mutex_);
  const auto found = index_.find(key);
  if (!segment.has_value()) {
    // The store has removed what it found damaged. What it could not open for want of a
    // descriptor, say, stays resident, and this reader has a miss.
    const ErrorCode code = segment.error().code();
    const bool was_gone = code == ErrorCode::kDataLoss || code == ErrorCode::kNotFound ||
                          code == ErrorCode::kFailedPrecondition;
    // Somebody may have evicted it and another published it anew in the meantime.
    const bool is_gone = was_gone && !store_->Contains(key);
    const bool is_device = segment.error().system_errno() != 0;
    if (code == ErrorCode::kDataLoss && is_device) CountDeviceError(key, clock_.NowNs());
    if (is_gone && found != index_.end() && DropSsd(found, EvictionCause::kDamaged)) {
      if (code == ErrorCode::kDataLoss) CountBadSegment(key, segment.error());
      EraseIfEmpty(found);
    }
    return nullptr;
  }
  if (found == index_.end() || !found->second.is_on_ssd) return nullptr;
  counters(TierKind::kSsd).hits += hits;
  Entry& entry = found->second;
  if (ExtentRef held = entry.ssd.lock(); held && held->segment == *segment) return held;
  auto extent = std::make_shared<ResidentExtent>();
  extent->key = key;
  extent->tier = TierKind::kSsd;
  extent->image_bytes = (*segment)->image_bytes;
  extent->segment = *segment;
  entry.ssd = extent;
  return extent;
}

ExtentRef TwoTierCache::Find(const ExtentKey& key) {
  ExtentRef result;
  Find({&key, 1}, {&result, 1});
  return result;
}

void TwoTierCache::Find(std::span<const ExtentKey> keys, std::span<ExtentRef> results) {
  FOREBAY_CHECK(keys.size() == results.size());
  std::vector<std::size_t> to_open;
  {
    MutexLock lock(mutex_);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      bool must_open = false;
      results[i] = FindResident(keys[i], must_open);
      if (must_open) to_open.push_back(i);
    }
  }
  for (const std::size_t i : to_open) results[i] = OpenFromSsd(keys[i], 1);
}

ExtentRef TwoTierCache::FindOn(const ExtentKey& key, TierKind tier) {
  {
    MutexLock lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    const Entry& entry = found->second;
    if (tier == TierKind::kRam) return entry.ram;
    if (!entry.is_on_ssd) return nullptr;
    if (ExtentRef held = entry.ssd.lock()) return held;
  }
  return OpenFromSsd(key, 0);
}

void TwoTierCache::SortFarthestFirst(std::vector<Candidate>& candidates) {
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    if (a.next_use != b.next_use) return a.next_use > b.next_use;
    return a.worth != b.worth ? a.worth < b.worth : a.key < b.key;
  });
}

// RAM extents that nobody else holds and that are not needed sooner than `next_use`.
std::vector<TwoTierCache::Candidate> TwoTierCache::RamCandidates(std::uint64_t next_use,
                                                                 bool spares_homes) const {
  std::vector<Candidate> candidates;
  for (const auto& [key, entry] : index_) {
    if (!entry.ram || entry.ram.use_count() > 1) continue;
    if (spares_homes && !entry.is_guest_in_ram) continue;
    const std::uint64_t use = next_use_(key);
    const Worth worth = entry.is_guest_in_ram ? Worth::kGuest : Worth::kAtHome;
    if (use >= next_use) candidates.push_back({use, worth, key});
  }
  SortFarthestFirst(candidates);
  return candidates;
}

std::vector<TwoTierCache::Candidate> TwoTierCache::SsdCandidates(std::uint64_t next_use) const {
  std::vector<Candidate> candidates;
  for (const auto& [key, entry] : index_) {
    if (!entry.is_on_ssd || !entry.ssd.expired()) continue;
    const std::uint64_t use = next_use_(key);
    const Worth worth = entry.ram && !entry.is_guest_in_ram ? Worth::kCopyOfHome
                        : entry.is_guest_on_ssd             ? Worth::kGuest
                                                            : Worth::kAtHome;
    // There is room for all that is at home, so it does not go for its equal.
    const bool may_go = worth == Worth::kAtHome ? use > next_use : use >= next_use;
    if (may_go) candidates.push_back({use, worth, key});
  }
  SortFarthestFirst(candidates);
  return candidates;
}

// Forgets the RAM copy; the memory is free once the last reference is gone.
void TwoTierCache::DropRam(Index::iterator found, EvictionCause cause) {
  found->second.ram.reset();
  --counters(TierKind::kRam).extents;
  CountInLedger(found->first, found->second, TierKind::kRam, cause);
}

// False where there was no SSD copy. The file is the caller's to remove, without the lock.
bool TwoTierCache::DropSsd(Index::iterator found, EvictionCause cause) {
  if (!found->second.is_on_ssd) return false;
  found->second.is_on_ssd = false;
  found->second.ssd.reset();
  --counters(TierKind::kSsd).extents;
  CountInLedger(found->first, found->second, TierKind::kSsd, cause);
  return true;
}

void TwoTierCache::CountInLedger(const ExtentKey& key, const Entry& left, TierKind tier,
                                 EvictionCause cause) {
  if (options_.evictions == nullptr) return;
  options_.evictions->Count({.dataset = key.dataset, .tier = tier, .cause = cause},
                            !left.ram && !left.is_on_ssd);
}

void TwoTierCache::EraseIfEmpty(Index::iterator found) {
  if (!found->second.ram && !found->second.is_on_ssd) index_.erase(found);
}

Result<ArenaBlock> TwoTierCache::AllocateRam(std::uint64_t bytes, std::uint64_t next_use,
                                             io::IoQueue* queue, bool spares_homes) {
  const std::uint64_t capacity = arena_.capacity_bytes();
  if (bytes == 0 || bytes > capacity) return arena_.Allocate(bytes);
  const std::uint64_t wanted = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  const std::uint64_t low = Permille(capacity, options_.guests_low_permille);
  std::vector<Candidate> candidates;
  {
    MutexLock lock(mutex_);
    if (HasRunLocked(wanted)) {
      Result<ArenaBlock> block = arena_.Allocate(bytes);
      if (block.has_value()) return block;
    }
    candidates = RamCandidates(next_use, spares_homes);
  }
  // Planning moves looks at every extent: again only where as much as is wanted was freed since.
  std::uint64_t plan_again_below = ~std::uint64_t{0};
  for (const Candidate& candidate : candidates) {
    {
      MutexLock lock(mutex_);
      // Guests that are needed farther go until there is room to spare, so that not every load
      // looks for one. All others go only where nothing else helps: they would be read twice.
      const bool goes_early = candidate.worth == Worth::kGuest && candidate.next_use > next_use;
      const bool is_enough = !goes_early || Fits(arena_.used_bytes(), wanted, low);
      const std::uint64_t used = arena_.used_bytes();
      const bool may_plan = used <= plan_again_below;
      if (may_plan) plan_again_below = used - std::min(used, wanted);
      if (is_enough && (may_plan ? HasRunLocked(wanted)
                                 : arena_.largest_free_bytes() >= wanted)) {
        break;
      }
    }
    EvictFromRam(candidate, queue);
  }
  MutexLock lock(mutex_);
  static_cast<void>(HasRunLocked(wanted));
  Result<ArenaBlock> block = arena_.Allocate(bytes);
  if (block.has_value()) return block;
  return block.error().WithContext("every other extent is in use or needed sooner");
}

// Whether a block of `wanted` bytes can be had now, be it after moving extents that nobody uses.
bool TwoTierCache::HasRunLocked(std::uint64_t wanted) {
  if (arena_.largest_free_bytes() >= wanted) return true;
  if (!Fits(arena_.used_bytes(), wanted, arena_.capacity_bytes())) return false;
  std::vector<MovableBlock> movable;
  std::unordered_map<std::uint64_t, Entry*> owners;  // by address
  for (auto& [key, entry] : index_) {
    if (!entry.ram || entry.ram.use_count() > 1) continue;
    const ArenaBlock& block = entry.ram->block;
    movable.push_back({.region = block.region(),
                       .offset = block.region_offset(),
                       .bytes = block.bytes().size()});
    owners.emplace(Address(block.region(), block.region_offset()), &entry);
  }
  // Blocks are freed without this lock, so a run may be longer by now than it was planned with.
  const std::vector<Move> moves = PlanMoves(arena_.FreeRuns(), std::move(movable), wanted);
  for (const Move& move : moves) {
    Entry& entry = *owners.at(Address(move.block.region, move.block.offset));
    // A count of 1 is a relaxed read: taking and dropping a reference orders what the last reader
    // did before the move.
    std::shared_ptr<ResidentExtent>(entry.ram).reset();
    arena_.Slide(entry.ram->block, move.to);
    ++moved_;
  }
  return !moves.empty();
}

// Drops an extent from RAM, unless somebody uses it by now. Where no other tier has it, it goes to
// SSD first, as long as that has room without evicting anything there.
void TwoTierCache::EvictFromRam(const Candidate& candidate, io::IoQueue* queue) {
  ExtentRef spilling;
  {
    MutexLock lock(mutex_);
    const auto found = index_.find(candidate.key);
    if (found == index_.end() || !found->second.ram) return;
    if (found->second.ram.use_count() > 1) return;
    if (queue == nullptr || found->second.is_on_ssd || !CanSpillLocked(*found->second.ram)) {
      return DropEvicted(found);
    }
    spilling = found->second.ram;
  }
  const Status stored = PublishSsd(*queue, candidate.key, spilling->block.bytes(),
                                   spilling->checksums, kEvictsNobody, /*is_guest=*/true);
  MutexLock lock(mutex_);
  const auto found = index_.find(candidate.key);
  spilling.reset();
  if (stored.has_value()) ++spilled_;
  if (found == index_.end() || !found->second.ram) return;
  if (found->second.ram.use_count() == 1) DropEvicted(found);
}

bool TwoTierCache::CanSpillLocked(const ResidentExtent& extent) const {
  if (store_ == nullptr || is_ssd_retired_) return false;
  const std::uint64_t file_bytes =
      SegmentStore::FileBytes(extent.image_bytes, extent.checksums.pieces.size());
  const std::uint64_t high = Permille(store_->capacity_bytes(), options_.watermark_high_permille);
  return Fits(store_->used_bytes(), file_bytes, high);
}

void TwoTierCache::DropEvicted(Index::iterator found) {
  DropRam(found, EvictionCause::kRoom);
  EraseIfEmpty(found);
  ++counters(TierKind::kRam).evictions;
}

Result<ExtentRef> TwoTierCache::PublishRam(const ExtentKey& key, ArenaBlock block,
                                           ExtentChecksums checksums, bool is_guest) {
  FOREBAY_CHECK(block.valid());
  auto extent = std::make_shared<ResidentExtent>();
  extent->key = key;
  extent->tier = TierKind::kRam;
  extent->image_bytes = block.bytes().size();
  extent->block = std::move(block);
  extent->checksums = std::move(checksums);
  MutexLock lock(mutex_);
  Entry& entry = index_[key];
  if (entry.ram) {
    entry.is_guest_in_ram = entry.is_guest_in_ram && is_guest;
    return Error(ErrorCode::kAlreadyExists, "extent " + KeyText(key) + " is in RAM already");
  }
  entry.ram = extent;
  entry.is_guest_in_ram = is_guest;
  ++counters(TierKind::kRam).extents;
  return ExtentRef(std::move(extent));
}

void TwoTierCache::MakeAtHome(const ExtentKey& key, TierKind tier) {
  MutexLock lock(mutex_);
  const auto found = index_.find(key);
  if (found == index_.end()) return;
  Entry& entry = found->second;
  (tier == TierKind::kRam ? entry.is_guest_in_ram : entry.is_guest_on_ssd) = false;
}

// A tier whose device fails again and again is retired: nothing new is trusted to it. What is
// there is still read, for it is verified, and each failure costs its own extent alone.
void TwoTierCache::CountDeviceError(const ExtentKey& key, std::int64_t now_ns) {
  ++device_errors_;
  // One bad place is no bad device, however often it is tried.
  std::erase_if(last_device_errors_, [&](const DeviceError& error) {
    return error.key == key || now_ns - error.at_ns > kErrorWindowNs;
  });
  last_device_errors_.push_back({.at_ns = now_ns, .key = key});
  if (last_device_errors_.size() < limits::kTierErrorsBeforeRetire) return;
  if (!is_ssd_retired_) {
    log::Error("ssd tier: retired after device errors for {} extents within a minute: nothing "
               "more is written to it until a restart, its extents are still read; replace the "
               "SSD (tier.ssd.directory)", last_device_errors_.size());
  }
  is_ssd_retired_ = true;
  last_device_errors_.pop_front();  // beyond retirement nobody counts
}

Status TwoTierCache::MakeSsdRoom(std::uint64_t file_bytes, std::uint64_t next_use,
                                 bool for_guest) {
  const std::uint64_t capacity = store_->capacity_bytes();
  const std::uint64_t high = Permille(capacity, options_.watermark_high_permille);
  const std::uint64_t low = Permille(capacity, options_.watermark_low_permille);
  if (file_bytes > capacity || Fits(store_->used_bytes(), file_bytes, high)) return {};
  std::vector<Candidate> candidates;
  {
    MutexLock lock(mutex_);
    // A guest that is still being written takes room and cannot be evicted.
    const std::uint64_t begun = for_guest ? 0 : guests_begun_;
    while (guests_ended_ < begun) ssd_changed_.Wait(mutex_);
    candidates = SsdCandidates(next_use);
  }
  for (const Candidate& candidate : candidates) {
    const std::uint64_t used = store_->used_bytes();
    const bool is_farther = candidate.next_use > next_use;
    if (Fits(used, file_bytes, is_farther ? low : capacity)) break;
    {
      MutexLock lock(mutex_);
      const auto found = index_.find(candidate.key);
      const bool is_pinned = found != index_.end() && !found->second.ssd.expired();
      if (found == index_.end() || is_pinned) continue;
      if (!DropSsd(found, EvictionCause::kRoom)) continue;
      EraseIfEmpty(found);
      ++counters(TierKind::kSsd).evictions;
      removing_.insert(candidate.key);
    }
    const Status removed = RemoveFromStore(candidate.key);
    if (!removed.has_value() && removed.error().code() != ErrorCode::kNotFound) return removed;
  }
  return {};
}

Status TwoTierCache::PublishSsd(io::IoQueue& queue, const ExtentKey& key,
                                std::span<std::byte> image, const ExtentChecksums& checksums,
                                std::uint64_t next_use, bool is_guest) {
  if (store_ == nullptr) {
    return Error(ErrorCode::kFailedPrecondition, "this node has no SSD tier");
  }
  {
    MutexLock lock(mutex_);
    // The store would call a copy that is just being removed, or is just being written and may
    // fail, one that is there.
    while (removing_.contains(key) || writing_.contains(key)) ssd_changed_.Wait(mutex_);
    if (is_ssd_retired_) {
      return Error(ErrorCode::kFailedPrecondition,
                   "the SSD tier has been retired after repeated errors");
    }
    const auto found = index_.find(key);
    if (found != index_.end() && found->second.is_on_ssd) {
      found->second.is_guest_on_ssd = found->second.is_guest_on_ssd && is_guest;
      return Error(ErrorCode::kAlreadyExists, "extent " + KeyText(key) + " is on SSD already");
    }
    writing_.insert(key);
    guests_begun_ += is_guest ? 1 : 0;
  }
  const std::uint64_t file_bytes = SegmentStore::FileBytes(image.size(),
                                                           checksums.pieces.size());
  Status status = MakeSsdRoom(file_bytes, next_use, is_guest);
  if (status.has_value()) status = store_->Put(queue, key, image, checksums);
  MutexLock lock(mutex_);
  writing_.erase(key);
  guests_ended_ += is_guest ? 1 : 0;
  ssd_changed_.NotifyAll();
  if (!status.has_value()) {
    // A full tier, or a caller's mistake, says nothing about the device.
    const ErrorCode code = status.error().code();
    const int system_errno = status.error().system_errno();
    const bool is_device = system_errno != 0 && (code == ErrorCode::kDataLoss ||
                                                 code == ErrorCode::kUnknown);
    if (is_device || system_errno == EROFS) CountDeviceError(key, clock_.NowNs());
    return status;
  }
  Entry& entry = index_[key];
  entry.is_on_ssd = true;
  entry.is_guest_on_ssd = is_guest;
  ++counters(TierKind::kSsd).extents;
  return {};
}

Status TwoTierCache::Evict(const ExtentKey& key, std::optional<TierKind> tier) {
  ExtentRef dropped;  // freed without the lock
  bool is_ssd_dropped = false;
  {
    MutexLock lock(mutex_);
    const auto found = index_.find(key);
    if (found != index_.end()) {
      if (tier.value_or(TierKind::kRam) == TierKind::kRam && found->second.ram) {
        dropped = found->second.ram;
        DropRam(found, EvictionCause::kAsked);
        ++counters(TierKind::kRam).evictions;
      }
      if (tier.value_or(TierKind::kSsd) == TierKind::kSsd &&
          DropSsd(found, EvictionCause::kAsked)) {
        is_ssd_dropped = true;
        ++counters(TierKind::kSsd).evictions;
        removing_.insert(key);
      }
      EraseIfEmpty(found);
    }
  }
  if (!dropped && !is_ssd_dropped) {
    return Error(ErrorCode::kNotFound, "extent " + KeyText(key) + " is not resident there");
  }
  if (!is_ssd_dropped) return {};
  const Status removed = RemoveFromStore(key);
  // A reader may have found it damaged, and the store removed it, in the meantime.
  if (!removed.has_value() && removed.error().code() != ErrorCode::kNotFound) return removed;
  return {};
}

void TwoTierCache::CountBadSegment(const ExtentKey& key, const Error& found) {
  ++counters(TierKind::kSsd).bad;
  log::Warn("ssd tier: segment {} is damaged and dropped; its extent is fetched again when "
            "needed: {}",
            SegmentName(key), found.message());
}

void TwoTierCache::ReportBadSegment(const ExtentKey& key, const Error& error,
                                    std::int64_t now_ns) {
  {
    MutexLock lock(mutex_);
    const auto found = index_.find(key);
    // Readers of one bad segment may all report it; it counts once.
    if (found == index_.end() || !DropSsd(found, EvictionCause::kDamaged)) return;
    CountBadSegment(key, error);
    if (error.system_errno() != 0) CountDeviceError(key, now_ns);
    EraseIfEmpty(found);
    removing_.insert(key);
  }
  // The cache serves it no longer, so a failure here costs space only, which the store counts.
  static_cast<void>(RemoveFromStore(key));
}

// Of a copy that is in removing_, and that the index has no more.
Status TwoTierCache::RemoveFromStore(const ExtentKey& key) {
  const Status removed = store_->Remove(key);
  {
    MutexLock lock(mutex_);
    removing_.erase(key);
  }
  ssd_changed_.NotifyAll();
  return removed;
}

void TwoTierCache::ReportBadRam(const ExtentKey& key) {
  ExtentRef dropped;  // freed without the lock
  MutexLock lock(mutex_);
  const auto found = index_.find(key);
  if (found == index_.end() || !found->second.ram) return;
  dropped = found->second.ram;
  DropRam(found, EvictionCause::kDamaged);
  ++counters(TierKind::kRam).bad;
  EraseIfEmpty(found);
}

std::vector<ExtentKey> TwoTierCache::Resident(TierKind tier) const {
  std::vector<ExtentKey> keys;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, entry] : index_) {
      if (tier == TierKind::kRam ? entry.ram != nullptr : entry.is_on_ssd) keys.push_back(key);
    }
  }
  std::ranges::sort(keys, [](const ExtentKey& a, const ExtentKey& b) { return a < b; });
  return keys;
}

ExtentCache::TierStats TwoTierCache::stats(TierKind tier) const {
  TierStats stats;
  MutexLock lock(mutex_);
  const Counters& counted = counters_[static_cast<std::size_t>(tier)];
  stats.extents = counted.extents;
  stats.evictions = counted.evictions;
  stats.hits = counted.hits;
  stats.bad_extents = counted.bad;
  if (tier == TierKind::kRam) {
    stats.capacity_bytes = arena_.capacity_bytes();
    stats.used_bytes = arena_.used_bytes();
    stats.spilled = spilled_;
    stats.moved = moved_;
    for (const auto& [key, entry] : index_) {
      if (entry.ram && entry.ram.use_count() > 1) stats.pinned_bytes += entry.ram->image_bytes;
    }
  } else if (store_ != nullptr) {
    stats.capacity_bytes = store_->capacity_bytes();
    stats.used_bytes = store_->used_bytes();
    stats.retired = is_ssd_retired_;
    stats.device_errors = device_errors_;
  }
  return stats;
}

}  // namespace

std::unique_ptr<ExtentCache> ExtentCache::Create(RamArena& arena, SegmentStore* store,
                                                 const Options& options, NextUse next_use) {
  return std::make_unique<TwoTierCache>(arena, store, options, std::move(next_use));
}

}  // namespace forebay::tier
