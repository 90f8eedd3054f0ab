// A session counts what one reader has asked for and holds, and passes batches from the scheduler
// to the reader's sink. Two mutexes separate the two jobs. `mutex_` guards the counts and is held
// briefly. `sink_mutex_` is held while a batch is handed over, so that batches reach the sink one
// after another, and so that Close can wait for a hand-over: afterwards the sink may be destroyed.
// A third mutex, `close_mutex_`, makes a second caller of Close wait for the first one. The memory
// of batches is freed without the first two, so that no delivery waits for that.
#include "server/stream/stream_session.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/batch_digest.h"
#include "proto/contract/limits.h"

namespace forebay::stream {

StreamSession::StreamSession(std::shared_ptr<const StreamSpec> spec, BatchSink* sink,
                             SessionParts parts)
    : spec_(std::move(spec)), parts_(std::move(parts)), sink_(sink) {}

StreamSession::~StreamSession() { Close(); }

SessionStats StreamSession::stats() const {
  const MutexLock lock(mutex_);
  SessionStats stats = stats_;
  stats.held = static_cast<std::uint32_t>(held_.size());
  return stats;
}

Status StreamSession::Pull(const PullRange& range) {
  if (range.count == 0 || range.count > limits::kPullStepsMax) {
    return Error(ErrorCode::kOutOfRange,
                 fmt::format("a pull names 1 to {} steps, not {}", limits::kPullStepsMax,
                             range.count));
  }
  {
    const MutexLock lock(mutex_);
    // The reader may not know yet that its stream is closed, so this is no error of the reader.
    if (closed()) return {};
    const std::size_t owed = under_way_ + held_.size();
    if (range.count > spec_->credits - std::min<std::size_t>(spec_->credits, owed)) {
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("pulled {} batches with {} of {} credits in use", range.count,
                               owed, spec_->credits));
    }
    under_way_ += range.count;
  }
  std::vector<BatchName> names(range.count, range.first);
  for (std::uint32_t i = 0; i < range.count; ++i) {
    names[i].step = StepId(range.first.step.value() + i);
  }
  // Not under mutex_, for Submit takes SlotQueue's. Steps that do not exist fail one by one, so
  // that the reader learns which.
  parts_.scheduler.Submit(shared_from_this(), parts_.slots, names);
  return {};
}

std::shared_ptr<const Order> StreamSession::OrderOf(EpochId epoch) {
  const MutexLock lock(mutex_);
  // Two epochs are kept: batches of the next epoch are assembled while the last ones of this epoch
  // are still under way.
  std::shared_ptr<const Order>& slot = orders_[epoch.value() % 2];
  if (!slot || slot->epoch() != epoch) slot = std::make_shared<Order>(spec_->order, epoch);
  return slot;
}

// Views of held batches pin extents; what they pin together is bounded (docs/design.md, 5).
ViewLimits StreamSession::LimitsFor(std::span<const tier::ExtentRef> refs,
                                    std::span<const AnsweredBatch> complete) const {
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
  limits.pin_bytes = parts_.view_pin_bytes - std::min(parts_.view_pin_bytes, pinned_bytes);
  return limits;
}

void StreamSession::PinLocked(const BatchHold& hold) {
  for (const tier::ExtentRef& ref : hold.extents) {
    if (pins_[ref.get()]++ == 0) pinned_bytes_ += ref->image_bytes;
  }
}

void StreamSession::UnpinLocked(const BatchHold& hold) {
  for (const tier::ExtentRef& ref : hold.extents) {
    const auto pin = pins_.find(ref.get());
    if (--pin->second > 0) continue;
    pinned_bytes_ -= ref->image_bytes;
    pins_.erase(pin);
  }
}

void StreamSession::Answer(std::span<AnsweredBatch> batches) {
  const MutexLock sink_lock(sink_mutex_);
  std::vector<DeliveredBatch> deliveries;
  {
    const MutexLock lock(mutex_);
    // A batch moves from "under way" to "held" in one step, so its credit is never counted twice or
    // not at all.
    under_way_ -= static_cast<std::uint32_t>(batches.size());
    if (sink_ == nullptr) return;
    for (AnsweredBatch& answered : batches) {
      if (!answered.outcome.has_value()) {
        ++stats_.failed;
        continue;
      }
      AssembledBatch& batch = *answered.outcome;
      const std::uint64_t id = next_id_++;
      deliveries.push_back({.id = id, .batch = &batch, .slot = batch.hold.slot.bytes()});
      PinLocked(batch.hold);
      held_.emplace(id, Held{std::exchange(batch.hold, {}), answered.job->room});
      CountLocked(*answered.job, batch);
      answered.is_taken = true;
    }
  }
  for (const DeliveredBatch& delivery : deliveries) {
    // The batch has its bytes, so next uses are counted from its end on.
    const AssembledBatch& batch = *delivery.batch;
    parts_.future->Advance(batch.name.epoch, batch.first_position + batch.sample_ids.size());
  }
  if (!deliveries.empty()) sink_->Deliver(deliveries);
  for (const AnsweredBatch& answered : batches) {
    if (!answered.is_taken) sink_->Fail(answered.job->name, answered.outcome.error());
  }
}

void StreamSession::CountLocked(const BatchJob& job, const AssembledBatch& batch) {
  const std::uint64_t samples = batch.sample_ids.size();
  ++stats_.batches;
  stats_.samples += samples;
  stats_.padded += batch.padded_count;
  stats_.bytes += batch.payload_bytes;
  stats_.ram_samples += batch.ram_samples;
  stats_.ssd_samples += batch.ssd_samples;
  stats_.other_samples += batch.other_samples;
  stats_.ram_bytes += batch.ram_bytes;
  stats_.ssd_bytes += batch.ssd_bytes;
  stats_.waited_samples += job.waited ? samples : 0;
  stats_.copied_views += batch.copied_views;
  stats_.decode.Add(batch.decode);
  stats_.digest += BatchDigest({.epoch = batch.name.epoch,
                                .step = batch.name.step,
                                .micro_size = batch.name.micro_size,
                                .micro_index = batch.name.micro_index,
                                .rank = spec_->rank},
                               std::as_bytes(std::span(batch.sample_ids)));
}

Status StreamSession::Release(std::span<const std::uint64_t> ids) {
  std::vector<Held> freed;  // destroyed after the lock
  Status status;
  {
    const MutexLock lock(mutex_);
    for (const std::uint64_t id : ids) {
      auto found = held_.find(id);
      // A wrong id ends the stream. The batches before it in the list are released all the same.
      if (found == held_.end()) {
        status = Error(ErrorCode::kInvalidArgument,
                       fmt::format("batch {} was released but is not held", id));
        break;
      }
      UnpinLocked(found->second.hold);
      freed.push_back(std::move(found->second));
      held_.erase(found);
    }
  }
  // The slots are freed before the scheduler is told: it starts batches that wait for this memory.
  std::vector<BatchRoom> rooms;
  for (const Held& held : freed) rooms.push_back(held.room);
  freed.clear();
  parts_.scheduler.Release(*parts_.slots, rooms);
  return status;
}

void StreamSession::Leave() {
  if (!has_left_.exchange(true)) parts_.hooks.left(*this);
}

void StreamSession::Close() {
  // Several threads of gRPC may close a stream: when its reader goes away, and when the call ends.
  // A caller that comes second must find the memory free and the name given back, too. The last
  // reference to a session closes it alone, so the destructor never waits here.
  const MutexLock close_lock(close_mutex_);
  std::unordered_map<std::uint64_t, Held> freed;
  {
    // Waits for a delivery under way, because the sink may be gone once Close has returned.
    const MutexLock sink_lock(sink_mutex_);
    if (std::exchange(sink_, nullptr) == nullptr) return;
    const MutexLock lock(mutex_);
    freed.swap(held_);
    pins_.clear();
    pinned_bytes_ = 0;
  }
  std::vector<BatchRoom> rooms;
  std::vector<BatchHold> holds;
  for (auto& [id, held] : freed) {
    rooms.push_back(held.room);
    holds.push_back(std::move(held.hold));
  }
  freed.clear();
  // Memory that is kept is not free, so no other stream is told that it were.
  if (parts_.hooks.keep(holds)) rooms.clear();
  holds.clear();
  // Batches under way end by themselves, as cancelled; those that wait for rows of other nodes end
  // at once, so that neither the link nor their memory is busy with what nobody reads. Slots that
  // other batches have begun to fill for batches that do not run are freed here.
  closing_.request_stop();
  parts_.slots->board.Abandon();
  parts_.hooks.closed(*this, has_left_.exchange(true));
  parts_.scheduler.Release(*parts_.slots, rooms);
}

}  // namespace forebay::stream
