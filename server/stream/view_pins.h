// ViewPins: the extents in RAM that views keep, of all streams together. Their memory cannot be
// used for other extents until the readers release their batches. So there is one limit for all of
// them, and samples beyond it are copied to slots.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "proto/contract/thread_annotations.h"
#include "server/tier/extent_cache.h"

namespace forebay::stream {

// Says which extents the views of a batch may keep in RAM.
enum class ViewUse : std::uint8_t {
  kNothing,
  kWithinLimit,  // what other batches keep anyway, and what is left of the limit
  kEverything,   // whatever the limit is: there is no slot memory for copies
};

// Thread-safe. What it returns may outlive it.
class ViewPins {
 public:
  // The extents that one batch keeps. They no longer count for it once this is gone.
  class Pinned;

  explicit ViewPins(std::uint64_t capacity_bytes)
      : table_(std::make_shared<Table>(capacity_bytes)) {}

  // Keeps those of `extents` that views may point into, and sets in_place for them, by index.
  // Extents that are null or not in RAM are left out. Null: the batch keeps none.
  std::shared_ptr<const Pinned> Pin(std::span<const tier::ExtentRef> extents, ViewUse use,
                                    std::vector<bool>& in_place);

 private:
  struct Use {
    std::uint64_t bytes = 0;
    std::uint32_t batches = 0;
  };
  struct Table {
    explicit Table(std::uint64_t capacity) : capacity_bytes(capacity) {}
    // Whether another batch may keep the extent without exceeding the limit.
    bool HasRoomLocked(const tier::ResidentExtent& extent) const FOREBAY_REQUIRES(mutex);

    const std::uint64_t capacity_bytes;
    Mutex mutex;
    // Each extent counts once for all batches that keep it.
    std::unordered_map<const tier::ResidentExtent*, Use> uses FOREBAY_GUARDED_BY(mutex);
    std::uint64_t bytes FOREBAY_GUARDED_BY(mutex) = 0;
  };

  const std::shared_ptr<Table> table_;
};

class ViewPins::Pinned {
 public:
  explicit Pinned(std::shared_ptr<Table> table) : table_(std::move(table)) {}
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned();

  std::span<const tier::ExtentRef> extents() const { return extents_; }

 private:
  friend class ViewPins;

  const std::shared_ptr<Table> table_;
  std::vector<tier::ExtentRef> extents_;  // unpinned without the mutex
};

}  // namespace forebay::stream
