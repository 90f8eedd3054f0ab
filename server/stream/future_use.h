// FutureUse: computes when an open stream needs an extent next (docs/design.md, 6): the inverse of
// the stream's order says at which position each sample of the extent is. Eviction asks it what is
// needed last, and the stager what is needed first.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/thread_annotations.h"
#include "server/fetch/decoded_cache.h"
#include "server/fetch/row_source.h"
#include "server/stage/upcoming_reads.h"
#include "server/stream/sample_positions.h"
#include "server/stream/stream_spec.h"
#include "server/stream/upcoming_extents.h"
#include "server/tier/extent_key.h"
#include "server/tier/ram/memory_signal.h"

namespace forebay::stream {

// What one stream will read. Thread-safe.
class StreamFuture {
 public:
  // `memory` is borrowed, and is told when extents are needed at other times than before. `ahead`
  // is called when TakeUpcoming may have an extent; null: it is not used.
  StreamFuture(std::shared_ptr<const StreamSpec> spec, tier::MemorySignal& memory,
               std::function<void()> ahead = nullptr)
      : spec_(std::move(spec)),
        memory_(memory),
        ahead_(std::move(ahead)),
        fingerprint_(spec_->order.Fingerprint()),
        upcoming_(spec_) {}

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
  // Another one for each StreamFuture of this process.
  std::uint64_t number() const { return number_; }
  // As UpcomingExtents; nullopt before the reader has asked for a batch. PutBackUpcoming takes
  // effect at the next call of TakeUpcoming.
  std::optional<ExtentId> TakeUpcoming();
  void PutBackUpcoming(ExtentId extent);
  const StreamSpec& spec() const { return *spec_; }

 private:
  static constexpr std::size_t kReaches = 4096;
  static std::uint64_t NextNumber();
  // First and last position in an epoch of the samples of an extent; first > last: none of them is
  // selected.
  struct Reach {
    EpochId epoch;
    std::uint32_t extent = ~std::uint32_t{0};
    std::uint64_t first = ~std::uint64_t{0};
    std::uint64_t last = 0;
  };
  const Reach& ReachOf(ExtentId extent, EpochId epoch) FOREBAY_REQUIRES(mutex_);
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
  // Returns how far this rank has read.
  StreamPlace progress() const FOREBAY_EXCLUDES(progress_mutex_);
  struct Ranks {
    StreamPlace own;
    StreamPlace slowest;  // of all ranks, as far as it is known here
  };
  Ranks ranks() const FOREBAY_EXCLUDES(progress_mutex_);
  struct Moves {
    bool is_at_another_place = false;  // this rank, or the slowest one
    bool sees_further = false;         // TakeUpcoming may have an extent
  };
  Moves UpdateLocked() FOREBAY_REQUIRES(progress_mutex_);
  // Tells those who wait for memory, and those who read ahead.
  void Tell(const Moves& moves) const FOREBAY_EXCLUDES(progress_mutex_);
  StreamPlace FindSlowestLocked() const FOREBAY_REQUIRES(progress_mutex_);
  std::uint64_t StepsFrom(const StreamPlace& from, ExtentId extent) FOREBAY_REQUIRES(mutex_);

  const std::shared_ptr<const StreamSpec> spec_;
  tier::MemorySignal& memory_;
  const std::function<void()> ahead_;
  const std::uint64_t number_ = NextNumber();
  const std::uint64_t fingerprint_;  // of the order
  // The places of the ranks have a mutex of their own, which is held briefly, so that the delivery
  // of a batch never waits for a search that asks about all extents of a cache.
  mutable Mutex progress_mutex_;
  // Where the batches begin that the reader waits for, and where the last one ends that it got.
  std::multiset<StreamPlace> asked_ FOREBAY_GUARDED_BY(progress_mutex_);
  StreamPlace got_ FOREBAY_GUARDED_BY(progress_mutex_);
  StreamPlace progress_ FOREBAY_GUARDED_BY(progress_mutex_);  // follows from these two
  StreamPlace slowest_ FOREBAY_GUARDED_BY(progress_mutex_);
  // The places of ranks on other nodes, by rank, and in the order of the places.
  std::map<std::uint32_t, StreamPlace> others_ FOREBAY_GUARDED_BY(progress_mutex_);
  std::multiset<StreamPlace> others_in_order_ FOREBAY_GUARDED_BY(progress_mutex_);
  // Where the reader is to be when ahead_ is called next.
  StreamPlace look_ahead_at_ FOREBAY_GUARDED_BY(progress_mutex_);
  bool has_asked_ FOREBAY_GUARDED_BY(progress_mutex_) = false;
  std::vector<ExtentId> put_back_ FOREBAY_GUARDED_BY(progress_mutex_);
  Mutex upcoming_mutex_ FOREBAY_ACQUIRED_BEFORE(progress_mutex_);
  UpcomingExtents upcoming_ FOREBAY_GUARDED_BY(upcoming_mutex_);
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
class FutureUse final : public stage::UpcomingReads {
 public:
  // `memory` is borrowed: the signal of the arena whose extents the streams read.
  explicit FutureUse(tier::MemorySignal& memory) : memory_(memory) {}
  // `ahead` is called, from threads that deliver batches, when Take may have an extent. Call before
  // the first Add; without this call, nothing reads ahead.
  void SetReadAhead(std::function<void()> ahead) { ahead_ = std::move(ahead); }

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

  // For the stager. Streams take turns.
  std::optional<stage::UpcomingExtent> Take() override;
  void PutBack(const stage::UpcomingExtent& refused) override;

 private:
  // Never changes once it is in futures_: Add and Remove replace it. So the streams are asked
  // without a lock of this class, and a stream that is closed meanwhile is kept until the answer.
  using Futures = std::vector<std::shared_ptr<StreamFuture>>;
  std::shared_ptr<const Futures> futures() const;

  tier::MemorySignal& memory_;
  std::function<void()> ahead_;
  std::atomic<std::uint64_t> turn_ = 0;  // of the streams, for Take
  mutable Mutex mutex_;
  std::shared_ptr<const Futures> futures_ FOREBAY_GUARDED_BY(mutex_) =
      std::make_shared<const Futures>();
};

}  // namespace forebay::stream
