#include "server/stream/stream_registry.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/stage/extent_loader.h"
#include "server/stream/stream_job.h"

namespace forebay::stream {
namespace {

// Of a stream whose batches nobody knows the size of; the others' are promised to every credit.
constexpr std::uint32_t kPromisedBatches = 2;

void Add(SessionStats& total, const SessionStats& part) {
  total.batches += part.batches;
  total.samples += part.samples;
  total.padded += part.padded;
  total.bytes += part.bytes;
  total.ram_samples += part.ram_samples;
  total.ssd_samples += part.ssd_samples;
  total.ram_bytes += part.ram_bytes;
  total.ssd_bytes += part.ssd_bytes;
  total.waited_samples += part.waited_samples;
  total.copied_views += part.copied_views;
  total.decode.Add(part.decode);
  total.held += part.held;
}

}  // namespace

StreamRegistry::StreamRegistry(const RegistryOptions& options, RegistryParts parts)
    : options_(options), parts_(parts), ledger_(parts.slots.capacity_bytes()) {}

StreamRegistry::~StreamRegistry() { FOREBAY_CHECK(sessions_.empty()); }

std::string StreamRegistry::GroupName(const StreamSpec& spec) {
  return spec.dataset->name() + "/" + spec.stream_name;
}

Result<std::shared_ptr<StreamSession>> StreamRegistry::Open(StreamSpec spec, BatchSink* sink) {
  const std::string name = GroupName(spec);
  SlotNeed need = SlotNeedOf(
      spec, {.has_ssd = options_.has_ssd, .view_pin_bytes = options_.view_pin_bytes});
  std::lock_guard lock(mutex_);
  if (sessions_.size() >= options_.streams_max) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{} streams are open, the most this daemon serves",
                             options_.streams_max));
  }
  Group joining{.selection = std::string(spec.selection->spec()),
                .order = spec.order,
                .global_batch = spec.plan.global_batch(),
                .ranks = spec.plan.ranks()};
  const auto known = groups_.find(name);
  const Group& group = known == groups_.end() ? joining : known->second;
  const bool same = group.selection == joining.selection && group.order == joining.order &&
                    group.global_batch == joining.global_batch && group.ranks == joining.ranks;
  if (!same) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("stream '{}' is open with order {:016x}, selection '{}', global "
                             "batch {} over {} ranks; rank {} asks for order {:016x}, selection "
                             "'{}', global batch {} over {} ranks: if this is another run, "
                             "give it another stream name, or a daemon of its own "
                             "(FOREBAY_JOB_ID)",
                             name, group.order.Fingerprint(), group.selection,
                             group.global_batch, group.ranks, spec.rank,
                             joining.order.Fingerprint(), joining.selection,
                             joining.global_batch, joining.ranks));
  }
  std::uint32_t promised =
      spec.batch_bytes_max > 0 ? spec.credits : std::min(spec.credits, kPromisedBatches);
  Status reserved = ledger_.Reserve(need, promised);
  if (!reserved.has_value() && spec.delivery == Delivery::kViews && !spec.inline_payload) {
    // What lies in RAM needs no slots: such a stream makes do with what others leave.
    need = {};
    promised = std::min(spec.credits, kPromisedBatches);
    reserved = ledger_.Reserve(need, promised);
  }
  if (!reserved.has_value()) {
    return reserved.error().WithContext(fmt::format("stream '{}'", name));
  }
  ++groups_.try_emplace(name, std::move(joining)).first->second.members;
  std::shared_ptr<StreamSession> session(new StreamSession(
      *this, std::make_shared<const StreamSpec>(std::move(spec)), sink, need, promised));
  sessions_.push_back(session.get());
  parts_.future.Add(session->future_);
  return session;
}

void StreamRegistry::Left(StreamSession& session) {
  std::lock_guard lock(mutex_);
  LeftLocked(session);
}

void StreamRegistry::LeftLocked(StreamSession& session) {
  if (std::exchange(session.has_left_, true)) return;
  const auto group = groups_.find(GroupName(session.spec()));
  FOREBAY_CHECK(group != groups_.end());
  if (--group->second.members == 0) groups_.erase(group);
}

void StreamRegistry::Closed(StreamSession& session) {
  const SessionStats stats = session.stats();
  parts_.future.Remove(session.future_.get());
  std::lock_guard lock(mutex_);
  std::erase(sessions_, &session);
  ledger_.GiveBack(session.need_, session.promised_);
  Add(closed_totals_, stats);
  LeftLocked(session);
}

std::vector<StreamSummary> StreamRegistry::Summaries() const {
  std::lock_guard lock(mutex_);
  std::vector<StreamSummary> summaries;
  for (const StreamSession* session : sessions_) {
    const StreamSpec& spec = session->spec();
    summaries.push_back({.stream_name = spec.stream_name,
                         .dataset = spec.dataset->name(),
                         .client = spec.client,
                         .rank = spec.rank,
                         .ranks = static_cast<std::uint32_t>(spec.plan.ranks()),
                         .credits = spec.credits,
                         .stats = session->stats()});
  }
  return summaries;
}

SessionStats StreamRegistry::totals() const {
  std::lock_guard lock(mutex_);
  SessionStats total = closed_totals_;
  total.held = 0;
  for (const StreamSession* session : sessions_) Add(total, session->stats());
  return total;
}

std::size_t StreamRegistry::open_count() const {
  std::lock_guard lock(mutex_);
  return sessions_.size();
}

void StreamRegistry::StartAll(const Jobs& jobs) {
  for (const auto& job : jobs) job->session->Start(job);
}

bool StreamRegistry::BeginAttempt(const std::shared_ptr<StreamSession::Job>& job,
                                  std::uint64_t scratch_bytes) {
  std::lock_guard lock(mutex_);
  job->releases_seen = releases_;
  job->slots_were_empty = parts_.slots.used_bytes() == 0;
  job->is_denied = false;
  const StreamSession& session = *job->session;
  if (!job->room.is_promised && session.need_.held_bytes > 0 &&
      !ledger_.HasExcess(session.need_.held_bytes, session.excess_bytes_)) {
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

// Only those whom the ledger denied scratch: what others lack does not come back with it.
StreamRegistry::Jobs StreamRegistry::EndScratchLocked(StreamSession::Job& job) {
  Jobs ready;
  if (!job.has_scratch) return ready;
  job.has_scratch = false;
  ledger_.EndScratch(job.scratch_bytes, job.is_starved);
  std::erase_if(parked_, [&ready](const std::shared_ptr<StreamSession::Job>& parked) {
    if (parked->is_denied) ready.push_back(parked);
    return parked->is_denied;
  });
  return ready;
}

StreamRegistry::Jobs StreamRegistry::ReleasedLocked() {
  ++releases_;
  return std::exchange(parked_, {});
}

void StreamRegistry::EndAttempt(StreamSession::Job& job) {
  Jobs ready;
  {
    std::lock_guard lock(mutex_);
    ready = EndScratchLocked(job);
    if (job.takes_unasked) ready = ReleasedLocked();
  }
  StartAll(ready);
}

void StreamRegistry::ParkFailed(const std::shared_ptr<StreamSession::Job>& job) {
  Jobs ready;
  {
    std::lock_guard lock(mutex_);
    ready = EndScratchLocked(*job);
    if (!job->is_starved) {
      // What it had for a while may have made another fail. Said once in a job's life, so that
      // two that cannot both succeed do not wake each other for ever.
      const Jobs others = ReleasedLocked();
      ready.insert(ready.end(), others.begin(), others.end());
    }
    job->is_starved = true;
    (releases_ != job->releases_seen ? ready : parked_).push_back(job);
  }
  StartAll(ready);
}

void StreamRegistry::Promise(StreamSession& session, const Jobs& jobs) {
  std::lock_guard lock(mutex_);
  for (const auto& job : jobs) {
    job->room.is_promised = session.promises_left_ > 0;
    if (job->room.is_promised) {
      --session.promises_left_;
    } else {
      session.unpromised_.push_back(job.get());
    }
  }
}

SlotLedger::Excess StreamRegistry::TakeRoom(StreamSession::Job& job, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  StreamSession& session = *job.session;
  const std::uint64_t promised = job.room.is_promised ? session.need_.held_bytes : 0;
  const std::uint64_t excess = bytes - std::min(bytes, promised);
  if (excess > 0) {
    const auto of_stream =
        job.room.is_promised ? std::nullopt : std::optional(session.excess_bytes_);
    const SlotLedger::Excess answer = ledger_.TakeExcess(excess, of_stream);
    if (answer != SlotLedger::Excess::kTaken) return answer;
    job.room.excess_bytes = excess;
    session.excess_bytes_ += excess;
  }
  if (!job.room.is_promised) std::erase(session.unpromised_, &job);
  return SlotLedger::Excess::kTaken;
}

void StreamRegistry::GiveRoomLocked(StreamSession& session, const BatchRoom& room) {
  ledger_.EndExcess(room.excess_bytes);
  session.excess_bytes_ -= room.excess_bytes;
  if (!room.is_promised) return;
  if (session.unpromised_.empty()) {
    ++session.promises_left_;
  } else {
    session.unpromised_.front()->room.is_promised = true;
    session.unpromised_.erase(session.unpromised_.begin());
  }
}

void StreamRegistry::EndJob(StreamSession::Job& job) {
  Jobs ready;
  {
    std::lock_guard lock(mutex_);
    std::erase(job.session->unpromised_, &job);
    GiveRoomLocked(*job.session, std::exchange(job.room, {}));
    ready = ReleasedLocked();
  }
  StartAll(ready);
}

void StreamRegistry::SlotsFreed(StreamSession& session, std::span<const BatchRoom> rooms) {
  Jobs ready;
  {
    std::lock_guard lock(mutex_);
    for (const BatchRoom& room : rooms) GiveRoomLocked(session, room);
    ready = ReleasedLocked();
  }
  StartAll(ready);
}

void StreamRegistry::Await(const std::shared_ptr<StreamSession::Job>& job) {
  std::lock_guard lock(mutex_);
  awaiting_.insert(job);
}

bool StreamRegistry::EndAwait(const std::shared_ptr<StreamSession::Job>& job) {
  std::lock_guard lock(mutex_);
  return awaiting_.erase(job) > 0;
}

void StreamRegistry::ExpireWaiting() {
  const std::int64_t oldest = parts_.clock.NowNs() - limits::kPullDeadlineMs * 1'000'000;
  Jobs without_slots;
  Jobs without_extents;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(parked_, [&](const std::shared_ptr<StreamSession::Job>& job) {
      if (job->started_ns > oldest) return false;
      without_slots.push_back(job);
      return true;
    });
    std::erase_if(awaiting_, [&](const std::shared_ptr<StreamSession::Job>& job) {
      if (job->awaited_since_ns > oldest) return false;
      without_extents.push_back(job);
      return true;
    });
  }
  for (const auto& job : without_slots) {
    job->session->Finish(
        job, Error(ErrorCode::kUnavailable,
                   fmt::format("no slot memory became free within {} ms; raise slots.capacity",
                               limits::kPullDeadlineMs)));
  }
  for (const auto& job : without_extents) job->session->Finish(job, LateExtent(*job));
}

// Names the first extent that has not come.
Error StreamRegistry::LateExtent(const StreamSession::Job& job) {
  const StreamSpec& spec = job.session->spec();
  std::vector<tier::ExtentRef> refs;
  const auto is_missing = [&](ExtentId extent) {
    return !parts_.fetcher.TryAcquire(*spec.dataset, {&extent, 1},
                                      fetch::Fetcher::Need::kSamples, refs);
  };
  const auto missing = std::ranges::find_if(job.awaited, is_missing);
  const ExtentId extent = missing == job.awaited.end() ? job.awaited.front() : *missing;
  return Error(ErrorCode::kUnavailable,
               fmt::format("extent {} of '{}' ({}) has not arrived from the GFS within {} ms; ask "
                           "for the batch again, and see 'forebay status' for GFS failures",
                           extent.value(), spec.dataset->name(),
                           stage::NameObjects(*spec.catalog, extent), limits::kPullDeadlineMs));
}

void StreamRegistry::KeepGathered(StreamSession::Job& job, BatchAssembler& assembler) {
  GatheredValues gathered = assembler.TakeGathered();
  if (!gathered.is_complete || gathered.bytes.empty()) return;
  job.gathered_share = BudgetShare::Take(gathered_account_, gathered.bytes.capacity());
  if (job.gathered_share.valid()) job.gathered = std::move(gathered);
}

void StreamRegistry::ResumeGathered(StreamSession::Job& job, BatchAssembler& assembler) {
  if (!job.gathered_share.valid()) return;
  assembler.GiveGathered(std::exchange(job.gathered, {}));
  job.gathered_share = {};
}

std::unique_ptr<BatchAssembler> StreamRegistry::TakeAssembler() {
  std::lock_guard lock(mutex_);
  if (assemblers_.empty()) return std::make_unique<BatchAssembler>(parts_.decoded);
  std::unique_ptr<BatchAssembler> assembler = std::move(assemblers_.back());
  assemblers_.pop_back();
  return assembler;
}

void StreamRegistry::GiveAssembler(std::unique_ptr<BatchAssembler> assembler) {
  assembler->Forget();
  std::lock_guard lock(mutex_);
  assemblers_.push_back(std::move(assembler));
}

}  // namespace forebay::stream
