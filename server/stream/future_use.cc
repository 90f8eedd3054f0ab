#include "server/stream/future_use.h"

#include <algorithm>

namespace forebay::stream {
namespace {

constexpr std::uint64_t kNever = fetch::kNeverUsed;

}  // namespace

void StreamFuture::Advance(EpochId epoch, std::uint64_t position) {
  std::lock_guard lock(mutex_);
  if (epoch != epoch_) reaches_.clear();
  epoch_ = epoch;
  position_ = position;
}

// A reader that jumps between epochs only makes this estimate worse, never the bytes wrong.
StreamFuture::Reach StreamFuture::ReachOf(ExtentId extent, EpochId epoch) {
  const std::uint64_t key =
      (static_cast<std::uint64_t>(epoch.value() - epoch_.value()) << 32) | extent.value();
  const auto [entry, inserted] = reaches_.try_emplace(key);
  if (!inserted) return entry->second;
  const Order& order = OrderOf(epoch);
  const catalog::ExtentInfo info = spec_->catalog->extent(extent);
  Reach reach;
  for (std::uint32_t i = 0; i < info.sample_count; ++i) {
    const std::uint64_t index =
        spec_->selection->IndexOf(SampleId(info.first_sample.value() + i));
    if (index >= spec_->selection->size()) continue;
    const std::uint64_t position = order.Inverse(index).value();
    reach.first = std::min(reach.first, position);
    reach.last = std::max(reach.last, position);
  }
  entry->second = reach;
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
  constexpr std::uint32_t kExaminedMax = 64;
  const std::uint64_t hash = (samples.first * 2 + epoch.value() % 2 + (samples.count << 20)) *
                             0x9E3779B97F4A7C15ULL;
  Soonest& known = soonest_[(hash >> 32) % soonest_.size()];
  const bool is_it = known.count != 0 && known.count == samples.count &&
                     known.first == samples.first && known.epoch == epoch;
  if (is_it && known.from <= from && from <= known.soonest) return known.soonest;
  const std::uint64_t size = spec_->selection->size();
  const std::uint32_t stride = (samples.count + kExaminedMax - 1) / kExaminedMax;
  std::array<std::uint64_t, kExaminedMax> values;
  std::size_t selected = 0;
  for (std::uint32_t i = 0; i < samples.count; i += stride) {
    const std::uint64_t index = spec_->selection->IndexOf(SampleId(samples.first + i));
    if (index < size) values[selected++] = index;
  }
  const std::span positions = std::span(values).first(selected);
  OrderOf(epoch).Inverse(positions);
  std::uint64_t soonest = ~std::uint64_t{0};
  for (const std::uint64_t position : positions) {
    if (position >= from && IsMine(position)) soonest = std::min(soonest, position);
  }
  known = {.first = samples.first, .count = samples.count, .epoch = epoch, .from = from,
           .soonest = soonest};
  return soonest;
}

std::uint64_t StreamFuture::StepsUntilAny(const fetch::UnitSamples& samples) {
  std::lock_guard lock(mutex_);
  for (std::uint32_t later = 0; later < 2; ++later) {
    const EpochId epoch(epoch_.value() + later);
    if (samples.is_part && epoch != samples.epoch) continue;
    std::uint64_t from = later == 0 ? position_ : 0;
    if (epoch == samples.epoch) from = std::max(from, samples.after);
    const std::uint64_t soonest = SoonestOf(samples, epoch, from);
    if (soonest == ~std::uint64_t{0}) continue;
    const std::uint64_t passed = later == 0 ? 0 : spec_->plan.sample_count();
    return (passed + soonest - std::min(position_, passed + soonest)) /
           spec_->plan.global_batch();
  }
  return kNever;
}

std::uint64_t StreamFuture::StepsUntil(ExtentId extent) {
  std::lock_guard lock(mutex_);
  const std::uint64_t batch = spec_->plan.global_batch();
  const Reach now = ReachOf(extent, epoch_);
  if (now.first > now.last) return kNever;
  if (now.first >= position_) return (now.first - position_) / batch;
  if (now.last >= position_) return 0;
  const Reach next = ReachOf(extent, EpochId(epoch_.value() + 1));
  return (spec_->plan.sample_count() - std::min(position_, spec_->plan.sample_count()) +
          next.first) / batch;
}

void FutureUse::Add(std::shared_ptr<StreamFuture> future) {
  std::lock_guard lock(mutex_);
  futures_.push_back(std::move(future));
}

void FutureUse::Remove(const StreamFuture* future) {
  std::lock_guard lock(mutex_);
  std::erase_if(futures_, [&](const auto& entry) { return entry.get() == future; });
}

std::uint64_t FutureUse::NextUse(const tier::ExtentKey& key) const {
  std::lock_guard lock(mutex_);
  std::uint64_t soonest = kNever;
  for (const auto& future : futures_) {
    // A data set that was replaced by a rebuild has other extents under the same name.
    const StreamSpec& spec = future->spec();
    const bool is_its = spec.dataset->hash() == key.dataset &&
                        key.extent.value() < spec.catalog->extent_count() &&
                        spec.dataset->key(key.extent) == key;
    if (is_its) soonest = std::min(soonest, future->StepsUntil(key.extent));
  }
  return soonest;
}

std::uint64_t FutureUse::NextUse(const fetch::UnitSamples& samples) const {
  std::lock_guard lock(mutex_);
  std::uint64_t soonest = kNever;
  for (const auto& future : futures_) {
    if (future->spec().dataset->hash() != samples.dataset) continue;
    soonest = std::min(soonest, future->StepsUntilAny(samples));
  }
  return soonest;
}

}  // namespace forebay::stream
