// The cache never does work in proportion to its number of extents under its lock, because every
// batch looks extents up. Code that does such work has a file of its own and releases the lock
// after every few extents: the search for extents to evict (eviction_search.h) and the moving of
// extents (extent_mover.h). This file has the operations on one extent: finding, publishing,
// dropping it.
#include "server/tier/extent_cache.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "proto/contract/align_up.h"
#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/io/log.h"
#include "server/tier/ssd/segment_format.h"

namespace forebay::tier {
namespace {

constexpr std::uint64_t kEvictsNobody = ~std::uint64_t{0};  // as a next use
constexpr std::uint64_t kArenaPageBytes = limits::kIoAlignmentBytes;

std::uint64_t Permille(std::uint64_t bytes, std::uint32_t permille) {
  return bytes / 1000 * permille + bytes % 1000 * permille / 1000;
}

bool Fits(std::uint64_t used, std::uint64_t wanted, std::uint64_t limit) {
  return used <= limit && wanted <= limit - used;
}

}  // namespace

std::unique_ptr<ExtentCache> ExtentCache::Create(RamArena& arena, SegmentStore* store,
                                                 const Options& options, NextUse next_use) {
  return std::unique_ptr<ExtentCache>(new ExtentCache(arena, store, options, std::move(next_use)));
}

ExtentCache::ExtentCache(RamArena& arena, SegmentStore* store, const Options& options,
                         NextUse next_use)
    : arena_(arena),
      store_(store),
      options_(options),
      clock_(options.clock != nullptr ? *options.clock : system_clock_),
      walk_(mutex_, index_),
      search_(walk_, std::move(next_use)),
      mover_(arena, mutex_, index_, walk_) {
  FOREBAY_CHECK(options.watermark_low_permille <= options.watermark_high_permille);
  FOREBAY_CHECK(options.watermark_high_permille <= 1000);
  if (store_ == nullptr) return;
  for (const ExtentKey& key : store_->Keys()) {
    Residency& entry = index_.FindOrAdd(key);
    entry.is_on_ssd = true;
    entry.is_guest_on_ssd = true;  // until somebody says that it is at home there
    ++counters(TierKind::kSsd).extents;
  }
}

// Null if it is on no tier. May wait while the extent is moved, and so release the lock.
ExtentCache::Node* ExtentCache::FindUnmoved(const ExtentKey& key) {
  Node* found = index_.Find(key);
  while (found != nullptr && found->second.is_moving) {
    mover_.AwaitMove(mutex_);
    found = index_.Find(key);
  }
  return found;
}

// The extent if it can be had without I/O. Sets `must_open` where it lies on SSD and no reader
// holds it.
ExtentRef ExtentCache::FindResident(const ExtentKey& key, bool& must_open) {
  must_open = false;
  const Node* const found = FindUnmoved(key);
  if (found == nullptr) return nullptr;
  const Residency& entry = found->second;
  if (entry.ram) return entry.ram;
  if (!entry.is_on_ssd) return nullptr;
  ExtentRef held = entry.ssd.lock();
  must_open = held == nullptr;
  return held;
}

ExtentRef ExtentCache::OpenFromSsd(const ExtentKey& key) {
  const Result<std::shared_ptr<const Segment>> segment = store_->Get(key);
  MutexLock lock(mutex_);
  Node* const found = index_.Find(key);
  if (!segment.has_value()) {
    // The store has removed what it found damaged. What it could not open for want of a
    // descriptor, say, stays resident, and this reader has a miss.
    const ErrorCode code = segment.error().code();
    const bool was_gone = code == ErrorCode::kDataLoss || code == ErrorCode::kNotFound ||
                          code == ErrorCode::kFailedPrecondition;
    // Somebody may have evicted it and another published it anew in the meantime.
    const bool is_gone = was_gone && !store_->Contains(key);
    const bool is_device = segment.error().system_errno() != 0;
    if (code == ErrorCode::kDataLoss && is_device) ssd_health_.CountError(key, clock_.NowNs());
    if (is_gone && found != nullptr && DropSsd(*found, EvictionCause::kDamaged)) {
      if (code == ErrorCode::kDataLoss) CountBadSegment(key, segment.error());
      EraseIfEmpty(*found);
    }
    return nullptr;
  }
  // While the lock was not held, the extent may have been evicted and published anew, with the
  // bytes of a data set that was rebuilt. This reader then has a miss, and asks again.
  if (found == nullptr || !found->second.is_on_ssd || !store_->Serves(**segment)) return nullptr;
  Residency& entry = found->second;
  if (ExtentRef held = entry.ssd.lock(); held && held->segment == *segment) return held;
  auto extent = std::make_shared<ResidentExtent>();
  extent->key = key;
  extent->tier = TierKind::kSsd;
  extent->image_bytes = (*segment)->image_bytes;
  extent->segment = *segment;
  entry.ssd = extent;
  return extent;
}

ExtentRef ExtentCache::Find(const ExtentKey& key) {
  ExtentRef result;
  Find({&key, 1}, {&result, 1});
  return result;
}

void ExtentCache::Find(std::span<const ExtentKey> keys, std::span<ExtentRef> results) {
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
  for (const std::size_t i : to_open) results[i] = OpenFromSsd(keys[i]);
}

bool ExtentCache::Holds(const ExtentKey& key) const {
  const MutexLock lock(mutex_);
  return index_.Holds(key);
}

ExtentRef ExtentCache::FindOn(const ExtentKey& key, TierKind tier) {
  {
    MutexLock lock(mutex_);
    const Node* const found = FindUnmoved(key);
    if (found == nullptr) return nullptr;
    const Residency& entry = found->second;
    if (tier == TierKind::kRam) return entry.ram;
    if (!entry.is_on_ssd) return nullptr;
    if (ExtentRef held = entry.ssd.lock()) return held;
  }
  return OpenFromSsd(key);
}

// Forgets the RAM copy. Returns the cache's reference, for the caller to drop without the lock: the
// memory is free once the last reference is gone.
ExtentCache::RamRef ExtentCache::DropRam(Node& node, EvictionCause cause) {
  RamRef dropped = std::exchange(node.second.ram, nullptr);
  --counters(TierKind::kRam).extents;
  CountInLedger(node, TierKind::kRam, cause);
  return dropped;
}

// False where there was no SSD copy. The file is the caller's to remove, without the lock.
bool ExtentCache::DropSsd(Node& node, EvictionCause cause) {
  if (!node.second.is_on_ssd) return false;
  node.second.is_on_ssd = false;
  node.second.ssd.reset();
  --counters(TierKind::kSsd).extents;
  CountInLedger(node, TierKind::kSsd, cause);
  return true;
}

void ExtentCache::CountInLedger(const Node& left, TierKind tier, EvictionCause cause) {
  if (options_.evictions == nullptr) return;
  options_.evictions->Count({.dataset = left.first.dataset, .tier = tier, .cause = cause},
                            !left.second.ram && !left.second.is_on_ssd);
}

void ExtentCache::EraseIfEmpty(const Node& node) {
  if (!node.second.ram && !node.second.is_on_ssd) index_.Erase(node);
}

Result<ArenaBlock> ExtentCache::AllocateRam(std::uint64_t bytes, std::uint64_t next_use,
                                            io::IoQueue* queue, bool spares_homes) {
  const std::uint64_t capacity = arena_.capacity_bytes();
  Result<ArenaBlock> block = arena_.Allocate(bytes);
  if (block.has_value() || bytes == 0 || bytes > capacity) return block;
  const std::uint64_t wanted = AlignUp(bytes, kArenaPageBytes);
  const std::uint64_t low = Permille(capacity, options_.guests_low_permille);
  // Planning moves looks at every extent: again only where as much as is wanted was freed since.
  std::uint64_t plan_again_below = ~std::uint64_t{0};
  const auto has_run = [&] {
    if (arena_.largest_free_bytes() >= wanted) return true;
    const std::uint64_t used = arena_.used_bytes();
    if (used > plan_again_below) return false;
    plan_again_below = used - std::min(used, wanted);
    return mover_.MakeRun(wanted);
  };
  if (has_run()) block = arena_.Allocate(bytes);
  for (const EvictionSearch::Among among : search_.Rounds()) {
    if (block.has_value()) return block;
    for (const Candidate& candidate : search_.InRam(among, next_use, spares_homes)) {
      // Guests that are needed farther go until there is room to spare, so that not every load
      // looks for one. All others go only where nothing else helps: they would be read twice.
      const bool is_guest = candidate.worth == EvictionSearch::Worth::kGuest;
      const bool goes_early = is_guest && candidate.next_use > next_use;
      const bool is_enough = !goes_early || Fits(arena_.used_bytes(), wanted, low);
      if (is_enough && has_run()) break;
      EvictFromRam(candidate.key, queue);
    }
    // Another thread may have taken the run by now; then all extents are looked at.
    if (has_run()) block = arena_.Allocate(bytes);
  }
  if (block.has_value()) return block;
  return block.error().WithContext("every other extent is in use or needed sooner");
}

// Drops an extent from RAM, unless somebody uses it by now. Where no other tier has it, it goes to
// SSD first, as long as that has room without evicting anything there.
void ExtentCache::EvictFromRam(const ExtentKey& key, io::IoQueue* queue) {
  RamRef dropped;  // the memory is freed without the lock
  ExtentRef spilling;
  {
    MutexLock lock(mutex_);
    if (queue != nullptr) AwaitNoSsdChange(key);
    Node* const found = index_.Find(key);
    if (found == nullptr || !found->second.ram) return;
    if (found->second.ram->IsPinned()) return;
    // The write begins under the same lock under which the bytes are taken: an eviction by a
    // rebuild, which must not find old bytes on SSD later, comes before both or ends the write.
    if (queue == nullptr || found->second.is_on_ssd || !CanSpillLocked(*found->second.ram) ||
        !BeginSsdWrite(key, /*is_guest=*/true).has_value()) {
      dropped = DropEvicted(*found);
      return;
    }
    spilling = found->second.ram;
  }
  const Status stored = WriteSsd(*queue, key, spilling->block.bytes(), spilling->checksums,
                                 kEvictsNobody, /*is_guest=*/true);
  MutexLock lock(mutex_);
  Node* const found = index_.Find(key);
  if (stored.has_value()) ++spilled_;
  // Meanwhile the extent may have been dropped, and another copy of it may have come, with the
  // bytes of a rebuild.
  if (found == nullptr || found->second.ram.get() != spilling.get()) return;
  spilling = nullptr;  // not the last reference, which is the cache's
  if (!found->second.ram->IsPinned()) dropped = DropEvicted(*found);
}

bool ExtentCache::CanSpillLocked(const ResidentExtent& extent) const {
  if (store_ == nullptr || ssd_health_.is_retired()) return false;
  const std::uint64_t file_bytes =
      SegmentStore::FileBytes(extent.image_bytes, extent.checksums.pieces.size());
  const std::uint64_t high = Permille(store_->capacity_bytes(), options_.watermark_high_permille);
  return Fits(store_->used_bytes(), file_bytes, high);
}

ExtentCache::RamRef ExtentCache::DropEvicted(Node& node) {
  RamRef dropped = DropRam(node, EvictionCause::kRoom);
  EraseIfEmpty(node);
  ++counters(TierKind::kRam).evictions;
  return dropped;
}

bool ExtentCache::MakeRun(std::uint64_t bytes) {
  return mover_.MakeRun(AlignUp(bytes, kArenaPageBytes));
}

Result<ExtentRef> ExtentCache::PublishRam(const ExtentKey& key, ArenaBlock block,
                                          ExtentChecksums checksums, bool is_guest) {
  FOREBAY_CHECK(block.valid());
  auto extent = std::make_shared<ResidentExtent>();
  extent->key = key;
  extent->tier = TierKind::kRam;
  extent->image_bytes = block.bytes().size();
  extent->block = std::move(block);
  extent->checksums = std::move(checksums);
  extent->memory_signal = &arena_.memory_signal();
  MutexLock lock(mutex_);
  Residency& entry = index_.FindOrAdd(key);
  if (entry.ram) {
    entry.is_guest_in_ram = entry.is_guest_in_ram && is_guest;
    return Error(ErrorCode::kAlreadyExists, "extent " + KeyText(key) + " is in RAM already");
  }
  entry.ram = extent;
  entry.is_guest_in_ram = is_guest;
  ++counters(TierKind::kRam).extents;
  return ExtentRef(std::move(extent));
}

void ExtentCache::MakeAtHome(const ExtentKey& key, TierKind tier) {
  MutexLock lock(mutex_);
  Node* const found = index_.Find(key);
  if (found == nullptr) return;
  Residency& entry = found->second;
  (tier == TierKind::kRam ? entry.is_guest_in_ram : entry.is_guest_on_ssd) = false;
}

Status ExtentCache::MakeSsdRoom(std::uint64_t file_bytes, std::uint64_t next_use,
                                bool for_guest) {
  const std::uint64_t capacity = store_->capacity_bytes();
  const std::uint64_t high = Permille(capacity, options_.watermark_high_permille);
  const std::uint64_t low = Permille(capacity, options_.watermark_low_permille);
  if (file_bytes > capacity || Fits(store_->used_bytes(), file_bytes, high)) return {};
  {
    MutexLock lock(mutex_);
    // A guest that is still being written takes room and cannot be evicted.
    const std::uint64_t begun = for_guest ? 0 : guests_begun_;
    while (guests_ended_ < begun) ssd_changed_.Wait(mutex_);
  }
  for (const EvictionSearch::Among among : search_.Rounds()) {
    for (const Candidate& candidate : search_.OnSsd(among, next_use)) {
      const std::uint64_t used = store_->used_bytes();
      const bool is_farther = candidate.next_use > next_use;
      if (Fits(used, file_bytes, is_farther ? low : capacity)) return {};
      if (!EvictFromSsd(candidate.key)) continue;
      const Status removed = RemoveFromStore(candidate.key);
      if (!removed.has_value() && removed.error().code() != ErrorCode::kNotFound) return removed;
    }
    if (Fits(store_->used_bytes(), file_bytes, capacity)) return {};
  }
  return {};
}

// The copy's file is still to be removed.
bool ExtentCache::EvictFromSsd(const ExtentKey& key) {
  MutexLock lock(mutex_);
  Node* const found = index_.Find(key);
  if (found == nullptr || !found->second.ssd.expired()) return false;
  if (!DropSsd(*found, EvictionCause::kRoom)) return false;
  EraseIfEmpty(*found);
  ++counters(TierKind::kSsd).evictions;
  removing_.insert(key);
  return true;
}

Status ExtentCache::PublishSsd(io::IoQueue& queue, const ExtentKey& key,
                               std::span<std::byte> image, const ExtentChecksums& checksums,
                               std::uint64_t next_use, bool is_guest) {
  if (store_ == nullptr) {
    return Error(ErrorCode::kFailedPrecondition, "this node has no SSD tier");
  }
  {
    MutexLock lock(mutex_);
    AwaitNoSsdChange(key);
    FOREBAY_TRY(BeginSsdWrite(key, is_guest));
  }
  return WriteSsd(queue, key, image, checksums, next_use, is_guest);
}

// The store would call a copy that is just being removed, or is just being written and may fail,
// one that is there.
void ExtentCache::AwaitNoSsdChange(const ExtentKey& key) {
  while (removing_.contains(key) || writing_.contains(key)) ssd_changed_.Wait(mutex_);
}

// From here on an eviction of the extent ends the write, which WriteSsd does next.
Status ExtentCache::BeginSsdWrite(const ExtentKey& key, bool is_guest) {
  if (ssd_health_.is_retired()) {
    return Error(ErrorCode::kFailedPrecondition,
                 "the SSD tier has been retired after repeated errors");
  }
  Node* const found = index_.Find(key);
  if (found != nullptr && found->second.is_on_ssd) {
    found->second.is_guest_on_ssd = found->second.is_guest_on_ssd && is_guest;
    return Error(ErrorCode::kAlreadyExists, "extent " + KeyText(key) + " is on SSD already");
  }
  writing_.emplace(key, false);
  guests_begun_ += is_guest ? 1 : 0;
  return {};
}

Status ExtentCache::WriteSsd(io::IoQueue& queue, const ExtentKey& key,
                             std::span<std::byte> image, const ExtentChecksums& checksums,
                             std::uint64_t next_use, bool is_guest) {
  const std::uint64_t file_bytes = SegmentStore::FileBytes(image.size(),
                                                           checksums.pieces.size());
  Status status = MakeSsdRoom(file_bytes, next_use, is_guest);
  if (status.has_value()) status = store_->Put(queue, key, image, checksums);
  UniqueLock lock(mutex_);
  const bool is_evicted = writing_.extract(key).mapped();
  guests_ended_ += is_guest ? 1 : 0;
  ssd_changed_.NotifyAll();
  if (!status.has_value()) {
    // A full tier, or a caller's mistake, says nothing about the device.
    const ErrorCode code = status.error().code();
    const int system_errno = status.error().system_errno();
    const bool is_device = system_errno != 0 && (code == ErrorCode::kDataLoss ||
                                                 code == ErrorCode::kUnknown);
    if (is_device || system_errno == EROFS) ssd_health_.CountError(key, clock_.NowNs());
    return status;
  }
  if (is_evicted) {
    // As if the eviction had come a moment later. After a failure the store counts the space.
    removing_.insert(key);
    lock.Unlock();
    static_cast<void>(RemoveFromStore(key));
    return {};
  }
  Residency& entry = index_.FindOrAdd(key);
  entry.is_on_ssd = true;
  entry.is_guest_on_ssd = is_guest;
  ++counters(TierKind::kSsd).extents;
  return {};
}

Status ExtentCache::Evict(const ExtentKey& key, std::optional<TierKind> tier) {
  ExtentRef dropped;  // freed without the lock
  bool is_ssd_dropped = false;
  bool is_write_ended = false;
  {
    MutexLock lock(mutex_);
    // A copy that is just being written would appear after this call.
    if (const auto writing = writing_.find(key);
        writing != writing_.end() && tier.value_or(TierKind::kSsd) == TierKind::kSsd) {
      writing->second = true;
      is_write_ended = true;
    }
    Node* const found = index_.Find(key);
    if (found != nullptr) {
      if (tier.value_or(TierKind::kRam) == TierKind::kRam && found->second.ram) {
        dropped = DropRam(*found, EvictionCause::kAsked);
        ++counters(TierKind::kRam).evictions;
      }
      if (tier.value_or(TierKind::kSsd) == TierKind::kSsd &&
          DropSsd(*found, EvictionCause::kAsked)) {
        is_ssd_dropped = true;
        ++counters(TierKind::kSsd).evictions;
        removing_.insert(key);
      }
      EraseIfEmpty(*found);
    }
  }
  if (!dropped && !is_ssd_dropped && !is_write_ended) {
    return Error(ErrorCode::kNotFound, "extent " + KeyText(key) + " is not resident there");
  }
  if (!is_ssd_dropped) return {};
  const Status removed = RemoveFromStore(key);
  // A reader may have found it damaged, and the store removed it, in the meantime.
  if (!removed.has_value() && removed.error().code() != ErrorCode::kNotFound) return removed;
  return {};
}

void ExtentCache::CountBadSegment(const ExtentKey& key, const Error& found) {
  ++counters(TierKind::kSsd).bad;
  log::Warn("ssd tier: segment {} is damaged and dropped; its extent is fetched again when "
            "needed: {}",
            SegmentName(key), found.message());
}

void ExtentCache::ReportBad(const ExtentRef& extent, const Error& found, std::int64_t now_ns) {
  if (extent->tier == TierKind::kRam) return DropBadRam(extent);
  FOREBAY_CHECK(extent->segment != nullptr);
  DropBadSegment(*extent, found, now_ns);
}

// Drops the copy on SSD, if that is still `extent`.
void ExtentCache::DropBadSegment(const ResidentExtent& extent, const Error& found,
                                 std::int64_t now_ns) {
  const ExtentKey& key = extent.key;
  {
    MutexLock lock(mutex_);
    Node* const node = index_.Find(key);
    if (node == nullptr) return;
    // The caller holds the extent that it has read. So where that is still the copy on SSD, the
    // index has a reference to it.
    const ExtentRef current = node->second.ssd.lock();
    if (!current || current->segment != extent.segment) return;
    // Readers of one bad segment may all report it; it counts once.
    if (!DropSsd(*node, EvictionCause::kDamaged)) return;
    CountBadSegment(key, found);
    if (found.system_errno() != 0) ssd_health_.CountError(key, now_ns);
    EraseIfEmpty(*node);
    removing_.insert(key);
  }
  // The cache serves it no longer, so a failure here costs space only, which the store counts.
  static_cast<void>(RemoveFromStore(key));
}

// Of a copy that is in removing_, and that the index has no more.
Status ExtentCache::RemoveFromStore(const ExtentKey& key) {
  const Status removed = store_->Remove(key);
  {
    MutexLock lock(mutex_);
    removing_.erase(key);
  }
  ssd_changed_.NotifyAll();
  return removed;
}

void ExtentCache::DropBadRam(const ExtentRef& extent) {
  ExtentRef dropped;  // freed without the lock
  MutexLock lock(mutex_);
  Node* const node = index_.Find(extent->key);
  if (node == nullptr || node->second.ram != extent) return;
  dropped = DropRam(*node, EvictionCause::kDamaged);
  ++counters(TierKind::kRam).bad;
  EraseIfEmpty(*node);
}

std::vector<ExtentKey> ExtentCache::Resident(TierKind tier) const {
  std::vector<ExtentKey> keys;
  walk_.VisitAll([&](const Node& node) {
    const Residency& entry = node.second;
    if (tier == TierKind::kRam ? entry.ram != nullptr : entry.is_on_ssd) keys.push_back(node.first);
  });
  std::ranges::sort(keys, [](const ExtentKey& a, const ExtentKey& b) { return a < b; });
  // An extent that got another number during the walk may have been met twice.
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

ExtentCache::TierStats ExtentCache::stats(TierKind tier) const {
  TierStats stats;
  {
    MutexLock lock(mutex_);
    const Counters& counted = counters_[static_cast<std::size_t>(tier)];
    stats.extents = counted.extents;
    stats.evictions = counted.evictions;
    stats.bad_extents = counted.bad;
    if (tier == TierKind::kRam) {
      stats.spilled = spilled_;
      stats.moved = mover_.moved();
    } else if (store_ != nullptr) {
      stats.retired = ssd_health_.is_retired();
      stats.device_errors = ssd_health_.errors();
    }
  }
  if (tier == TierKind::kRam) {
    stats.capacity_bytes = arena_.capacity_bytes();
    stats.used_bytes = arena_.used_bytes();
    walk_.VisitAll([&](const Node& node) {
      const RamRef& ram = node.second.ram;
      if (ram && ram->IsPinned()) stats.pinned_bytes += ram->image_bytes;
    });
  } else if (store_ != nullptr) {
    stats.capacity_bytes = store_->capacity_bytes();
    stats.used_bytes = store_->used_bytes();
  }
  return stats;
}

}  // namespace forebay::tier
