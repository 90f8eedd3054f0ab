// Next uses are estimates: of the samples of an extent or a chunk, at most 64 are looked at, so an
// answer costs some microseconds whatever the size of the data set. Asked and Answered, which every
// batch calls, do not wait even for that.
#include "server/stream/future_use.h"

#include <algorithm>
#include <span>

namespace forebay::stream {
namespace {

constexpr std::uint64_t kNever = fetch::kNeverUsed;

}  // namespace

std::uint64_t StreamFuture::NextNumber() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

// Batches become ready in any order. So the reader is where the first one begins that it still
// waits for, and not behind the last one that was put together: what the first one needs would
// count as needed in the next epoch, and others would not make room for it.
StreamFuture::Moves StreamFuture::UpdateLocked() {
  const Ranks before{.own = progress_, .slowest = slowest_};
  progress_ = asked_.empty() ? got_ : *asked_.begin();
  slowest_ = FindSlowestLocked();
  Moves moves{.is_at_another_place = progress_ != before.own || slowest_ != before.slowest};
  if (progress_ < before.own) look_ahead_at_ = progress_;  // a reader that begins an epoch again
  if (ahead_ && progress_ >= look_ahead_at_) {
    moves.sees_further = true;
    // Once for each place. TakeUpcoming sets the next one.
    look_ahead_at_ = {.epoch = EpochId(~std::uint32_t{0}), .position = ~std::uint64_t{0}};
  }
  return moves;
}

void StreamFuture::Tell(const Moves& moves) const {
  // Some extents are needed later than before, so they may be evicted now.
  if (moves.is_at_another_place) memory_.Notify();
  if (moves.sees_further) ahead_();
}

void StreamFuture::Asked(EpochId epoch, std::uint64_t begin) {
  Moves moves;
  {
    const MutexLock lock(progress_mutex_);
    has_asked_ = true;
    asked_.insert({.epoch = epoch, .position = begin});
    moves = UpdateLocked();
  }
  Tell(moves);
}

void StreamFuture::Answered(EpochId epoch, std::uint64_t begin, std::optional<std::uint64_t> end) {
  Moves moves;
  {
    const MutexLock lock(progress_mutex_);
    const auto asked = asked_.find(StreamPlace{.epoch = epoch, .position = begin});
    if (asked != asked_.end()) asked_.erase(asked);
    if (end) got_ = {.epoch = epoch, .position = *end};
    moves = UpdateLocked();
  }
  Tell(moves);
}

std::optional<ExtentId> StreamFuture::TakeUpcoming() {
  const MutexLock lock(upcoming_mutex_);
  for (;;) {
    StreamPlace reader;
    std::vector<ExtentId> refused;
    {
      const MutexLock progress_lock(progress_mutex_);
      // It is not known at which place the reader will begin.
      if (!has_asked_) return std::nullopt;
      reader = progress_;
      refused.swap(put_back_);
    }
    for (const ExtentId extent : refused) upcoming_.PutBack(extent, reader);
    if (const std::optional<ExtentId> extent = upcoming_.Take(reader)) return extent;
    const MutexLock progress_lock(progress_mutex_);
    look_ahead_at_ = upcoming_.look_again_at();
    // The reader may have come there meanwhile.
    if (progress_ < look_ahead_at_ || progress_ == reader) return std::nullopt;
  }
}

void StreamFuture::PutBackUpcoming(ExtentId extent) {
  const MutexLock lock(progress_mutex_);
  put_back_.push_back(extent);
}

void StreamFuture::Note(const fetch::ReaderPlace& place) {
  const bool is_ours = place.order == fingerprint_ && place.ranks == spec_->plan.ranks() &&
                       place.rank < place.ranks && place.rank != spec_->rank &&
                       place.position <= spec_->plan.sample_count() &&
                       spec_->ReadsRuns(place.epoch);
  if (!is_ours) return;
  bool has_moved = false;
  {
    const MutexLock lock(progress_mutex_);
    const StreamPlace now{.epoch = place.epoch, .position = place.position};
    const auto [known, is_new] = others_.try_emplace(place.rank, now);
    if (!is_new) {
      others_in_order_.erase(others_in_order_.find(known->second));
      known->second = now;
    }
    others_in_order_.insert(now);
    const StreamPlace slowest = FindSlowestLocked();
    has_moved = slowest != slowest_;
    slowest_ = slowest;
  }
  // Extents that only this rank still needed may be evicted now.
  if (has_moved) memory_.Notify();
}

// A rank that is a window behind, besides the batches that it may have under way, is not waited
// for: it may have ended, and what it needs would take ever more memory.
StreamPlace StreamFuture::FindSlowestLocked() const {
  if (others_in_order_.empty()) return progress_;  // a job of one node
  const std::uint64_t samples = spec_->plan.sample_count();
  const std::uint64_t window = WindowSamples(spec_->order.ShapeOf(progress_.epoch), samples);
  const std::uint64_t lag =
      std::min(samples, window + spec_->credits * spec_->plan.global_batch());
  // The place that is `lag` behind this rank, perhaps in the epoch before.
  StreamPlace oldest = progress_;
  if (progress_.position >= lag) {
    oldest.position -= lag;
  } else if (progress_.epoch.value() == 0) {
    oldest.position = 0;
  } else {
    oldest = {.epoch = EpochId(progress_.epoch.value() - 1),
              .position = progress_.position + samples - lag};
  }
  const auto slowest = others_in_order_.lower_bound(oldest);
  return slowest == others_in_order_.end() ? progress_ : std::min(progress_, *slowest);
}

StreamFuture::Ranks StreamFuture::ranks() const {
  const MutexLock lock(progress_mutex_);
  return {.own = progress_, .slowest = slowest_};
}

StreamPlace StreamFuture::progress() const {
  const MutexLock lock(progress_mutex_);
  return progress_;
}

// A reader that jumps between epochs only makes this estimate worse, never the bytes wrong.
const StreamFuture::Reach& StreamFuture::ReachOf(ExtentId extent, EpochId epoch) {
  const std::uint64_t hash =
      (std::uint64_t{extent.value()} * 2 + epoch.value() % 2) * 0x9E3779B97F4A7C15ULL;
  Reach& reach = reaches_[(hash >> 32) % reaches_.size()];
  if (reach.extent == extent.value() && reach.epoch == epoch) return reach;
  const catalog::ExtentInfo info = spec_->catalog->extent(extent);
  Positions positions;
  const std::size_t selected =
      FindPositions(*spec_->selection, OrderOf(epoch), info.first_sample.value(),
                    info.sample_count, positions);
  reach = {.epoch = epoch, .extent = extent.value()};
  for (const std::uint64_t position : std::span(positions).first(selected)) {
    reach.first = std::min(reach.first, position);
    reach.last = std::max(reach.last, position);
  }
  return reach;
}

const Order& StreamFuture::OrderOf(EpochId epoch) {
  std::optional<Order>& order = orders_[epoch.value() % 2];
  if (!order || order->epoch() != epoch) order.emplace(spec_->order, epoch);
  return *order;
}

// Whether this rank's part of a step has the position.
bool StreamFuture::IsMine(std::uint64_t position) const {
  const std::uint64_t rank_batch = spec_->plan.global_batch() / spec_->plan.ranks();
  return position % spec_->plan.global_batch() / rank_batch == spec_->rank;
}

std::uint64_t StreamFuture::SoonestOf(const fetch::UnitSamples& samples, EpochId epoch,
                                      std::uint64_t from) {
  const std::uint64_t hash = (samples.first * 2 + epoch.value() % 2 + (samples.count << 20)) *
                             0x9E3779B97F4A7C15ULL;
  Soonest& known = soonest_[(hash >> 32) % soonest_.size()];
  const bool is_it = known.count != 0 && known.count == samples.count &&
                     known.first == samples.first && known.epoch == epoch;
  if (is_it && known.from <= from && from <= known.soonest) return known.soonest;
  Positions positions;
  const std::size_t selected = FindPositions(*spec_->selection, OrderOf(epoch), samples.first,
                                             samples.count, positions);
  std::uint64_t soonest = ~std::uint64_t{0};
  for (const std::uint64_t position : std::span(positions).first(selected)) {
    if (position >= from && IsMine(position)) soonest = std::min(soonest, position);
  }
  known = {.first = samples.first, .count = samples.count, .epoch = epoch, .from = from,
           .soonest = soonest};
  return soonest;
}

std::uint64_t StreamFuture::StepsUntilAny(const fetch::UnitSamples& samples) {
  const MutexLock lock(mutex_);
  const StreamPlace now = progress();
  for (std::uint32_t later = 0; later < 2; ++later) {
    const EpochId epoch(now.epoch.value() + later);
    if (samples.is_part && epoch != samples.epoch) continue;
    std::uint64_t from = later == 0 ? now.position : 0;
    if (epoch == samples.epoch) from = std::max(from, samples.after);
    const std::uint64_t soonest = SoonestOf(samples, epoch, from);
    if (soonest == ~std::uint64_t{0}) continue;
    const std::uint64_t passed = later == 0 ? 0 : spec_->plan.sample_count();
    return (passed + soonest - std::min(now.position, passed + soonest)) /
           spec_->plan.global_batch();
  }
  return kNever;
}

std::uint64_t StreamFuture::StepsUntilBatch(EpochId epoch, std::uint64_t begin) const {
  const StreamPlace now = progress();
  const std::uint64_t batch = spec_->plan.global_batch();
  if (epoch <= now.epoch) {
    const bool is_ahead = epoch == now.epoch && begin > now.position;
    return is_ahead ? (begin - now.position) / batch : 0;
  }
  // The next epoch: a stream asks for nothing behind it before it has got there.
  return (spec_->plan.sample_count() - std::min(now.position, spec_->plan.sample_count()) + begin) /
         batch;
}

// Returns the steps from a place of the order until the extent is needed, counting into the next
// epoch.
std::uint64_t StreamFuture::StepsFrom(const StreamPlace& from, ExtentId extent) {
  const std::uint64_t batch = spec_->plan.global_batch();
  const std::uint64_t samples = spec_->plan.sample_count();
  const auto [epoch, position] = from;
  const Reach& now = ReachOf(extent, epoch);
  if (now.first > now.last) return kNever;
  if (now.first >= position) return (now.first - position) / batch;
  if (now.last >= position) return 0;
  const Reach& next = ReachOf(extent, EpochId(epoch.value() + 1));
  return (samples - std::min(position, samples) + next.first) / batch;
}

std::uint64_t StreamFuture::StepsUntil(ExtentId extent, std::uint64_t exact_from) {
  const std::uint64_t samples = spec_->plan.sample_count();
  const auto [own, slowest] = ranks();
  // Whatever is selected is needed before the next epoch ends. Where that is soon enough for the
  // caller, there is no need to compute where in the order it is.
  const std::uint64_t latest =
      (samples - std::min(own.position, samples) + samples) / spec_->plan.global_batch();
  if (latest < exact_from) {
    const catalog::ExtentInfo info = spec_->catalog->extent(extent);
    const SelectedRange selected =
        SelectedOf(*spec_->selection, info.first_sample.value(), info.sample_count);
    return selected.count > 0 ? latest : kNever;
  }
  const MutexLock lock(mutex_);
  const std::uint64_t steps = StepsFrom(own, extent);
  // What this rank needs counts from where this rank is, and what a slower one needs from there.
  return slowest == own || steps == kNever ? steps : std::min(steps, StepsFrom(slowest, extent));
}

std::shared_ptr<StreamFuture> FutureUse::Add(std::shared_ptr<const StreamSpec> spec) {
  auto future = std::make_shared<StreamFuture>(std::move(spec), memory_, ahead_);
  {
    const MutexLock lock(mutex_);
    Futures futures = *futures_;
    futures.push_back(future);
    futures_ = std::make_shared<const Futures>(std::move(futures));
  }
  // An extent that waits for memory may be needed sooner now than those that are in its way.
  memory_.Notify();
  return future;
}

void FutureUse::Remove(const StreamFuture* future) {
  {
    const MutexLock lock(mutex_);
    Futures futures = *futures_;
    std::erase_if(futures, [&](const auto& entry) { return entry.get() == future; });
    futures_ = std::make_shared<const Futures>(std::move(futures));
  }
  // Its extents may be needed by nobody now.
  memory_.Notify();
}

void FutureUse::Note(std::uint64_t dataset, const fetch::ReaderPlace& place) const {
  const std::shared_ptr<const Futures> told = futures();
  for (const auto& future : *told) {
    if (future->spec().dataset->hash() == dataset) future->Note(place);
  }
}

std::shared_ptr<const FutureUse::Futures> FutureUse::futures() const {
  const MutexLock lock(mutex_);
  return futures_;
}

std::uint64_t FutureUse::NextUse(const tier::ExtentKey& key, std::uint64_t exact_from) const {
  std::uint64_t soonest = kNever;
  const std::shared_ptr<const Futures> asked = futures();
  for (const auto& future : *asked) {
    if (soonest < exact_from) break;
    // A data set that was replaced by a rebuild has other extents under the same name.
    const StreamSpec& spec = future->spec();
    if (spec.dataset->hash() != key.dataset) continue;
    const std::optional<ExtentId> extent = spec.dataset->ExtentOf(key);
    if (extent) soonest = std::min(soonest, future->StepsUntil(*extent, exact_from));
  }
  return soonest;
}

std::uint64_t FutureUse::NextUse(const fetch::UnitSamples& samples) const {
  std::uint64_t soonest = kNever;
  const std::shared_ptr<const Futures> asked = futures();
  for (const auto& future : *asked) {
    if (future->spec().dataset->hash() != samples.dataset) continue;
    soonest = std::min(soonest, future->StepsUntilAny(samples));
  }
  return soonest;
}

std::optional<stage::UpcomingExtent> FutureUse::Take() {
  const std::shared_ptr<const Futures> asked = futures();
  const std::uint64_t turn = turn_++;
  for (std::size_t i = 0; i < asked->size(); ++i) {
    const std::shared_ptr<StreamFuture>& future = (*asked)[(turn + i) % asked->size()];
    if (const std::optional<ExtentId> extent = future->TakeUpcoming()) {
      return stage::UpcomingExtent{.dataset = future->spec().dataset,
                                   .extent = *extent,
                                   .stream = future->number()};
    }
  }
  return std::nullopt;
}

void FutureUse::PutBack(const stage::UpcomingExtent& refused) {
  // A stream that has been closed meanwhile needs nothing.
  const std::shared_ptr<const Futures> asked = futures();
  for (const auto& future : *asked) {
    if (future->number() == refused.stream) future->PutBackUpcoming(refused.extent);
  }
}

}  // namespace forebay::stream
