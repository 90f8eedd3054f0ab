// UpcomingReads: what open streams will read next, as the stager asks it (stream/future_use.h).
// The stager reads these extents ahead of need, while no reader waits for others.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/contract/ids.h"
#include "server/stage/dataset.h"

namespace forebay::stage {

struct UpcomingExtent {
  Dataset* dataset = nullptr;
  ExtentId extent = ExtentId(0);
  std::uint64_t stream = 0;  // which stream needs it; for PutBack
};

// Thread-safe.
class UpcomingReads {
 public:
  virtual ~UpcomingReads() = default;
  // Takes the extent of some stream that it needs soonest, among those that were not taken yet; it
  // may be on a tier. Nullopt: none is needed soon. May compute for long; the stager calls it from
  // one thread at a time.
  virtual std::optional<UpcomingExtent> Take() = 0;
  // There is no memory now for an extent that was taken, because what fills it is needed sooner.
  // The next call of Take learns of it: Take returns it again when the stream has read on, and
  // nothing else of this stream before that. Returns at once.
  virtual void PutBack(const UpcomingExtent& refused) = 0;
};

}  // namespace forebay::stage
