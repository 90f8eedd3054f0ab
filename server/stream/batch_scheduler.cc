// A job goes in a circle: plan the batch, pin its extents, take slot memory, gather. Wherever it
// lacks something it waits without a thread in the part that will have it (Fetcher, RemoteWaits,
// SlotQueue), and then begins with the plan again, or is handed over. Each job ends in one call of
// BatchOwner::Answer.
#include "server/stream/batch_scheduler.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/stage/extent_loader.h"
#include "server/stream/batch_plan.h"
#include "server/stream/packed/packed_gatherer.h"
#include "server/stream/raw_gatherer.h"

namespace forebay::stream {
namespace {

// Small batches that were pulled together are assembled by one task and announced together, up to
// so many bytes. A message costs several wake-ups on both sides, as much as copying 200 KiB, so one
// for 512 KiB makes this small; with 2 MiB, one thread would copy for so long that the reader waits
// for it while other cores are idle. Larger batches have a task each.
constexpr std::uint64_t kTaskBytes = 512 * limits::kKiB;

// A batch that failed so often, alone and with nobody else's memory to wait for, fits never.
constexpr int kHopelessAttempts = 4;

std::size_t BatchesOfTask(const StreamSpec& spec) {
  // A batch that is decoded, or whose size is unknown, may take any time, so it gets a task of its
  // own.
  if (spec.is_packed() || spec.batch_bytes_max == 0) return 1;
  return std::max<std::uint64_t>(1, kTaskBytes / spec.batch_bytes_max);
}

bool IsExhausted(const Result<AssembledBatch>& batch) {
  return !batch.has_value() && batch.error().code() == ErrorCode::kResourceExhausted;
}

}  // namespace

BatchScheduler::BatchScheduler(const SchedulerOptions& options, const SchedulerParts& parts)
    : options_(options),
      parts_(parts),
      view_pins_(options.view_pin_bytes),
      slots_(parts.slots) {
  if (parts.rows == nullptr) return;
  remote_.emplace(
      RemoteWaits::Parts{.fetcher = parts.fetcher, .rows = *parts.rows, .clock = parts.clock},
      options.sent_chunk_bytes,
      RemoteWaits::Ends{
          .start = [this](const JobRef& job) { Start(job); },
          .hand_over = [this](std::span<AnsweredBatch> batches) { HandOver(batches); }});
}

Result<std::shared_ptr<StreamSlots>> BatchScheduler::Admit(
    std::shared_ptr<const StreamSpec> spec) {
  const SlotNeed need = SlotNeedOf(*spec, {.has_ssd = options_.has_ssd,
                                           .has_other_nodes = parts_.rows != nullptr,
                                           .view_pin_bytes = options_.view_pin_bytes});
  FOREBAY_ASSIGN(auto slots, slots_.Admit(std::move(spec), need));
  if (remote_) remote_->Begin(*slots);
  return slots;
}

void BatchScheduler::Dismiss(const StreamSlots& slots) { slots_.Dismiss(slots); }

void BatchScheduler::Release(StreamSlots& slots, std::vector<HeldBatches::Held> batches) {
  std::vector<BatchRoom> rooms;
  for (const HeldBatches::Held& held : batches) rooms.push_back(held.room);
  batches.clear();  // their memory is free before others are told so
  StartAll(slots_.Release(slots, rooms));
}

void BatchScheduler::Submit(const std::shared_ptr<BatchOwner>& owner,
                            const std::shared_ptr<StreamSlots>& slots,
                            std::span<const BatchName> names) {
  const StreamSpec& spec = owner->spec();
  const bool shares_slots = spec.is_packed() && spec.batch_bytes_max > 0;
  Jobs jobs;
  for (const BatchName& name : names) {
    auto job = std::make_shared<BatchJob>();
    job->owner = owner;
    job->slots = slots;
    job->name = name;
    job->started_ns = parts_.clock.NowNs();
    if (shares_slots) job->slot = slots->board.Open(name, slots->need.held_bytes);
    jobs.push_back(std::move(job));
  }
  slots_.Promise(*slots, jobs);
  const std::size_t together = BatchesOfTask(spec);
  for (std::size_t begin = 0; begin < jobs.size(); begin += together) {
    const std::size_t count = std::min(together, jobs.size() - begin);
    const std::span<const JobRef> part = std::span(jobs).subspan(begin, count);
    StartTogether({part.rbegin(), part.rend()});
  }
}

// The first of `jobs` comes last in the list.
void BatchScheduler::StartTogether(Jobs jobs) {
  parts_.executor.Post([this, jobs = std::move(jobs)](io::IoQueue& queue) {
    Run({.waiting = jobs, .complete = {}, .lacking = {}}, queue);
  });
}

void BatchScheduler::Start(const JobRef& job) { StartTogether({job}); }

void BatchScheduler::StartAll(const Jobs& jobs) {
  for (const JobRef& job : jobs) Start(job);
}

void BatchScheduler::Run(Round round, io::IoQueue& queue) {
  while (!round.waiting.empty()) {
    const JobRef job = std::move(round.waiting.back());
    round.waiting.pop_back();
    Advance(job, round, queue);
  }
  EndRound(round);
}

// Rows are asked for first, because other nodes can work on them meanwhile.
void BatchScheduler::EndRound(Round& round) {
  if (remote_) remote_->AwaitRows(std::exchange(round.lacking, {}));
  HandOver(round.complete);
  round.complete.clear();
}

// Called before a job does what may take long: nothing else of its round waits for it.
void BatchScheduler::BreakUp(Round& round) {
  EndRound(round);
  for (; !round.waiting.empty(); round.waiting.pop_back()) Start(round.waiting.back());
}

// One attempt to assemble the batch. Planning is cheap and is repeated by each attempt, so nothing
// half-assembled is kept while a job waits.
void BatchScheduler::Advance(const JobRef& job, Round& round, io::IoQueue& queue) {
  BatchOwner& owner = *job->owner;
  if (owner.closed()) return Finish(job, Error(ErrorCode::kCancelled, "the stream was closed"));
  const StreamSpec& spec = owner.spec();
  const Order order(spec.order, job->name.epoch);
  Result<BatchPlan> plan = PlanBatch(spec, order, job->name);
  if (!plan.has_value()) return Finish(job, plan.error());
  std::unique_ptr<Gatherer> gatherer = TakeGatherer(*job);
  const Status planned =
      gatherer->Plan(spec, *plan,
                     {.all_extents = job->wants_all_extents,
                      .open = {.own = job->slot, .board = &job->slots->board, .order = &order},
                      .others = remote_ ? remote_->OthersOf(*job) : OtherNodes{}});
  if (!planned.has_value()) {
    GiveGatherer(*job, std::move(gatherer));
    return Finish(job, planned.error());
  }
  if (!gatherer->missing_chunks().empty()) {
    const auto missing = gatherer->missing_chunks();
    std::vector<fetch::WantedRemote> chunks(missing.begin(), missing.end());
    GiveGatherer(*job, std::move(gatherer));
    return remote_->AwaitChunks(job, std::move(chunks));
  }
  std::vector<tier::ExtentRef> refs;
  if (!PinExtents(job, gatherer, refs)) return;
  const bool reads_ssd = std::ranges::any_of(refs, [](const tier::ExtentRef& ref) {
    return ref && ref->tier != tier::TierKind::kRam;
  });
  const bool lacks_extents = std::ranges::count(refs, nullptr) > 0;  // RowRouter brings their rows
  // A packed batch of unknown size takes the slot itself unasked.
  job->takes_unasked =
      spec.batch_bytes_max == 0 && (reads_ssd || lacks_extents || spec.is_packed());
  if (!slots_.BeginAttempt(job, reads_ssd ? job->slots->need.scratch_bytes : 0)) {
    return GiveGatherer(*job, std::move(gatherer));
  }
  if (reads_ssd) BreakUp(round);
  Attempt attempt;
  ResumeGathered(*job, *gatherer);
  Result<AssembledBatch> batch = AssembledBatch();
  batch->name = plan->name;
  batch->first_position = plan->first_position;
  batch->padded_count = plan->padded_count;
  const Status gathered =
      gatherer->Gather(spec, {.read = {.refs = refs, .queue = queue, .bad = attempt.bad},
                              .pins = view_pins_,
                              .view_use = ViewUseOf(*job),
                              .slots = parts_.slots,
                              .rows = attempt.rows},
                       *batch);
  if (gathered.has_value()) {
    batch->sample_ids = std::move(plan->samples);
  } else {
    batch = gathered.error();
  }
  refs.clear();
  AfterAttempt(job, std::move(batch), std::move(gatherer), std::move(attempt), round);
}

// While batches wait for room in RAM, new views pin nothing: all their samples are copied. Only
// streams that were promised slot memory do this.
ViewUse BatchScheduler::ViewUseOf(const BatchJob& job) const {
  if (job.owner->spec().delivery != Delivery::kViews) return ViewUse::kNothing;
  if (job.pins_all) return ViewUse::kEverything;
  const bool is_promised = job.slots->need.held_bytes > 0;
  return is_promised && parts_.fetcher.IsAnyNeededNow() ? ViewUse::kNothing
                                                        : ViewUse::kWithinLimit;
}

// A batch whose samples can be pinned must not wait for slot memory that its stream was not
// promised. If that is short, the next attempt pins all extents in RAM.
bool BatchScheduler::MayPinAll(const BatchJob& job) {
  const StreamSpec& spec = job.owner->spec();
  const bool are_views =
      spec.delivery == Delivery::kViews && !spec.inline_payload && !spec.is_packed();
  return are_views && job.slots->need.held_bytes == 0 && !job.pins_all;
}

// Decides what follows an attempt: the batch is finished, completed by RowRouter, tried again, or
// parked.
void BatchScheduler::AfterAttempt(const JobRef& job, Result<AssembledBatch> batch,
                                  std::unique_ptr<Gatherer> gatherer, Attempt attempt,
                                  Round& round) {
  const bool is_exhausted = IsExhausted(batch);
  const bool has_copies = batch.has_value() && batch->copied_views > 0;
  const bool may_pin_all = MayPinAll(*job) && (is_exhausted || has_copies);
  const SlotLedger::Excess excess =
      batch.has_value() ? slots_.TakeRoom(*job, batch->hold.slot.bytes().size(), may_pin_all)
                        : SlotLedger::Excess::kTaken;
  if (may_pin_all && (is_exhausted || excess != SlotLedger::Excess::kTaken)) {
    GiveGatherer(*job, std::move(gatherer));
    if (batch.has_value()) batch->hold = {};
    StartAll(slots_.EndAttempt(*job));
    StartAll(slots_.Release(*job->slots, {}));  // others may have lacked what this attempt held
    job->pins_all = true;
    return Start(job);
  }
  if (is_exhausted || excess != SlotLedger::Excess::kTaken) KeepGathered(*job, *gatherer);
  GiveGatherer(*job, std::move(gatherer));
  if (!batch.has_value() && !attempt.bad.empty() && job->refetches < limits::kRefetchMax) {
    // Wrong bytes on a tier: the extent is fetched again before anybody is told.
    ++job->refetches;
    StartAll(slots_.EndAttempt(*job));
    for (const auto& [extent, error] : attempt.bad) {
      parts_.fetcher.ReportBad(extent, error, parts_.clock.NowNs());
    }
    attempt.bad.clear();  // unpins the copies
    return Start(job);
  }
  if (is_exhausted) {
    const bool are_empty = parts_.slots.used_bytes() == 0;
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
  StartAll(slots_.EndAttempt(*job));
  job->sent_chunks.clear();  // they are decoded
  if (!attempt.rows.empty()) {
    return remote_->Lack(
        {.job = job, .batch = std::move(*batch), .rows = std::move(attempt.rows)}, round.lacking);
  }
  round.complete.push_back({.job = job, .outcome = std::move(batch)});
}

void BatchScheduler::Finish(const JobRef& job, Result<AssembledBatch> outcome) {
  AnsweredBatch answered = {.job = job, .outcome = std::move(outcome)};
  HandOver({&answered, 1});
}

// The batches are of one stream.
void BatchScheduler::HandOver(std::span<AnsweredBatch> batches) {
  if (batches.empty()) return;
  for (const AnsweredBatch& batch : batches) DropSlot(*batch.job);
  batches.front().job->owner->Answer(batches);
  for (AnsweredBatch& batch : batches) {
    if (batch.is_taken()) continue;
    // Nobody took the batch: its memory goes back to the batches that wait for some.
    if (batch.outcome.has_value()) batch.outcome->hold = {};
    StartAll(slots_.EndJob(*batch.job));
  }
  // The reader has come closer to its other batches, some of which may wait for their turn.
  parts_.fetcher.LookAgain();
}

// The memory of a batch that was delivered has been taken already; that of others may be there.
void BatchScheduler::DropSlot(BatchJob& job) {
  if (job.slot == nullptr) return;
  job.slots->board.Drop(job.slot);
  const bool had_memory = job.slot->Take().valid();
  job.slot.reset();
  if (had_memory) StartAll(slots_.Release(*job.slots, {}));
}

// Pins the extents that the plan needs. False: the job has given the gatherer back and goes on
// later.
bool BatchScheduler::PinExtents(const JobRef& job, std::unique_ptr<Gatherer>& gatherer,
                                std::vector<tier::ExtentRef>& refs) {
  const std::span<const ExtentId> extents = gatherer->extents();
  if (TakeWaitedFor(*job, extents, refs)) {
    job->refs.clear();
    return true;
  }
  if (!job->refs.empty() && !job->wants_all_extents) {
    // A chunk that the plan counted on was dropped from the decoded cache while the job waited.
    // From now on the job pins the extents of all its chunks.
    job->wants_all_extents = true;
    GiveGatherer(*job, std::move(gatherer));
    Start(job);
    return false;
  }
  const StreamSpec& spec = job->owner->spec();
  const fetch::Fetcher::Where where = WhereOf(*job);
  if (parts_.fetcher.TryAcquire(*spec.dataset, extents, job->need(), refs, where)) {
    job->refs.clear();
    return true;
  }
  if (where == fetch::Fetcher::Where::kAnywhere && !job->is_starved &&
      slots_.HasPromise(*job) &&
      parts_.fetcher.HasRowsElsewhere(*spec.dataset, extents, refs)) {
    // Extents of this node are missing, and other nodes have to be asked, too. The batch goes on
    // with what is here, and RowRouter brings all other rows at the same time, so that it takes as
    // long as the slowest of them and not as long as all together. Meanwhile it holds its slot.
    // So only batches whose slots are reserved do this: others would keep memory from streams that
    // could use it, for as long as the GFS does not answer.
    job->waited = true;
    job->refs.clear();
    return true;
  }
  std::vector<ExtentId> missing(extents.begin(), extents.end());
  GiveGatherer(*job, std::move(gatherer));
  AwaitExtents(job, std::move(missing));
  return false;
}

// Takes what the job waited for, in the order of `extents`; false if something is missing.
bool BatchScheduler::TakeWaitedFor(const BatchJob& job, std::span<const ExtentId> extents,
                                   std::vector<tier::ExtentRef>& refs) {
  const stage::Dataset& dataset = *job.owner->spec().dataset;
  const std::vector<tier::ExtentRef>& held = job.refs;
  if (held.empty()) return false;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    // Only a packed data set lists other extents after a wait, and it has no null references. So a
    // null reference in the same place stands for the same extent.
    const auto is_it = [&](const tier::ExtentRef& ref) {
      return !ref || ref->key == dataset.key(extents[i]);
    };
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

void BatchScheduler::AwaitExtents(const JobRef& job, std::vector<ExtentId> extents) {
  job->waited = true;
  // An earlier wait may have pinned extents for another plan. The job keeps none while it waits.
  job->refs.clear();
  job->awaited = extents;
  job->awaited_since_ns = parts_.clock.NowNs();
  {
    const MutexLock lock(mutex_);
    awaiting_.insert(job);
  }
  const StreamSpec& spec = job->owner->spec();
  parts_.fetcher.Acquire(*spec.dataset, std::move(extents),
                         {.need = job->need(),
                          .where = WhereOf(*job),
                          .is_wanted =
                              [job] { return !job->owner->closed() && !job->has_expired; },
                          .steps = [job] { return job->owner->StepsUntil(job->name); }},
                         [this, job](Result<std::vector<tier::ExtentRef>> refs) {
                           if (!EndAwait(job)) return;
                           if (!refs.has_value()) return Finish(job, refs.error());
                           job->refs = std::move(*refs);
                           Start(job);
                         });
}

// The plan of a packed batch lists only extents that are to be decoded here.
fetch::Fetcher::Where BatchScheduler::WhereOf(const BatchJob& job) const {
  return remote_ && !job.owner->spec().is_packed()
             ? fetch::Fetcher::Where::kAnywhere
             : fetch::Fetcher::Where::kHere;
}

// False: the job was failed while it waited, and must not go on.
bool BatchScheduler::EndAwait(const JobRef& job) {
  const MutexLock lock(mutex_);
  return awaiting_.erase(job) > 0;
}

// A first failure may be due to others' scratch: the second attempt is made alone. If that fails
// too, and no reader has anything that it could give back, nothing will help.
void BatchScheduler::LackSlots(const JobRef& job, const Error& error, bool is_hopeless) {
  if (job->is_starved && is_hopeless) {
    StartAll(slots_.EndAttempt(*job));
    // Another batch may have taken memory and given it back within this attempt, so that the slots
    // were empty before and after it. That this happens each time is not to be expected.
    if (++job->hopeless_attempts < kHopelessAttempts) return Start(job);
    return Finish(job, error);
  }
  StartAll(slots_.ParkFailed(job));
}

void BatchScheduler::ExpireWaiting() {
  const std::int64_t oldest = parts_.clock.NowNs() - limits::kPullDeadlineMs * 1'000'000;
  const Jobs without_slots = slots_.TakeExpired(oldest);
  for (const JobRef& job : without_slots) {
    Finish(job, Error(ErrorCode::kUnavailable,
                      fmt::format("no slot memory became free within {} ms; raise slots.capacity",
                                  limits::kPullDeadlineMs)));
  }
  ExpireAwaiting(oldest);
  if (remote_) remote_->Expire();
}

void BatchScheduler::ExpireAwaiting(std::int64_t since_ns) {
  Jobs without_extents;
  {
    const MutexLock lock(mutex_);
    std::erase_if(awaiting_, [&](const JobRef& job) {
      if (job->awaited_since_ns > since_ns) return false;
      without_extents.push_back(job);
      return true;
    });
  }
  for (const JobRef& job : without_extents) {
    job->has_expired = true;
    Finish(job, LateExtent(*job));
  }
}

// Names the first extent that has not come.
Error BatchScheduler::LateExtent(const BatchJob& job) {
  const StreamSpec& spec = job.owner->spec();
  std::vector<tier::ExtentRef> refs;
  const auto is_missing = [&](ExtentId extent) {
    return !parts_.fetcher.TryAcquire(*spec.dataset, {&extent, 1},
                                      fetch::Need::kSamples, refs, WhereOf(job));
  };
  const auto missing = std::ranges::find_if(job.awaited, is_missing);
  const ExtentId extent = missing == job.awaited.end() ? job.awaited.front() : *missing;
  return Error(ErrorCode::kUnavailable,
               fmt::format("extent {} of '{}' ({}) has not arrived from the GFS within {} ms; ask "
                           "for the batch again, and see 'forebay status' for GFS failures",
                           extent.value(), spec.dataset->name(),
                           stage::NameObjects(*spec.catalog, extent),
                           (parts_.clock.NowNs() - job.awaited_since_ns) / 1'000'000));
}

void BatchScheduler::KeepGathered(BatchJob& job, Gatherer& gatherer) {
  GatheredValues gathered = gatherer.TakeGathered();
  if (!gathered.is_complete || gathered.bytes.empty()) return;
  job.gathered_share = fetch::BudgetShare::Take(gathered_account_, gathered.bytes.capacity());
  if (job.gathered_share.valid()) job.gathered = std::move(gathered);
}

void BatchScheduler::ResumeGathered(BatchJob& job, Gatherer& gatherer) {
  if (!job.gathered_share.valid()) return;
  gatherer.GiveGathered(std::exchange(job.gathered, {}));
  job.gathered_share = {};
}

std::unique_ptr<Gatherer> BatchScheduler::TakeGatherer(const BatchJob& job) {
  const bool is_packed = job.owner->spec().is_packed();
  const MutexLock lock(mutex_);
  auto& idle = gatherers_[is_packed ? 1 : 0];
  if (idle.empty()) {
    if (is_packed) return std::make_unique<PackedGatherer>(parts_.decoded);
    return std::make_unique<RawGatherer>();
  }
  std::unique_ptr<Gatherer> gatherer = std::move(idle.back());
  idle.pop_back();
  return gatherer;
}

void BatchScheduler::GiveGatherer(const BatchJob& job, std::unique_ptr<Gatherer> gatherer) {
  gatherer->Forget();
  const MutexLock lock(mutex_);
  gatherers_[job.owner->spec().is_packed() ? 1 : 0].push_back(std::move(gatherer));
}

}  // namespace forebay::stream
