// HeldBatches: the batches that one reader has, and the memory that they occupy. It outlives the
// reader's call if the reader was cut off: none of this memory is used again until the reader says
// which of them it still has, or its process has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "proto/contract/result.h"
#include "server/stream/assembled_batch.h"
#include "server/stream/batch_job.h"

namespace forebay::stream {

// Not thread-safe: guarded by the mutex of the session, or of the registry, that has it.
class HeldBatches {
 public:
  // One batch with the reader.
  struct Held {
    BatchHold hold;
    BatchRoom room;
  };

  // Returns the id by which the reader gives the batch back; each is larger than the one before.
  std::uint64_t Add(BatchHold hold, const BatchRoom& room);
  // Moves the batches with these ids to `taken`, to be freed by the caller. kInvalidArgument for an
  // id that is not held: those before it are taken all the same.
  Status Take(std::span<const std::uint64_t> ids, std::vector<Held>& taken);
  // Takes all batches but those with these ids. Ids that are not held are ignored.
  std::vector<Held> TakeAllBut(std::span<const std::uint64_t> ids);

  std::size_t size() const { return held_.size(); }
  std::vector<std::uint64_t> ids() const;  // ascending
  // Slot memory, and extents in RAM that views pin; each extent counts once.
  std::uint64_t bytes() const;

 private:
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, Held> held_;
};

}  // namespace forebay::stream
