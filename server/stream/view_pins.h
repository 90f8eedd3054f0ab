// ViewPins: the extents in RAM that views keep, of all streams together. Their memory cannot be
// used for other extents until the readers release their batches. So there is one limit for all of
// them, and samples beyond it are copied to slots.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "proto/contract/thread_annotations.h"
#include "server/stream/gatherer.h"
#include "server/tier/extent_cache.h"

namespace forebay::stream {

// Thread-safe. Its shares may outlive it.
class ViewPins {
 public:
  // The extents that one batch pins. They no longer count for it once the last copy of the share
  // is gone. Null: the batch pins none.
  using Share = std::shared_ptr<const void>;

  explicit ViewPins(std::uint64_t capacity_bytes)
      : table_(std::make_shared<Table>(capacity_bytes)) {}

  // Counts extents that a batch has pinned, each of them once for all batches that pin it.
  Share Take(std::span<const tier::ExtentRef> extents);
  // Returns how much of these extents another batch may pin. Batches that are assembled at the same
  // time are told the same, so together they may exceed the limit by what they pin.
  ViewLimits LimitsFor(std::span<const tier::ExtentRef> extents) const;

 private:
  struct Pinned {
    std::uint64_t bytes = 0;
    std::uint32_t batches = 0;
  };
  struct Table {
    explicit Table(std::uint64_t capacity) : capacity_bytes(capacity) {}

    const std::uint64_t capacity_bytes;
    Mutex mutex;
    std::unordered_map<const tier::ResidentExtent*, Pinned> pinned FOREBAY_GUARDED_BY(mutex);
    std::uint64_t bytes FOREBAY_GUARDED_BY(mutex) = 0;
  };
  class Held;

  const std::shared_ptr<Table> table_;
};

}  // namespace forebay::stream
