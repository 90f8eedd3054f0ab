#include "server/stream/stream_session.h"

#include <algorithm>
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
  parts_.scheduler.Submit(shared_from_this(), parts_.slots, names);
  return {};
}

std::shared_ptr<const Order> StreamSession::OrderOf(EpochId epoch) {
  const MutexLock lock(mutex_);
  std::shared_ptr<const Order>& slot = orders_[epoch.value() % 2];
  if (!slot || slot->epoch() != epoch) slot = std::make_shared<Order>(spec_->order, epoch);
  return slot;
}

// Views of held batches pin extents; what they pin together is bounded (docs/design.md, 5).
ViewLimits StreamSession::LimitsFor(std::span<const tier::ExtentRef> refs) const {
  ViewLimits limits;
  limits.pinned_already.reserve(refs.size());
  const MutexLock lock(mutex_);
  for (const tier::ExtentRef& ref : refs) {
    limits.pinned_already.push_back(pins_.contains(ref.get()));
  }
  limits.pin_bytes = parts_.view_pin_bytes - std::min(parts_.view_pin_bytes, pinned_bytes_);
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

// Hands the outcome to the sink.
bool StreamSession::Settle(const BatchJob& job, Result<AssembledBatch>& outcome) {
  const MutexLock sink_lock(sink_mutex_);
  std::uint64_t id = 0;
  std::span<const std::byte> slot;
  {
    const MutexLock lock(mutex_);
    --under_way_;
    if (sink_ != nullptr && outcome.has_value()) {
      id = next_id_++;
      slot = outcome->hold.slot.bytes();
      PinLocked(outcome->hold);
      held_.emplace(id, Held{std::exchange(outcome->hold, {}), job.room});
      CountLocked(job, *outcome);
    }
  }
  if (sink_ == nullptr) return false;
  if (!outcome.has_value()) {
    sink_->Fail(job.name, outcome.error());
    return false;
  }
  parts_.future->Advance(job.name.epoch, outcome->first_position + outcome->sample_ids.size());
  sink_->Deliver(id, *outcome, slot);
  return true;
}

void StreamSession::CountLocked(const BatchJob& job, const AssembledBatch& batch) {
  const std::uint64_t samples = batch.sample_ids.size();
  ++stats_.batches;
  stats_.samples += samples;
  stats_.padded += batch.padded_count;
  stats_.bytes += batch.payload_bytes;
  stats_.ram_samples += batch.ram_samples;
  stats_.ssd_samples += batch.ssd_samples;
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
  const bool first = !closed_.exchange(true, std::memory_order_acq_rel);
  std::unordered_map<std::uint64_t, Held> freed;
  {
    // Whoever comes second waits here too: a delivery may still be under way, and the sink may
    // be gone once Close has returned to any caller.
    const MutexLock sink_lock(sink_mutex_);
    sink_ = nullptr;
    if (!first) return;
    const MutexLock lock(mutex_);
    freed.swap(held_);
    pins_.clear();
    pinned_bytes_ = 0;
  }
  std::vector<BatchRoom> rooms;
  for (const auto& [id, held] : freed) rooms.push_back(held.room);
  freed.clear();
  parts_.slots->board.Abandon();
  parts_.hooks.closed(*this, has_left_.exchange(true));
  parts_.scheduler.Release(*parts_.slots, rooms);
}

}  // namespace forebay::stream
