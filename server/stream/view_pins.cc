// A count of batches for each extent. A share keeps references of its own, so no other extent can
// have the address of one that is counted.
#include "server/stream/view_pins.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace forebay::stream {

class ViewPins::Held {
 public:
  Held(std::shared_ptr<Table> table, std::span<const tier::ExtentRef> extents)
      : table_(std::move(table)), extents_(extents.begin(), extents.end()) {
    const MutexLock lock(table_->mutex);
    for (const tier::ExtentRef& extent : extents_) {
      Pinned& pinned = table_->pinned[extent.get()];
      if (pinned.batches++ > 0) continue;
      pinned.bytes = extent->image_bytes;
      table_->bytes += pinned.bytes;
    }
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    const MutexLock lock(table_->mutex);
    for (const tier::ExtentRef& extent : extents_) {
      const auto found = table_->pinned.find(extent.get());
      if (--found->second.batches > 0) continue;
      table_->bytes -= found->second.bytes;
      table_->pinned.erase(found);
    }
  }

 private:
  const std::shared_ptr<Table> table_;
  const std::vector<tier::ExtentRef> extents_;  // unpinned without the mutex
};

ViewPins::Share ViewPins::Take(std::span<const tier::ExtentRef> extents) {
  if (extents.empty()) return nullptr;
  return std::make_shared<const Held>(table_, extents);
}

ViewLimits ViewPins::LimitsFor(std::span<const tier::ExtentRef> extents) const {
  ViewLimits limits;
  limits.pinned_already.reserve(extents.size());
  const MutexLock lock(table_->mutex);
  for (const tier::ExtentRef& extent : extents) {
    limits.pinned_already.push_back(table_->pinned.contains(extent.get()));
  }
  limits.pin_bytes = table_->capacity_bytes - std::min(table_->capacity_bytes, table_->bytes);
  return limits;
}

}  // namespace forebay::stream
