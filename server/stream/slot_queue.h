// SlotQueue: divides the slot memory among all streams, and keeps the batches that wait for some.
// A stream is promised memory for its batches when it opens. What is left goes to batches of
// unknown size, to batches beyond the promise, and to scratch: memory that an attempt to assemble a
// batch uses for reads from SSD, and gives back at its end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/stream/batch_job.h"
#include "server/stream/slot_ledger.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::stream {

// Thread-safe. A part of BatchScheduler. Functions that may free memory for jobs that wait return
// these jobs: the caller begins another attempt of each.
class SlotQueue {
 public:
  using JobRef = std::shared_ptr<BatchJob>;
  using Jobs = std::vector<JobRef>;

  // `memory` is borrowed.
  explicit SlotQueue(const tier::RamArena& memory);

  // Reserves slot memory for a new stream. kResourceExhausted, with the figures: its batches would
  // not fit in what is left.
  Result<std::shared_ptr<StreamSlots>> Admit(std::shared_ptr<const StreamSpec> spec,
                                             SlotNeed need);
  // Gives back what Admit has reserved.
  void Dismiss(const StreamSlots& slots);

  // New jobs of a stream get what the stream was promised, as far as it lasts.
  void Promise(StreamSlots& slots, const Jobs& jobs);
  // Call before slot memory is asked for. False: the job waits for others' memory, and is parked.
  bool BeginAttempt(const JobRef& job, std::uint64_t scratch_bytes);
  // The job's scratch, if any, is free again. Returns jobs that wait for scratch, and those that
  // wait for any memory if the job takes some that it did not ask for.
  [[nodiscard]] Jobs EndAttempt(BatchJob& job);
  // Ends an attempt that found no memory: parks the job, or returns it with the others if memory
  // was freed since the attempt began.
  [[nodiscard]] Jobs ParkFailed(const JobRef& job);
  // Accounts for a batch that was assembled in `bytes` of slot memory. One that can do without it
  // has to leave others their share of what no stream was promised, even if it has a promise.
  SlotLedger::Excess TakeRoom(BatchJob& job, std::uint64_t bytes, bool can_do_without = false);
  // Whether slot memory for the batch is reserved, so that nobody else lacks what it holds.
  bool HasPromise(const BatchJob& job);
  // A job has ended without a batch for the reader.
  [[nodiscard]] Jobs EndJob(BatchJob& job);
  // Batches were released, and their memory is free.
  [[nodiscard]] Jobs Release(StreamSlots& slots, std::span<const BatchRoom> rooms);
  // Removes and returns the waiting jobs that were submitted at this time or before.
  Jobs TakeExpired(std::int64_t oldest_ns);

 private:
  void GiveRoomLocked(StreamSlots& slots, const BatchRoom& room) FOREBAY_REQUIRES(mutex_);
  Jobs EndScratchLocked(BatchJob& job) FOREBAY_REQUIRES(mutex_);
  Jobs ReleasedLocked() FOREBAY_REQUIRES(mutex_);
  bool LacksRoomLocked(const BatchJob& job) const FOREBAY_REQUIRES(mutex_);

  const tier::RamArena& memory_;
  Mutex mutex_;
  SlotLedger ledger_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t releases_ FOREBAY_GUARDED_BY(mutex_) = 0;  // times that slot memory became free
  Jobs parked_ FOREBAY_GUARDED_BY(mutex_);                 // wait for slot memory
};

}  // namespace forebay::stream
