// SlotLedger does the sums. This keeps the jobs that wait ("parked"), and decides whom freed memory
// can help: starting all of them each time would plan every waiting batch again for nothing.
#include "server/stream/slot_queue.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace forebay::stream {
namespace {

// A stream whose batches have no known size is promised memory for so many batches. Other streams
// are promised memory for as many batches as they have credits.
constexpr std::uint32_t kPromisedBatches = 2;

void EraseUnpromised(StreamSlots& slots, const BatchJob& job) {
  std::erase_if(slots.unpromised, [&](const auto& other) { return other.lock().get() == &job; });
}

}  // namespace

SlotQueue::SlotQueue(const tier::RamArena& memory)
    : memory_(memory), ledger_(memory.capacity_bytes()) {}

Result<std::shared_ptr<StreamSlots>> SlotQueue::Admit(std::shared_ptr<const StreamSpec> spec,
                                                      SlotNeed need) {
  std::uint32_t promised =
      spec->batch_bytes_max > 0 ? spec->credits : std::min(spec->credits, kPromisedBatches);
  const MutexLock lock(mutex_);
  if (spec->client.is_remote) {
    // Readers of lost nodes must leave room: a stream of this node has nowhere else to go.
    const Status fits_twice = ledger_.Reserve(need, 2 * promised);
    if (!fits_twice.has_value()) {
      return fits_twice.error().WithContext("a client of another node is served only where a "
                                            "stream of this node that is as large fits as well");
    }
    ledger_.GiveBack(need, 2 * promised);
  }
  Status reserved = ledger_.Reserve(need, promised);
  if (!reserved.has_value() && spec->delivery == Delivery::kViews && !spec->inline_payload) {
    // Extents in RAM need no slots for views: such a stream makes do with what others leave.
    need = {};
    promised = std::min(spec->credits, kPromisedBatches);
    reserved = ledger_.Reserve(need, promised);
  }
  FOREBAY_TRY(reserved);
  return std::make_shared<StreamSlots>(std::move(spec), need, promised);
}

void SlotQueue::Dismiss(const StreamSlots& slots) {
  const MutexLock lock(mutex_);
  ledger_.GiveBack(slots.need, slots.promised);
}

void SlotQueue::Promise(StreamSlots& slots, const Jobs& jobs) {
  const MutexLock lock(mutex_);
  for (const JobRef& job : jobs) {
    job->room.is_promised = slots.promises_left > 0;
    if (job->room.is_promised) {
      --slots.promises_left;
    } else {
      slots.unpromised.push_back(job);
    }
  }
}

bool SlotQueue::BeginAttempt(const JobRef& job, std::uint64_t scratch_bytes) {
  const MutexLock lock(mutex_);
  job->releases_seen = releases_;
  job->slots_were_empty = job->is_starved && memory_.used_bytes() == 0;
  job->is_denied = false;
  if (LacksRoomLocked(*job)) {
    parked_.push_back(job);  // until readers give something back
    return false;
  }
  if (scratch_bytes == 0 && !job->is_starved) return true;
  if (!ledger_.TakeScratch(scratch_bytes, job->is_starved)) {
    job->is_denied = true;
    parked_.push_back(job);
    return false;
  }
  job->takes_unasked = false;
  job->has_scratch = true;
  job->scratch_bytes = scratch_bytes;
  return true;
}

// Returns only those to which the ledger denied scratch: what others lack does not come back with
// it.
SlotQueue::Jobs SlotQueue::EndScratchLocked(BatchJob& job) {
  Jobs ready;
  if (!job.has_scratch) return ready;
  job.has_scratch = false;
  ledger_.EndScratch(job.scratch_bytes, job.is_starved);
  std::erase_if(parked_, [&ready](const JobRef& parked) {
    if (parked->is_denied) ready.push_back(parked);
    return parked->is_denied;
  });
  return ready;
}

// Whether the stream has used up what it was promised, and its share of what all streams have left.
bool SlotQueue::LacksRoomLocked(const BatchJob& job) const {
  const StreamSlots& slots = *job.slots;
  return !job.room.is_promised && slots.need.held_bytes > 0 &&
         !ledger_.HasExcess(slots.need.held_bytes, slots.excess_bytes);
}

// Returns only jobs that the memory can help, and those that are to end: others would find, after
// planning their batch again, that they still lack room.
SlotQueue::Jobs SlotQueue::ReleasedLocked() {
  ++releases_;
  Jobs ready;
  std::erase_if(parked_, [&](const JobRef& parked) FOREBAY_REQUIRES(mutex_) {
    if (LacksRoomLocked(*parked) && !parked->owner->closed()) return false;
    ready.push_back(parked);
    return true;
  });
  return ready;
}

SlotQueue::Jobs SlotQueue::EndAttempt(BatchJob& job) {
  // Most batches come from RAM, and take what they were promised. Both members are written by the
  // thread that makes the attempt, so they are read without the lock.
  if (!job.has_scratch && !job.takes_unasked) return {};
  const MutexLock lock(mutex_);
  Jobs ready = EndScratchLocked(job);
  if (job.takes_unasked) std::ranges::move(ReleasedLocked(), std::back_inserter(ready));
  return ready;
}

SlotQueue::Jobs SlotQueue::ParkFailed(const JobRef& job) {
  const MutexLock lock(mutex_);
  Jobs ready = EndScratchLocked(*job);
  if (!job->is_starved) {
    // The memory that this attempt held may have made another job's attempt fail, so the others
    // are tried again. Done once in a job's life: otherwise two jobs that cannot both succeed
    // would wake each other for ever.
    std::ranges::move(ReleasedLocked(), std::back_inserter(ready));
  }
  job->is_starved = true;
  (releases_ != job->releases_seen ? ready : parked_).push_back(job);
  return ready;
}

SlotLedger::Excess SlotQueue::TakeRoom(BatchJob& job, std::uint64_t bytes,
                                       bool can_do_without) {
  const MutexLock lock(mutex_);
  StreamSlots& slots = *job.slots;
  const std::uint64_t promised = job.room.is_promised ? slots.need.held_bytes : 0;
  const std::uint64_t excess = bytes - std::min(bytes, promised);
  if (excess > 0) {
    const bool goes_first = job.room.is_promised && !can_do_without;
    const auto of_stream = goes_first ? std::nullopt : std::optional(slots.excess_bytes);
    const SlotLedger::Excess answer = ledger_.TakeExcess(excess, of_stream);
    if (answer != SlotLedger::Excess::kTaken) return answer;
    job.room.excess_bytes = excess;
    slots.excess_bytes += excess;
  }
  if (!job.room.is_promised) EraseUnpromised(slots, job);
  return SlotLedger::Excess::kTaken;
}

bool SlotQueue::HasPromise(const BatchJob& job) {
  if (job.slots->need.held_bytes == 0) return false;
  const MutexLock lock(mutex_);
  return job.room.is_promised;
}

void SlotQueue::GiveRoomLocked(StreamSlots& slots, const BatchRoom& room) {
  ledger_.EndExcess(room.excess_bytes);
  slots.excess_bytes -= room.excess_bytes;
  if (!room.is_promised) return;
  while (!slots.unpromised.empty()) {
    const JobRef first = slots.unpromised.front().lock();
    slots.unpromised.erase(slots.unpromised.begin());
    if (first == nullptr) continue;
    first->room.is_promised = true;
    return;
  }
  ++slots.promises_left;
}

SlotQueue::Jobs SlotQueue::EndJob(BatchJob& job) {
  const MutexLock lock(mutex_);
  EraseUnpromised(*job.slots, job);
  GiveRoomLocked(*job.slots, std::exchange(job.room, {}));
  return ReleasedLocked();
}

SlotQueue::Jobs SlotQueue::Release(StreamSlots& slots, std::span<const BatchRoom> rooms) {
  const MutexLock lock(mutex_);
  for (const BatchRoom& room : rooms) GiveRoomLocked(slots, room);
  return ReleasedLocked();
}

SlotQueue::Jobs SlotQueue::TakeExpired(std::int64_t oldest_ns) {
  Jobs expired;
  const MutexLock lock(mutex_);
  std::erase_if(parked_, [&](const JobRef& job) {
    if (job->started_ns > oldest_ns) return false;
    expired.push_back(job);
    return true;
  });
  return expired;
}

}  // namespace forebay::stream
