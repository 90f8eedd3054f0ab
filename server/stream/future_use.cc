#include "server/stream/future_use.h"

#include <algorithm>

namespace forebay::stream {

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
  const Order order(spec_->order, epoch);
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

std::uint64_t StreamFuture::StepsUntil(ExtentId extent) {
  constexpr std::uint64_t kNever = ~std::uint64_t{0} - 1;
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
  std::uint64_t soonest = ~std::uint64_t{0} - 1;
  for (const auto& future : futures_) {
    if (future->spec().dataset->hash() != key.dataset) continue;
    soonest = std::min(soonest, future->StepsUntil(key.extent));
  }
  return soonest;
}

}  // namespace forebay::stream
