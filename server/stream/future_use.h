// FutureUse: computes when an open stream needs an extent next (docs/design.md, 6): the inverse of
// the stream's order says at which position each sample of the extent is.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/thread_annotations.h"
#include "server/fetch/decoded_cache.h"
#include "server/fetch/row_source.h"
#include "server/stream/stream_spec.h"
#include "server/tier/extent_key.h"
#include "server/tier/ram/memory_signal.h"

namespace forebay::stream {

// What one stream will read. Thread-safe.
class StreamFuture {
 public:
  // `memory` is borrowed, and is told when extents are needed at other times than before.
  StreamFuture(std::shared_ptr<const StreamSpec> spec, tier::MemorySignal& memory)
      : spec_(std::move(spec)), memory_(memory), fingerprint_(spec_->order.Fingerprint()) {}

  // The reader waits for a batch that begins at this position of this epoch. Until Answered, what
  // it needs counts as needed, whatever batches behind it are ready before it. Neither call waits
  // for answers that are being computed.
  void Asked(EpochId epoch, std::uint64_t begin);
  // This batch has been put together, and ends before `end`. Null: it has failed.
  void Answered(EpochId epoch, std::uint64_t begin, std::optional<std::uint64_t> end);
  // Another rank of the stream, on another node, has all that is before this place. No effect if
  // the stream is not of that order and that number of ranks.
  void Note(const fetch::ReaderPlace& place);
  // Steps from where the reader is until it needs a batch that begins at this position; 0: now.
  std::uint64_t StepsUntilBatch(EpochId epoch, std::uint64_t begin) const;
  // Steps until `extent` is needed (0: now or any moment), counting into the next epoch. What
  // slower ranks have still to read counts, too, up to a window and their credits behind. Of an
  // extent with many samples, some are looked at. An answer below `exact_from` need not be exact.
  std::uint64_t StepsUntil(ExtentId extent, std::uint64_t exact_from = 0);
  // Steps until any of the samples is needed by this rank, beside the batch for which they were
  // decoded; of very many samples, some are looked at.
  std::uint64_t StepsUntilAny(const fetch::UnitSamples& samples);
  const StreamSpec& spec() const { return *spec_; }

 private:
  static constexpr std::size_t kReaches = 4096;
  static constexpr std::uint32_t kExaminedMax = 64;
  // Of some consecutive samples, those that are selected, as indexes of the selection.
  struct Selected {
    std::uint64_t begin = 0, count = 0;
  };
  Selected SelectedOf(std::uint64_t first, std::uint32_t count) const;
  // First and last position in an epoch of the samples of an extent; first > last: none of them is
  // selected.
  struct Reach {
    EpochId epoch;
    std::uint32_t extent = ~std::uint32_t{0};
    std::uint64_t first = ~std::uint64_t{0};
    std::uint64_t last = 0;
  };
  const Reach& ReachOf(ExtentId extent, EpochId epoch) FOREBAY_REQUIRES(mutex_);
  using Positions = std::array<std::uint64_t, kExaminedMax>;
  std::size_t PositionsOf(std::uint64_t first, std::uint32_t count, EpochId epoch,
                          Positions& positions) FOREBAY_REQUIRES(mutex_);
  // Of some samples, in one epoch: `soonest` is the first of this rank's positions from `from`
  // on, ~0 where there is none, so that it is the first from any position between the two.
  struct Soonest {
    std::uint64_t first = 0;
    std::uint32_t count = 0;  // 0: nothing is known
    EpochId epoch;
    std::uint64_t from = 0, soonest = 0;
  };
  std::uint64_t SoonestOf(const fetch::UnitSamples& samples, EpochId epoch, std::uint64_t from)
      FOREBAY_REQUIRES(mutex_);
  const Order& OrderOf(EpochId epoch) FOREBAY_REQUIRES(mutex_);
  bool IsMine(std::uint64_t position) const;
  // How far a rank has read.
  struct Progress {
    EpochId epoch;
    std::uint64_t position = 0;
    friend auto operator<=>(const Progress&, const Progress&) = default;
  };
  // Returns how far this rank has read.
  Progress progress() const FOREBAY_EXCLUDES(progress_mutex_);
  struct Ranks {
    Progress own;
    Progress slowest;  // of all ranks, as far as it is known here
  };
  Ranks ranks() const FOREBAY_EXCLUDES(progress_mutex_);
  // True if this rank's place, or that of the slowest one, has changed.
  bool UpdateLocked() FOREBAY_REQUIRES(progress_mutex_);
  Progress FindSlowestLocked() const FOREBAY_REQUIRES(progress_mutex_);
  std::uint64_t StepsFrom(const Progress& from, ExtentId extent) FOREBAY_REQUIRES(mutex_);

  const std::shared_ptr<const StreamSpec> spec_;
  tier::MemorySignal& memory_;
  const std::uint64_t fingerprint_;  // of the order
  // The places of the ranks have a mutex of their own, which is held briefly, so that the delivery
  // of a batch never waits for a search that asks about all extents of a cache.
  mutable Mutex progress_mutex_;
  // Where the batches begin that the reader waits for, and where the last one ends that it got.
  std::multiset<Progress> asked_ FOREBAY_GUARDED_BY(progress_mutex_);
  Progress got_ FOREBAY_GUARDED_BY(progress_mutex_);
  Progress progress_ FOREBAY_GUARDED_BY(progress_mutex_);  // follows from these two
  Progress slowest_ FOREBAY_GUARDED_BY(progress_mutex_);
  // The places of ranks on other nodes, by rank, and in the order of the places.
  std::map<std::uint32_t, Progress> others_ FOREBAY_GUARDED_BY(progress_mutex_);
  std::multiset<Progress> others_in_order_ FOREBAY_GUARDED_BY(progress_mutex_);
  // Held while an answer is computed.
  Mutex mutex_ FOREBAY_ACQUIRED_BEFORE(progress_mutex_);
  // The orders of the epoch that is read and of the one after it, indexed by the epoch's parity.
  std::optional<Order> orders_[2] FOREBAY_GUARDED_BY(mutex_);
  // Earlier answers, because the caches ask about many of their entries for every newcomer, and an
  // answer costs an inverse permutation for each sample that is looked at. Both tables have a fixed
  // size and one place for each hash, and an entry names its epoch, so that no work is due when an
  // epoch begins; where two share a place, the later answer replaces the earlier one.
  std::vector<Reach> reaches_ FOREBAY_GUARDED_BY(mutex_) = std::vector<Reach>(kReaches);
  std::array<Soonest, 512> soonest_ FOREBAY_GUARDED_BY(mutex_);
};

// All open streams. Thread-safe.
class FutureUse {
 public:
  // `memory` is borrowed: the signal of the arena whose extents the streams read.
  explicit FutureUse(tier::MemorySignal& memory) : memory_(memory) {}

  // Eviction knows from now on which extents this stream will need, until Remove.
  std::shared_ptr<StreamFuture> Add(std::shared_ptr<const StreamSpec> spec);
  void Remove(const StreamFuture* future);
  // Tells all streams of the data set where a reader on another node is (StreamFuture::Note).
  void Note(std::uint64_t dataset, const fetch::ReaderPlace& place) const;
  // The minimum over streams; ~0 - 1 where no stream will read it. An answer below `exact_from`
  // need not be exact (tier::NextUse).
  std::uint64_t NextUse(const tier::ExtentKey& key, std::uint64_t exact_from = 0) const;
  // The steps until one of some samples is needed, as above.
  std::uint64_t NextUse(const fetch::UnitSamples& samples) const;

 private:
  // Never changes once it is in futures_: Add and Remove replace it. So the streams are asked
  // without a lock of this class, and a stream that is closed meanwhile is kept until the answer.
  using Futures = std::vector<std::shared_ptr<StreamFuture>>;
  std::shared_ptr<const Futures> futures() const;

  tier::MemorySignal& memory_;
  mutable Mutex mutex_;
  std::shared_ptr<const Futures> futures_ FOREBAY_GUARDED_BY(mutex_) =
      std::make_shared<const Futures>();
};

}  // namespace forebay::stream
