// A table of batches by id, and a count of how many of them pin each extent, both under one mutex.
// What is taken out is freed by the caller, without the mutex, because freeing a block of
// the arena or an extent takes other locks. Ids are never used twice, so that an id which a reader
// names after it was cut off means one batch, whichever call that came on.
#include "server/stream/held_batches.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

namespace forebay::stream {

std::uint64_t HeldBatches::Add(BatchHold hold, const BatchRoom& room) {
  const MutexLock lock(mutex_);
  const std::uint64_t id = next_id_++;
  PinLocked(hold);
  held_.emplace(id, Held{.hold = std::move(hold), .room = room});
  return id;
}

Status HeldBatches::Take(std::span<const std::uint64_t> ids, std::vector<Held>& taken) {
  const MutexLock lock(mutex_);
  // Stops at a wrong id. That is an error of the reader's protocol, which ends its stream.
  for (const std::uint64_t id : ids) {
    const auto found = held_.find(id);
    if (found == held_.end()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("batch {} was released but is not held", id));
    }
    UnpinLocked(found->second.hold);
    taken.push_back(std::move(found->second));
    held_.erase(found);
  }
  return {};
}

std::vector<HeldBatches::Held> HeldBatches::TakeAllBut(std::span<const std::uint64_t> ids) {
  std::vector<Held> taken;
  const MutexLock lock(mutex_);
  // A loop, because std::erase_if shows elements as const, and these are moved out. There are at
  // most kCreditsMax batches and ids, so a search for each is cheap.
  for (auto entry = held_.begin(); entry != held_.end();) {
    if (std::ranges::find(ids, entry->first) != ids.end()) {
      ++entry;
      continue;
    }
    UnpinLocked(entry->second.hold);
    taken.push_back(std::move(entry->second));
    entry = held_.erase(entry);
  }
  return taken;
}

std::size_t HeldBatches::size() const {
  const MutexLock lock(mutex_);
  return held_.size();
}

std::vector<std::uint64_t> HeldBatches::ids() const {
  std::vector<std::uint64_t> ids;
  const MutexLock lock(mutex_);
  for (const auto& [id, held] : held_) ids.push_back(id);
  std::ranges::sort(ids);
  return ids;
}

std::uint64_t HeldBatches::bytes() const {
  const MutexLock lock(mutex_);
  std::uint64_t bytes = pinned_bytes_;  // views
  for (const auto& [id, held] : held_) bytes += held.hold.slot.bytes().size();
  return bytes;
}

ViewLimits HeldBatches::LimitsFor(std::span<const tier::ExtentRef> refs,
                                  std::span<const AnsweredBatch> complete,
                                  std::uint64_t view_pin_bytes) const {
  ViewLimits limits;
  limits.pinned_already.reserve(refs.size());
  const MutexLock lock(mutex_);
  // These are the extents that only batches which are not held yet pin. There are few, because held
  // batches mostly pin the same extents.
  std::unordered_set<const tier::ResidentExtent*> soon_pinned;
  std::uint64_t pinned_bytes = pinned_bytes_;
  for (const AnsweredBatch& answered : complete) {
    if (!answered.outcome.has_value()) continue;
    for (const tier::ExtentRef& ref : answered.outcome->hold.extents) {
      if (pins_.contains(ref.get()) || !soon_pinned.insert(ref.get()).second) continue;
      pinned_bytes += ref->image_bytes;
    }
  }
  // An extent that a held batch pins already costs no more memory if another batch points into it.
  for (const tier::ExtentRef& ref : refs) {
    limits.pinned_already.push_back(pins_.contains(ref.get()) || soon_pinned.contains(ref.get()));
  }
  limits.pin_bytes = view_pin_bytes - std::min(view_pin_bytes, pinned_bytes);
  return limits;
}

void HeldBatches::PinLocked(const BatchHold& hold) {
  for (const tier::ExtentRef& ref : hold.extents) {
    // The first batch that points into an extent pays for all of it.
    if (pins_[ref.get()]++ == 0) pinned_bytes_ += ref->image_bytes;
  }
}

void HeldBatches::UnpinLocked(const BatchHold& hold) {
  for (const tier::ExtentRef& ref : hold.extents) {
    const auto pin = pins_.find(ref.get());
    if (--pin->second > 0) continue;
    pinned_bytes_ -= ref->image_bytes;
    pins_.erase(pin);
  }
}

}  // namespace forebay::stream
