// DecodedCache: what chunks of packed data decode to, kept for as long as some order will need it
// soon. Memory of this process only: samples are copied from it into slots.
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

// Memory that is not cleared before it is written, from a cache line on: what is copied to a row
// of a slot, which begins on one as well, lies as that does.
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

// A run of samples of one field, decoded; or a part of them, where the others went straight to who
// wanted them.
struct DecodedUnit {
  RawBytes bytes;                   // samples one after the other
  std::vector<std::uint64_t> ends;  // of each sample in `bytes`; empty: all of one size
  std::uint32_t samples = 0;
  // Of samples of one size, some may be left out of `bytes`: which one of those there each is.
  std::uint32_t left_out = 0;
  std::vector<std::uint32_t> places = {};  // empty: none is left out
  static constexpr std::uint32_t kNotHeld = ~std::uint32_t{0};
  // Says whether `bytes` are still what was decoded; unset: nobody can tell.
  std::function<bool(std::span<const std::byte> bytes)> is_sound = nullptr;
  std::uint64_t check_bytes = 0;  // that it takes to say so

  bool Holds(std::uint32_t index) const { return places.empty() || places[index] != kNotHeld; }
  bool HoldsAll(std::span<const std::uint32_t> indices) const;
  std::span<const std::byte> Sample(std::uint32_t index) const;  // of one that it holds
  // What the cache charges: with its own tables, and the allocator's.
  std::size_t memory_bytes() const {
    return bytes.size() + ends.size() * sizeof(ends[0]) + places.size() * sizeof(places[0]) +
           check_bytes + kUnitOverheadBytes;
  }
  static constexpr std::size_t kUnitOverheadBytes = 256;
};
using UnitRef = std::shared_ptr<const DecodedUnit>;

// Where a unit's first chunk lies: no two units have the same.
struct UnitKey {
  tier::ExtentKey extent;
  std::uint32_t piece = 0;
  bool operator==(const UnitKey&) const = default;
};

// Which samples a unit holds: so that one can ask when they are needed, beside the batch for which
// they are decoded now.
struct UnitSamples {
  std::uint64_t dataset = 0;  // tier::DatasetHash
  std::uint64_t first = 0;
  std::uint32_t count = 0;
  EpochId epoch = EpochId();  // of that batch,
  std::uint64_t after = 0;    // and the position behind it
  // The unit holds a part of them: in another epoch it is of no use, for what it lacks then has to
  // be decoded, and it with that.
  bool is_part = false;
};

// When any of the samples is needed next (smaller is sooner, kNeverUsed never). Asked under the
// cache's lock; must not call back into it.
using SampleNextUse = std::function<std::uint64_t(const UnitSamples&)>;
inline constexpr std::uint64_t kNeverUsed = ~std::uint64_t{0} - 1;

// Thread-safe.
class DecodedCache {
 public:
  // `capacity_bytes` 0: nothing is kept, but readers that want the same unit at the same time
  // still share one decoding.
  DecodedCache(std::uint64_t capacity_bytes, SampleNextUse next_use)
      : capacity_bytes_(capacity_bytes), next_use_(std::move(next_use)) {}

  // The unit, if it is kept and holds the samples with these indices.
  UnitRef Find(const UnitKey& key, std::span<const std::uint32_t> wanted = {});

  // The unit, decoded by `decode` unless one that holds the samples wanted is kept or another
  // thread decodes it right now, which is waited for. `decode` runs without a lock and must not
  // get units; what it gives is returned, whether it holds them or not.
  using Decode = std::function<Result<DecodedUnit>()>;
  Result<UnitRef> Get(const UnitKey& key, const UnitSamples& samples,
                      const Decode& decode, std::span<const std::uint32_t> wanted = {});

  // Whether a unit of so many bytes would be kept now.
  bool WouldKeep(const UnitSamples& samples, std::uint64_t bytes);

  // Whether what is kept now would still be kept when the samples are needed next, going by what
  // has had to make room lately.
  bool WouldLast(const UnitSamples& samples) const;

  // Looks at a unit that is kept, the next one at each call, round and round, and drops it where
  // it is damaged: whoever needs it decodes it again. Nothing where none is kept.
  struct Scrubbed {
    UnitKey key;
    std::uint64_t bytes = 0;
    bool is_sound = true;
  };
  std::optional<Scrubbed> ScrubNext();

  // Drops all units of the data set whose tier::DatasetHash this is: its bytes may be others now.
  void Forget(std::uint64_t dataset);

  struct Stats {
    std::uint64_t capacity_bytes = 0, used_bytes = 0, units = 0;
    std::uint64_t shared = 0;   // units that another thread was decoding
    std::uint64_t decoded = 0;  // also for batches that came to nothing, or were tried again
    std::uint64_t evictions = 0;
    std::uint64_t bad_units = 0;  // dropped by ScrubNext
  };
  Stats stats() const;

 private:
  struct KeyHash {
    std::size_t operator()(const UnitKey& key) const {
      return tier::ExtentKeyHash()(key.extent) + key.piece * 0x9E3779B97F4A7C15ULL;
    }
  };
  struct Kept {
    UnitKey key;
    UnitSamples samples;
    UnitRef unit;
  };
  // One decoding under way.
  struct Flight {
    bool over = false;
    UnitRef unit;  // null where it failed
  };

  // What may go for the sake of a newcomer: farther needed than it, or never again.
  struct Candidate {
    std::uint64_t next_use = 0;
    std::size_t index = 0;  // in kept_
    std::uint64_t bytes = 0;
  };
  // Both move what they drop to `dropped`, to be destroyed without the lock.
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
  mutable Mutex mutex_;  // also guards what the flights hold
  CondVar landed_;
  std::unordered_map<UnitKey, std::shared_ptr<Flight>, KeyHash> flights_
      FOREBAY_GUARDED_BY(mutex_);
  std::vector<Kept> kept_ FOREBAY_GUARDED_BY(mutex_);
  // Positions in kept_.
  std::unordered_map<UnitKey, std::size_t, KeyHash> index_ FOREBAY_GUARDED_BY(mutex_);
  std::size_t scrub_hand_ FOREBAY_GUARDED_BY(mutex_) = 0;  // which unit ScrubNext looks at
  // Where the next search for what may go begins.
  std::size_t hand_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t used_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
  // The soonest next use of units that had to make room: of as many as are kept, and of as many
  // before those.
  std::uint64_t soonest_dropped_[2] FOREBAY_GUARDED_BY(mutex_) = {kNeverUsed, kNeverUsed};
  std::size_t noted_ FOREBAY_GUARDED_BY(mutex_) = 0;  // in the first of them
  Stats counts_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::fetch
