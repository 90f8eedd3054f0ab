// A count of batches for each extent. Whoever counts an extent keeps a reference to it, so no other
// extent can have the address of one that is counted. Whether an extent may be kept is decided and
// counted in one step, so batches that are assembled at the same time do not exceed the limit
// together.
#include "server/stream/view_pins.h"

#include <utility>

namespace forebay::stream {

bool ViewPins::Table::HasRoomLocked(const tier::ResidentExtent& extent) const {
  if (uses.contains(&extent)) return true;
  // The limit may be exceeded already (ViewUse::kEverything). Then no room is left.
  return bytes <= capacity_bytes && extent.image_bytes <= capacity_bytes - bytes;
}

std::shared_ptr<const ViewPins::Pinned> ViewPins::Pin(std::span<const tier::ExtentRef> extents,
                                                      ViewUse use, std::vector<bool>& in_place) {
  in_place.assign(extents.size(), false);
  if (use == ViewUse::kNothing) return nullptr;
  // Made before anything is counted, because it could fail.
  auto pinned = std::make_shared<Pinned>(table_);
  pinned->extents_.reserve(extents.size());
  {
    Table& table = *table_;
    const MutexLock lock(table.mutex);
    for (std::size_t i = 0; i < extents.size(); ++i) {
      const tier::ExtentRef& extent = extents[i];
      if (!extent || extent->tier != tier::TierKind::kRam) continue;
      if (use == ViewUse::kWithinLimit && !table.HasRoomLocked(*extent)) continue;
      Use& of_extent = table.uses[extent.get()];
      if (of_extent.batches++ == 0) {
        of_extent.bytes = extent->image_bytes;
        table.bytes += of_extent.bytes;
      }
      pinned->extents_.push_back(extent);
      in_place[i] = true;
    }
  }
  if (pinned->extents_.empty()) return nullptr;
  return pinned;
}

ViewPins::Pinned::~Pinned() {
  const MutexLock lock(table_->mutex);
  for (const tier::ExtentRef& extent : extents_) {
    const auto found = table_->uses.find(extent.get());
    if (--found->second.batches > 0) continue;
    table_->bytes -= found->second.bytes;
    table_->uses.erase(found);
  }
}

}  // namespace forebay::stream
