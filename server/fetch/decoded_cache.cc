// Eviction by next use: the order of a stream is known, so the cache can do what Belady's optimal
// policy does, and evict the unit that is needed last (Belady, "A study of replacement algorithms
// for a virtual-storage computer", IBM Systems Journal 5(2), 1966). A unit that is needed later
// than all kept ones is not kept at all. Decoding runs outside the lock, once per unit (single
// flight).
#include "server/fetch/decoded_cache.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "proto/contract/check.h"

namespace forebay::fetch {
namespace {

// Units that are examined when space is needed. To learn a unit's next use costs inverse
// permutations, so a cache of many small units examines a part of them at a time, in turn.
constexpr std::size_t kExaminedMax = 128;
// An eviction leaves a sixteenth of the capacity free, so that not every new unit has to search.
constexpr std::uint64_t kSpareShare = 16;

}  // namespace

bool DecodedUnit::HoldsAll(std::span<const std::uint32_t> indices) const {
  return std::ranges::all_of(indices, [this](std::uint32_t index) { return Holds(index); });
}

// Samples of one size lie at multiples of it; `places` skips those that were left out.
std::span<const std::byte> DecodedUnit::Sample(std::uint32_t index) const {
  FOREBAY_CHECK(index < samples && Holds(index));
  if (ends.empty()) {
    const std::size_t sample_bytes = bytes.size() / (samples - left_out);
    const std::size_t place = places.empty() ? index : places[index];
    return bytes.span().subspan(place * sample_bytes, sample_bytes);
  }
  const std::uint64_t begin = index == 0 ? 0 : ends[index - 1];
  return bytes.span().subspan(begin, ends[index] - begin);
}

UnitRef DecodedCache::Find(const UnitKey& key, std::span<const std::uint32_t> wanted) {
  MutexLock lock(mutex_);
  const auto found = index_.find(key);
  if (found == index_.end() || !kept_[found->second].unit->HoldsAll(wanted)) return nullptr;
  return kept_[found->second].unit;
}

Result<UnitRef> DecodedCache::Get(const UnitKey& key, const UnitSamples& samples,
                                  const Decode& decode, std::span<const std::uint32_t> wanted) {
  std::shared_ptr<Flight> flight;
  {
    MutexLock lock(mutex_);
    for (;;) {
      const auto found = index_.find(key);
      if (found != index_.end() && kept_[found->second].unit->HoldsAll(wanted)) {
        return kept_[found->second].unit;
      }
      const auto [entry, inserted] = flights_.try_emplace(key);
      if (inserted) {
        flight = entry->second = std::make_shared<Flight>();
        break;
      }
      const std::shared_ptr<Flight> other = entry->second;
      // `other` is a reference of its own: the thread that decodes removes the flight from the
      // table before it wakes this one.
      while (!other->over) landed_.Wait(mutex_);
      if (other->unit && other->unit->HoldsAll(wanted)) {
        ++counts_.shared;
        return other->unit;
      }
      // The other thread failed, perhaps because of bad bytes that this one does not have; or its
      // unit lacks samples that it decoded straight into its slot. Either way this thread decodes.
    }
  }
  Result<DecodedUnit> decoded = decode();
  Result<UnitRef> result = UnitRef();
  if (decoded.has_value()) {
    result = std::make_shared<const DecodedUnit>(std::move(*decoded));
  } else {
    result = decoded.error();
  }
  std::vector<UnitRef> dropped;  // destroyed without the lock, because freeing memory takes long
  {
    MutexLock lock(mutex_);
    flights_.erase(key);
    flight->over = true;
    if (result.has_value()) {
      flight->unit = *result;
      ++counts_.decoded;
      KeepLocked(key, samples, *result, dropped);
    }
  }
  // All wait on one condition, because flights are few and short-lived; each looks at its own.
  landed_.NotifyAll();
  return result;
}

// Asked before decoding: a unit that would not be kept can be decoded straight into a slot.
bool DecodedCache::WouldKeep(const UnitSamples& samples, std::uint64_t bytes) {
  const std::uint64_t charged = bytes + DecodedUnit::kUnitOverheadBytes;
  MutexLock lock(mutex_);
  if (charged > capacity_bytes_) return false;
  if (used_bytes_ <= capacity_bytes_ - charged) return true;
  const std::uint64_t missing = used_bytes_ - (capacity_bytes_ - charged);
  std::uint64_t freed = 0;
  for (const Candidate& candidate : CandidatesLocked(next_use_(samples), missing)) {
    freed += candidate.bytes;
  }
  return freed >= missing;
}

void DecodedCache::KeepLocked(const UnitKey& key, const UnitSamples& samples,
                              const UnitRef& unit, std::vector<UnitRef>& dropped) {
  // A unit that is kept under this key lacked a sample, or it would have been used. The new one
  // replaces it. This is no eviction.
  if (const auto found = index_.find(key); found != index_.end()) {
    used_bytes_ -= kept_[found->second].unit->memory_bytes();
    dropped.push_back(DropLocked(found->second));
    --counts_.evictions;
  }
  if (unit->left_out > 0 && unit->left_out == unit->samples) return;  // it holds no sample
  Kept kept{.key = key, .samples = samples, .unit = unit};
  kept.samples.is_part = unit->left_out > 0;
  if (!MakeRoomLocked(kept.samples, unit->memory_bytes(), dropped)) return;
  index_[key] = kept_.size();
  kept_.push_back(std::move(kept));
  used_bytes_ += unit->memory_bytes();
}

bool DecodedCache::WouldLast(const UnitSamples& samples) const {
  MutexLock lock(mutex_);
  const std::uint64_t soonest = std::min(soonest_dropped_[0], soonest_dropped_[1]);
  return soonest == kNeverUsed || next_use_(samples) < soonest;
}

// Remembers when evicted units would have been needed, for WouldLast. Two windows, so that the
// estimate forgets an earlier phase but never starts from nothing.
void DecodedCache::NoteDroppedLocked(std::uint64_t next_use) {
  soonest_dropped_[0] = std::min(soonest_dropped_[0], next_use);
  if (++noted_ < kept_.size()) return;
  soonest_dropped_[1] = std::exchange(soonest_dropped_[0], kNeverUsed);
  noted_ = 0;
}

// Collects candidates from where the last search ended, until their bytes are `enough` or
// kExaminedMax units were examined.
std::vector<DecodedCache::Candidate> DecodedCache::CandidatesLocked(std::uint64_t next_use,
                                                                    std::uint64_t enough) const {
  std::vector<Candidate> candidates;
  std::uint64_t freed = 0;
  const std::size_t examined = std::min(kept_.size(), kExaminedMax);
  for (std::size_t i = 0; i < examined && freed < enough; ++i) {
    const std::size_t index = (hand_ + i) % kept_.size();
    const std::uint64_t use = next_use_(kept_[index].samples);
    // Equal uses are no reason to evict: it would exchange one unit for another of the same worth.
    if (use <= next_use && use < kNeverUsed) continue;
    candidates.push_back({use, index, kept_[index].unit->memory_bytes()});
    freed += candidates.back().bytes;
  }
  return candidates;
}

// Evicts units that are needed later than `samples`, the latest first, until `bytes` more fit and
// some space is left. If all candidates together are too small, only units that no stream needs are
// evicted, because the others would be lost for nothing.
bool DecodedCache::MakeRoomLocked(const UnitSamples& samples, std::uint64_t bytes,
                                  std::vector<UnitRef>& dropped) {
  if (bytes > capacity_bytes_) return false;
  if (used_bytes_ <= capacity_bytes_ - bytes) return true;
  // Asked without a bound of bytes, because the ones that are needed last are to go, and not the
  // first that are found.
  std::vector<Candidate> candidates = CandidatesLocked(next_use_(samples), ~std::uint64_t{0});
  hand_ = (hand_ + std::min(kept_.size(), kExaminedMax)) % std::max<std::size_t>(1, kept_.size());
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.next_use != b.next_use ? a.next_use > b.next_use : a.index > b.index;
  });
  std::uint64_t freed = 0;
  for (const Candidate& candidate : candidates) freed += candidate.bytes;
  const bool suffices = used_bytes_ - freed <= capacity_bytes_ - bytes;
  const std::uint64_t low = capacity_bytes_ - capacity_bytes_ / kSpareShare;
  std::vector<std::size_t> going;
  for (const Candidate& candidate : candidates) {
    const bool fits = used_bytes_ <= capacity_bytes_ - bytes;
    const bool is_dead = candidate.next_use >= kNeverUsed;
    if (!is_dead && (!suffices || (fits && used_bytes_ + bytes <= low))) break;
    used_bytes_ -= candidate.bytes;
    NoteDroppedLocked(candidate.next_use);
    going.push_back(candidate.index);
  }
  // From the highest index down: DropLocked moves the last unit to the free place, and so never
  // moves one that is still to be dropped.
  std::ranges::sort(going, std::greater<>());
  for (const std::size_t index : going) dropped.push_back(DropLocked(index));
  return used_bytes_ <= capacity_bytes_ - bytes;
}

std::optional<DecodedCache::Scrubbed> DecodedCache::ScrubNext() {
  Kept next;
  {
    MutexLock lock(mutex_);
    if (kept_.empty()) return std::nullopt;
    scrub_hand_ = (scrub_hand_ + 1) % kept_.size();
    next = kept_[scrub_hand_];
  }
  // The check runs without the lock. `next` keeps the unit alive even if it is evicted meanwhile.
  const DecodedUnit& unit = *next.unit;
  Scrubbed scrubbed{.key = next.key, .bytes = unit.bytes.size()};
  scrubbed.is_sound = !unit.is_sound || unit.is_sound(unit.bytes.span());
  if (scrubbed.is_sound) return scrubbed;
  UnitRef dropped;  // destroyed without the lock
  MutexLock lock(mutex_);
  const auto found = index_.find(next.key);
  if (found != index_.end() && kept_[found->second].unit == next.unit) {
    used_bytes_ -= unit.memory_bytes();
    dropped = DropLocked(found->second);
    --counts_.evictions;
  }
  ++counts_.bad_units;
  return scrubbed;
}

// Removes a unit by moving the last one into its place, so that kept_ has no gaps. The caller has
// updated used_bytes_.
UnitRef DecodedCache::DropLocked(std::size_t index) {
  UnitRef unit = std::move(kept_[index].unit);
  index_.erase(kept_[index].key);
  if (index + 1 != kept_.size()) {
    kept_[index] = std::move(kept_.back());
    index_[kept_[index].key] = index;
  }
  kept_.pop_back();
  ++counts_.evictions;
  return unit;
}

void DecodedCache::Forget(std::uint64_t dataset) {
  std::vector<UnitRef> dropped;  // destroyed without the lock
  MutexLock lock(mutex_);
  for (std::size_t index = kept_.size(); index-- > 0;) {
    if (kept_[index].key.extent.dataset != dataset) continue;
    used_bytes_ -= kept_[index].unit->memory_bytes();
    dropped.push_back(DropLocked(index));
    --counts_.evictions;
  }
}

DecodedCache::Stats DecodedCache::stats() const {
  MutexLock lock(mutex_);
  Stats stats = counts_;
  stats.capacity_bytes = capacity_bytes_;
  stats.used_bytes = used_bytes_;
  stats.units = kept_.size();
  return stats;
}

}  // namespace forebay::fetch
