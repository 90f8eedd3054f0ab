// DecodedCache: a cache of decoded chunks of packed data sets, in memory of this process. It evicts
// the units that the streams' orders need last. Samples are copied from it into slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/tier/extent_key.h"

namespace forebay::fetch {

// Uninitialised memory that begins on a cache line. Rows of slots begin on one too, so copies from
// here to a slot are aligned on both sides.
class RawBytes {
 public:
  RawBytes() = default;
  explicit RawBytes(std::size_t size)
      : bytes_(static_cast<std::byte*>(::operator new[](size, kCacheLine))), size_(size) {}
  std::span<std::byte> span() { return {bytes_.get(), size_}; }
  std::span<const std::byte> span() const { return {bytes_.get(), size_}; }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kCacheLine{64};
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, kCacheLine); }
  };

  std::unique_ptr<std::byte[], Free> bytes_;
  std::size_t size_ = 0;
};

// The decoded samples of a chunk group: a run of samples of one field. Samples that were decoded
// straight into a slot may be left out.
struct DecodedUnit {
  RawBytes bytes;                   // samples one after another
  std::vector<std::uint64_t> ends;  // end of each sample in `bytes`; empty: all have one size
  std::uint32_t samples = 0;
  // If all have one size, some may be left out; `places` has the place of each one in `bytes`.
  std::uint32_t left_out = 0;
  std::vector<std::uint32_t> places = {};  // empty: none is left out
  static constexpr std::uint32_t kNotHeld = ~std::uint32_t{0};
  // Compares `bytes` with the checksums taken when they were decoded. Unset: there are none.
  std::function<bool(std::span<const std::byte> bytes)> is_sound = nullptr;
  std::uint64_t check_bytes = 0;  // memory that is_sound holds

  bool Holds(std::uint32_t index) const { return places.empty() || places[index] != kNotHeld; }
  bool HoldsAll(std::span<const std::uint32_t> indices) const;
  std::span<const std::byte> Sample(std::uint32_t index) const;  // requires Holds(index)
  // The bytes that the cache charges, including its tables and the allocator's overhead.
  std::size_t memory_bytes() const {
    return bytes.size() + ends.size() * sizeof(ends[0]) + places.size() * sizeof(places[0]) +
           check_bytes + kUnitOverheadBytes;
  }
  static constexpr std::size_t kUnitOverheadBytes = 256;
};
using UnitRef = std::shared_ptr<const DecodedUnit>;

// The place of a unit's first chunk, which identifies the unit, and the number of the Dataset for
// which it was decoded: after a rebuild, extents of the same keys may have other bytes.
struct UnitKey {
  tier::ExtentKey extent;
  std::uint32_t piece = 0;
  std::uint64_t dataset_number = 0;  // Dataset::number
  bool operator==(const UnitKey&) const = default;
};

// The samples of a unit, and the batch for which they are decoded now. From these the caller of the
// cache computes when the unit is needed next.
struct UnitSamples {
  std::uint64_t dataset = 0;  // tier::DatasetHash
  std::uint64_t first = 0;
  std::uint32_t count = 0;
  EpochId epoch = EpochId();  // epoch of that batch
  std::uint64_t after = 0;    // first position after that batch
  // The unit holds only some of the samples. It is of no use in another epoch, because the missing
  // samples must be decoded then, and that decodes the whole unit.
  bool is_part = false;
};

// Returns when any of the samples is needed next (smaller is sooner; kNeverUsed: never). Called
// under the cache's lock; must not call back into the cache.
using SampleNextUse = std::function<std::uint64_t(const UnitSamples&)>;
inline constexpr std::uint64_t kNeverUsed = ~std::uint64_t{0} - 1;

// Thread-safe.
class DecodedCache {
 public:
  // `capacity_bytes` 0: nothing is kept, but readers that want the same unit at the same time
  // still share one decoding.
  DecodedCache(std::uint64_t capacity_bytes, SampleNextUse next_use)
      : capacity_bytes_(capacity_bytes), next_use_(std::move(next_use)) {}

  // Returns the unit if it is kept and holds the samples with these indices; else null.
  UnitRef Find(const UnitKey& key, std::span<const std::uint32_t> wanted = {});

  // Returns a unit that holds the wanted samples: the kept one, or the one that another thread is
  // decoding now (this call waits for it), or the result of `decode`. `decode` runs without a lock
  // and must not call Get. Its result is returned even if it lacks wanted samples.
  using Decode = std::function<Result<DecodedUnit>()>;
  Result<UnitRef> Get(const UnitKey& key, const UnitSamples& samples,
                      const Decode& decode, std::span<const std::uint32_t> wanted = {});

  // Whether a unit of `bytes` would be kept now.
  bool WouldKeep(const UnitSamples& samples, std::uint64_t bytes);

  // Whether a unit that is kept now would still be there when its samples are needed next. An
  // estimate: compares its next use with those of units that were evicted lately.
  bool WouldLast(const UnitSamples& samples) const;

  // Checks one kept unit, the next one at each call, in turn. Drops it if it is damaged; the next
  // reader decodes it again. Returns nullopt if no unit is kept.
  struct Scrubbed {
    UnitKey key;
    std::uint64_t bytes = 0;
    bool is_sound = true;
  };
  std::optional<Scrubbed> ScrubNext();

  // Drops all units of the data set with this tier::DatasetHash: its bytes may have changed.
  void Forget(std::uint64_t dataset);

  struct Stats {
    std::uint64_t capacity_bytes = 0, used_bytes = 0, units = 0;
    std::uint64_t shared = 0;   // calls of Get that waited for another thread's decoding
    std::uint64_t decoded = 0;  // units decoded, also for batches that failed or were tried again
    std::uint64_t evictions = 0;
    std::uint64_t bad_units = 0;  // dropped by ScrubNext
  };
  Stats stats() const;

 private:
  struct KeyHash {
    std::size_t operator()(const UnitKey& key) const {
      const std::uint64_t rest = key.piece + (key.dataset_number << 32);
      return tier::ExtentKeyHash()(key.extent) + rest * 0x9E3779B97F4A7C15ULL;
    }
  };
  struct Kept {
    UnitKey key;
    UnitSamples samples;
    UnitRef unit;
  };
  // One decoding in progress.
  struct Flight {
    bool over = false;
    UnitRef unit;  // null if it failed
  };

  // A unit that may be evicted for a new one: it is needed later than the new one, or never.
  struct Candidate {
    std::uint64_t next_use = 0;
    std::size_t index = 0;  // in kept_
    std::uint64_t bytes = 0;
  };
  // Both move evicted units to `dropped`, so that the caller destroys them without the lock.
  bool MakeRoomLocked(const UnitSamples& samples, std::uint64_t bytes,
                      std::vector<UnitRef>& dropped) FOREBAY_REQUIRES(mutex_);
  void KeepLocked(const UnitKey& key, const UnitSamples& samples, const UnitRef& unit,
                  std::vector<UnitRef>& dropped) FOREBAY_REQUIRES(mutex_);
  std::vector<Candidate> CandidatesLocked(std::uint64_t next_use, std::uint64_t enough) const
      FOREBAY_REQUIRES(mutex_);
  void NoteDroppedLocked(std::uint64_t next_use) FOREBAY_REQUIRES(mutex_);
  UnitRef DropLocked(std::size_t index) FOREBAY_REQUIRES(mutex_);

  const std::uint64_t capacity_bytes_;
  const SampleNextUse next_use_;
  mutable Mutex mutex_;  // also guards the members of all flights
  CondVar landed_;
  std::unordered_map<UnitKey, std::shared_ptr<Flight>, KeyHash> flights_
      FOREBAY_GUARDED_BY(mutex_);
  std::vector<Kept> kept_ FOREBAY_GUARDED_BY(mutex_);
  // Index in kept_ of each unit.
  std::unordered_map<UnitKey, std::size_t, KeyHash> index_ FOREBAY_GUARDED_BY(mutex_);
  std::size_t scrub_hand_ FOREBAY_GUARDED_BY(mutex_) = 0;  // the unit that ScrubNext checked last
  // Where the next search for candidates begins.
  std::size_t hand_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t used_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
  // The soonest next use among evicted units, in two windows: [0] is being filled, [1] is complete.
  // A window ends when as many units were evicted as are kept.
  std::uint64_t soonest_dropped_[2] FOREBAY_GUARDED_BY(mutex_) = {kNeverUsed, kNeverUsed};
  std::size_t noted_ FOREBAY_GUARDED_BY(mutex_) = 0;  // evictions in window [0]
  Stats counts_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::fetch
