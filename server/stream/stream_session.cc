#include "server/stream/stream_session.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/batch_digest.h"
#include "proto/contract/limits.h"
#include "server/stream/stream_job.h"
#include "server/stream/stream_registry.h"

namespace forebay::stream {
namespace {

// A global order takes a sample here and a sample there; all others take runs of them.
fetch::Fetcher::Need NeedOf(const StreamSpec& spec) {
  return spec.order.shape.mode == OrderMode::kGlobal ? fetch::Fetcher::Need::kSamples
                                                     : fetch::Fetcher::Need::kRuns;
}

bool IsExhausted(const Result<AssembledBatch>& batch) {
  return !batch.has_value() && batch.error().code() == ErrorCode::kResourceExhausted;
}

}  // namespace

StreamSession::StreamSession(StreamRegistry& registry, std::shared_ptr<const StreamSpec> spec,
                             BatchSink* sink, const SlotNeed& need, std::uint32_t promised)
    : registry_(registry),
      spec_(spec),
      future_(std::make_shared<StreamFuture>(std::move(spec))),
      need_(need),
      promised_(promised),
      board_(spec_),
      sink_(sink) {}

StreamSession::~StreamSession() { Close(); }

SessionStats StreamSession::stats() const {
  std::lock_guard lock(mutex_);
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
    std::lock_guard lock(mutex_);
    if (closed()) return {};
    const std::size_t owed = under_way_ + held_.size();
    if (range.count > spec_->credits - std::min<std::size_t>(spec_->credits, owed)) {
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("pulled {} batches with {} of {} credits in use", range.count,
                               owed, spec_->credits));
    }
    under_way_ += range.count;
  }
  std::vector<std::shared_ptr<Job>> jobs;
  for (std::uint32_t i = 0; i < range.count; ++i) {
    auto job = std::make_shared<Job>();
    job->session = shared_from_this();
    job->name = range.first;
    job->name.step = StepId(range.first.step.value() + i);
    job->started_ns = registry_.parts_.clock.NowNs();
    const bool shares_slots = spec_->is_packed() && spec_->batch_bytes_max > 0;
    if (shares_slots) job->slot = board_.Open(job->name, need_.held_bytes);
    jobs.push_back(std::move(job));
  }
  registry_.Promise(*this, jobs);
  for (const std::shared_ptr<Job>& job : jobs) Start(job);
  return {};
}

void StreamSession::Start(const std::shared_ptr<Job>& job) {
  registry_.parts_.executor.Post(
      [this, job](io::IoQueue& queue) { Advance(job, queue); });
}

std::shared_ptr<const Order> StreamSession::OrderOf(EpochId epoch) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<const Order>& slot = orders_[epoch.value() % 2];
  if (!slot || slot->epoch() != epoch) slot = std::make_shared<Order>(spec_->order, epoch);
  return slot;
}

// Views of held batches pin extents; what they pin together is bounded (design 5).
AssembleLimits StreamSession::LimitsFor(std::span<const tier::ExtentRef> refs) const {
  AssembleLimits limits;
  if (spec_->delivery != Delivery::kViews) return limits;
  limits.pinned_already.reserve(refs.size());
  std::lock_guard lock(mutex_);
  for (const tier::ExtentRef& ref : refs) {
    limits.pinned_already.push_back(pins_.contains(ref.get()));
  }
  const std::uint64_t limit = registry_.options_.view_pin_bytes;
  limits.pin_bytes = limit - std::min(limit, pinned_bytes_);
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

// What the job waited for, in the order of `extents`; false where something is missing.
bool StreamSession::TakeWaitedFor(const Job& job, std::span<const ExtentId> extents,
                                  std::vector<tier::ExtentRef>& refs) {
  const std::vector<tier::ExtentRef>& held = job.refs;
  if (held.empty()) return false;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const auto is_it = [&](const tier::ExtentRef& ref) { return ref->key.extent == extents[i]; };
    const bool in_order = i < held.size() && is_it(held[i]);
    const auto found = in_order ? held.begin() + static_cast<std::ptrdiff_t>(i)
                                : std::ranges::find_if(held, is_it);
    if (found == held.end()) {
      refs.clear();
      return false;
    }
    refs.push_back(*found);
  }
  return true;
}

// What the plan needs; false where the job, without the assembler, goes on later.
bool StreamSession::PinExtents(const std::shared_ptr<Job>& job,
                               std::unique_ptr<BatchAssembler>& assembler,
                               std::vector<tier::ExtentRef>& refs) {
  const std::span<const ExtentId> extents = assembler->extents();
  if (TakeWaitedFor(*job, extents, refs)) {
    job->refs.clear();
    return true;
  }
  if (!job->refs.empty() && !job->wants_all_extents) {
    // What was decoded has gone while the job waited: from now on it does not depend on that.
    job->wants_all_extents = true;
    registry_.GiveAssembler(std::move(assembler));
    Start(job);
    return false;
  }
  if (registry_.parts_.fetcher.TryAcquire(*spec_->dataset, extents, NeedOf(*spec_), refs)) {
    job->refs.clear();
    return true;
  }
  std::vector<ExtentId> missing(extents.begin(), extents.end());
  registry_.GiveAssembler(std::move(assembler));
  AwaitExtents(job, std::move(missing));
  return false;
}

void StreamSession::Advance(const std::shared_ptr<Job>& job, io::IoQueue& queue) {
  if (closed()) return Finish(job, Error(ErrorCode::kCancelled, "the stream was closed"));
  std::unique_ptr<BatchAssembler> assembler = registry_.TakeAssembler();
  const std::shared_ptr<const Order> order = OrderOf(job->name.epoch);
  const Status planned =
      assembler->Plan(*spec_, *order, job->name, job->wants_all_extents,
                      {.own = job->slot, .board = &board_, .order = order.get()});
  if (!planned.has_value()) {
    registry_.GiveAssembler(std::move(assembler));
    return Finish(job, planned.error());
  }
  std::vector<tier::ExtentRef> refs;
  if (!PinExtents(job, assembler, refs)) return;
  const bool reads_ssd = std::ranges::any_of(refs, [](const tier::ExtentRef& ref) {
    return ref->tier != tier::TierKind::kRam;
  });
  // Of a packed batch of unknown size the slot itself is taken unasked.
  const bool is_packed = spec_->is_packed();
  job->takes_unasked = spec_->batch_bytes_max == 0 && (reads_ssd || is_packed);
  if (!registry_.BeginAttempt(job, reads_ssd ? need_.scratch_bytes : 0)) {
    return registry_.GiveAssembler(std::move(assembler));
  }
  const AssembleLimits limits = LimitsFor(refs);
  std::vector<BadExtent> bad;  // wrong bytes from SSD: fetched anew before anybody is told
  StreamRegistry::ResumeGathered(*job, *assembler);
  Result<AssembledBatch> batch = assembler->Assemble(*spec_, limits, std::move(refs),
                                                     registry_.parts_.slots, queue, bad);
  const SlotLedger::Excess excess =
      batch.has_value() ? registry_.TakeRoom(*job, batch->hold.slot.bytes().size())
                        : SlotLedger::Excess::kTaken;
  const bool is_exhausted = IsExhausted(batch);
  if (is_exhausted || excess != SlotLedger::Excess::kTaken) {
    registry_.KeepGathered(*job, *assembler);
  }
  registry_.GiveAssembler(std::move(assembler));
  if (!batch.has_value() && !bad.empty() && job->refetches < limits::kRefetchMax) {
    ++job->refetches;
    registry_.EndAttempt(*job);
    for (const auto& [extent, error] : bad) {
      registry_.parts_.fetcher.ReportBad(extent, error, registry_.parts_.clock.NowNs());
    }
    bad.clear();
    return Start(job);
  }
  if (is_exhausted) {
    const bool are_empty = registry_.parts_.slots.used_bytes() == 0;
    return LackSlots(job, batch.error(), are_empty && job->slots_were_empty);
  }
  if (excess != SlotLedger::Excess::kTaken) {
    const Error error(ErrorCode::kResourceExhausted,
                      fmt::format("a batch takes {} bytes of slots, more than other streams have "
                                  "left; raise slots.capacity, or lower the batch",
                                  batch->hold.slot.bytes().size()));
    batch = error;  // its memory is free before anybody is told so
    return LackSlots(job, error, excess == SlotLedger::Excess::kNever);
  }
  registry_.EndAttempt(*job);
  Finish(job, std::move(batch));
}

// A first failure may be due to others' scratch: the second attempt is made alone. Where that
// fails too, and no reader has anything that it could give back, nothing will help.
void StreamSession::LackSlots(const std::shared_ptr<Job>& job, const Error& error,
                              bool is_hopeless) {
  if (job->is_starved && is_hopeless) {
    registry_.EndAttempt(*job);
    return Finish(job, error);
  }
  registry_.ParkFailed(job);
}

void StreamSession::AwaitExtents(const std::shared_ptr<Job>& job,
                                 std::vector<ExtentId> extents) {
  job->waited = true;
  job->awaited = extents;
  job->awaited_since_ns = registry_.parts_.clock.NowNs();
  registry_.Await(job);
  registry_.parts_.fetcher.Acquire(
      *spec_->dataset, std::move(extents), NeedOf(*spec_),
      [this, job](Result<std::vector<tier::ExtentRef>> refs) {
        if (!registry_.EndAwait(job)) return;
        if (!refs.has_value()) return Finish(job, refs.error());
        job->refs = std::move(*refs);
        Start(job);
      });
}

void StreamSession::Finish(const std::shared_ptr<Job>& job, Result<AssembledBatch> outcome) {
  DropSlot(*job);
  if (Settle(job, outcome)) return;
  // What nobody took any more is memory that others may be waiting for.
  if (outcome.has_value()) outcome->hold = {};
  registry_.EndJob(*job);
}

// Of a batch that was delivered the memory has been taken; of others it may be there.
void StreamSession::DropSlot(Job& job) {
  if (job.slot == nullptr) return;
  board_.Drop(job.slot);
  const bool had_memory = job.slot->Take().valid();
  job.slot.reset();
  if (had_memory) registry_.SlotsFreed(*this, {});
}

// Hands the outcome to the sink. False where the reader has not got the batch: its memory stays in
// `outcome`, and its room with the job.
bool StreamSession::Settle(const std::shared_ptr<Job>& job, Result<AssembledBatch>& outcome) {
  std::lock_guard sink_lock(sink_mutex_);
  std::uint64_t id = 0;
  std::span<const std::byte> slot;
  {
    std::lock_guard lock(mutex_);
    --under_way_;
    if (sink_ != nullptr && outcome.has_value()) {
      id = next_id_++;
      slot = outcome->hold.slot.bytes();
      PinLocked(outcome->hold);
      held_.emplace(id, Held{std::exchange(outcome->hold, {}), job->room});
      CountLocked(*job, *outcome);
    }
  }
  if (sink_ == nullptr) return false;
  if (!outcome.has_value()) {
    sink_->Fail(job->name, outcome.error());
    return false;
  }
  future_->Advance(job->name.epoch, outcome->first_position + outcome->sample_ids.size());
  sink_->Deliver(id, *outcome, slot);
  return true;
}

void StreamSession::CountLocked(const Job& job, const AssembledBatch& batch) {
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
    std::lock_guard lock(mutex_);
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
  registry_.SlotsFreed(*this, rooms);
  return status;
}

void StreamSession::Leave() { registry_.Left(*this); }

void StreamSession::Close() {
  const bool first = !closed_.exchange(true, std::memory_order_acq_rel);
  std::unordered_map<std::uint64_t, Held> freed;
  {
    // Whoever comes second waits here too: a delivery may still be under way, and the sink may
    // be gone once Close has returned to any caller.
    std::lock_guard sink_lock(sink_mutex_);
    sink_ = nullptr;
    if (!first) return;
    std::lock_guard lock(mutex_);
    freed.swap(held_);
    pins_.clear();
    pinned_bytes_ = 0;
  }
  std::vector<BatchRoom> rooms;
  for (const auto& [id, held] : freed) rooms.push_back(held.room);
  freed.clear();
  board_.Abandon();
  registry_.Closed(*this);
  registry_.SlotsFreed(*this, rooms);
}

}  // namespace forebay::stream
