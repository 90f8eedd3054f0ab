// A session counts what one reader has asked for and has, and passes batches from the scheduler to
// the reader's sink. Two mutexes separate the two jobs. `mutex_` guards the counts and the table of
// batches that the reader has, and is held briefly. `sink_mutex_` is held while a batch is handed
// over, so that batches reach the sink one after another, and so that Close can wait for a
// hand-over: afterwards the sink may be destroyed.
// A third mutex, `close_mutex_`, makes a second caller of Close wait for the first one. The memory
// of batches is freed without the first two, so that no delivery waits for that.
#include "server/stream/stream_session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/batch_digest.h"
#include "proto/contract/limits.h"

namespace forebay::stream {
namespace {

// The position at which the step of a batch begins; that of a step that does not exist is the end.
std::uint64_t BeginOf(const StreamSpec& spec, const BatchName& name) {
  return std::min(name.step.value(), spec.plan.steps()) * spec.plan.global_batch();
}

}  // namespace

StreamSession::StreamSession(StreamReader reader, BatchSink* sink, SessionParts parts)
    : spec_(std::move(reader.spec)),
      slots_(std::move(reader.slots)),
      process_(std::move(reader.process)),
      parts_(std::move(parts)),
      sink_(sink),
      held_(std::move(reader.held)) {}

StreamSession::~StreamSession() { Close(); }

SessionStats StreamSession::stats() const {
  const MutexLock lock(mutex_);
  SessionStats stats = stats_;
  stats.held = static_cast<std::uint32_t>(held_.size());
  return stats;
}

std::vector<std::uint64_t> StreamSession::held_ids() const {
  const MutexLock lock(mutex_);
  return held_.ids();
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
    parts_.future->Asked(names[i].epoch, BeginOf(*spec_, names[i]));
  }
  // Not under mutex_, for Submit takes SlotQueue's. Steps that do not exist fail one by one, so
  // that the reader learns which.
  parts_.scheduler.Submit(shared_from_this(), slots_, names);
  return {};
}

std::uint64_t StreamSession::StepsUntil(const BatchName& name) const {
  return parts_.future->StepsUntilBatch(name.epoch, BeginOf(*spec_, name));
}

void StreamSession::Answer(std::span<AnsweredBatch> batches) {
  const MutexLock sink_lock(sink_mutex_);
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
      answered.slot = batch.hold.slot.bytes();
      answered.id = held_.Add(std::exchange(batch.hold, {}), answered.job->room);
      CountLocked(*answered.job, batch);
    }
  }
  for (const AnsweredBatch& answered : batches) {
    // A batch that has its bytes needs no extent any more.
    const BatchName& name = answered.job->name;
    std::optional<std::uint64_t> end;
    if (answered.is_taken()) {
      end = answered.outcome->first_position + answered.outcome->sample_ids.size();
    }
    parts_.future->Answered(name.epoch, BeginOf(*spec_, name), end);
  }
  sink_->Deliver(batches);
}

void StreamSession::CountLocked(const BatchJob& job, const AssembledBatch& batch) {
  const std::uint64_t samples = batch.sample_ids.size();
  ++stats_.batches;
  stats_.samples += samples;
  stats_.padded += batch.padded_count;
  stats_.bytes += batch.payload_bytes;
  stats_.waited_samples += job.waited ? samples : 0;
  stats_.Add(batch);
  stats_.digest += BatchDigest({.epoch = batch.name.epoch,
                                .step = batch.name.step,
                                .micro_size = batch.name.micro_size,
                                .micro_index = batch.name.micro_index,
                                .rank = spec_->rank},
                               std::as_bytes(std::span(batch.sample_ids)));
}

Status StreamSession::Release(std::span<const std::uint64_t> ids) {
  std::vector<HeldBatches::Held> freed;
  Status taken;
  {
    const MutexLock lock(mutex_);
    // By a later call of the reader, which has said what it still has.
    if (closed()) return {};
    // A wrong id ends the stream. The batches before it in the list are freed all the same.
    taken = held_.Take(ids, freed);
  }
  parts_.scheduler.Release(*slots_, std::move(freed));
  return taken;
}

void StreamSession::Leave() {
  if (!has_left_.exchange(true)) parts_.hooks.left(*this);
}

void StreamSession::CloseAs(const Closing& closing) {
  // Several threads of gRPC may close a stream: when its reader goes away, and when the call ends.
  // A caller that comes second must find the memory free, or kept, and the name given back, too.
  // The last reference to a session closes it alone, so the destructor never waits here.
  const MutexLock close_lock(close_mutex_);
  BatchSink* sink = nullptr;
  {
    // Waits for a delivery under way, because the sink may be gone once Close has returned.
    const MutexLock sink_lock(sink_mutex_);
    sink = std::exchange(sink_, nullptr);
    if (sink == nullptr) return;
  }
  // Batches under way end by themselves, as cancelled; those that wait for rows of other nodes end
  // at once, so that neither the link nor their memory is busy with what nobody reads. Slots that
  // other batches have begun to fill for batches that do not run are freed here.
  closing_.request_stop();
  slots_->board.Abandon();
  StreamReader reader{.spec = spec_, .slots = slots_, .held = {}, .process = process_};
  {
    const MutexLock lock(mutex_);
    reader.held = std::exchange(held_, {});
  }
  const bool is_alive = process_ != nullptr && !process_->HasEnded();
  // The memory is free before the registry is told, which lets a new stream have it.
  if (closing.reader_is_done || !(is_alive || parts_.hooks.keeps_all())) {
    parts_.scheduler.Release(*slots_, reader.held.TakeAllBut({}));
  }
  parts_.hooks.closed(*this, std::move(reader), has_left_.exchange(true));
  parts_.scheduler.Release(*slots_, {});
  // The sink is still there: its owner calls Close before it goes, which waits for this call.
  if (closing.by_other) sink->Closed();
}

}  // namespace forebay::stream
