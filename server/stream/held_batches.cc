// A table of batches by id. What is taken out is freed by the caller, without the mutex that guards
// the table, because freeing a block of the arena or an extent takes other locks. Ids are never
// used twice, so that an id which a reader names after it was cut off means one batch, whichever
// call that came on.
#include "server/stream/held_batches.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

namespace forebay::stream {

std::uint64_t HeldBatches::Add(BatchHold hold, const BatchRoom& room) {
  const std::uint64_t id = next_id_++;
  held_.emplace(id, Held{.hold = std::move(hold), .room = room});
  return id;
}

Status HeldBatches::Take(std::span<const std::uint64_t> ids, std::vector<Held>& taken) {
  // Stops at a wrong id. That is an error of the reader's protocol, which ends its stream.
  for (const std::uint64_t id : ids) {
    const auto found = held_.find(id);
    if (found == held_.end()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("batch {} was released but is not held", id));
    }
    taken.push_back(std::move(found->second));
    held_.erase(found);
  }
  return {};
}

std::vector<HeldBatches::Held> HeldBatches::TakeAllBut(std::span<const std::uint64_t> ids) {
  std::vector<Held> taken;
  // A loop, because std::erase_if shows elements as const, and these are moved out. There are at
  // most kCreditsMax batches and ids, so a search for each is cheap.
  for (auto entry = held_.begin(); entry != held_.end();) {
    if (std::ranges::find(ids, entry->first) != ids.end()) {
      ++entry;
      continue;
    }
    taken.push_back(std::move(entry->second));
    entry = held_.erase(entry);
  }
  return taken;
}

std::vector<std::uint64_t> HeldBatches::ids() const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, held] : held_) ids.push_back(id);
  std::ranges::sort(ids);
  return ids;
}

std::uint64_t HeldBatches::bytes() const {
  std::uint64_t bytes = 0;
  std::unordered_set<const tier::ResidentExtent*> counted;
  for (const auto& [id, held] : held_) {
    bytes += held.hold.slot.bytes().size();
    if (held.hold.views == nullptr) continue;
    for (const tier::ExtentRef& extent : held.hold.views->extents()) {
      if (counted.insert(extent.get()).second) bytes += extent->image_bytes;
    }
  }
  return bytes;
}

}  // namespace forebay::stream
