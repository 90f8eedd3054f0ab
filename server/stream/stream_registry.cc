#include "server/stream/stream_registry.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/stream/stream_job.h"

namespace forebay::stream {
namespace {

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
  total.held += part.held;
}

// Slot memory that a stream's batches can take at once, where that is known.
std::uint64_t SlotNeed(const StreamSpec& spec) {
  const bool slots = spec.delivery == Delivery::kContiguous || spec.inline_payload;
  return slots ? spec.batch_bytes_max * spec.credits : 0;
}

}  // namespace

StreamRegistry::StreamRegistry(const RegistryOptions& options, RegistryParts parts)
    : options_(options), parts_(parts) {}

StreamRegistry::~StreamRegistry() { FOREBAY_CHECK(sessions_.empty()); }

std::string StreamRegistry::GroupName(const StreamSpec& spec) {
  return spec.dataset->name() + "/" + spec.stream_name;
}

Result<std::shared_ptr<StreamSession>> StreamRegistry::Open(StreamSpec spec, BatchSink* sink) {
  const std::string name = GroupName(spec);
  const std::uint64_t need = SlotNeed(spec);
  std::lock_guard lock(mutex_);
  if (sessions_.size() >= options_.streams_max) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{} streams are open, the most this daemon serves",
                             options_.streams_max));
  }
  const std::uint64_t capacity = parts_.slots.capacity_bytes();
  if (need > capacity - std::min(capacity, reserved_bytes_)) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("stream '{}' needs {} bytes of slots ({} batches of {} bytes), but "
                             "{} of {} are taken; raise slots.capacity, or lower the prefetch "
                             "depth or the batch",
                             name, need, spec.credits, spec.batch_bytes_max, reserved_bytes_,
                             capacity));
  }
  Group joining{.selection = std::string(spec.selection->spec()),
                .order = spec.order,
                .global_batch = spec.plan.global_batch(),
                .ranks = spec.plan.ranks()};
  Group& group = groups_.try_emplace(name, joining).first->second;
  const bool same = group.selection == joining.selection && group.order == joining.order &&
                    group.global_batch == joining.global_batch && group.ranks == joining.ranks;
  if (!same) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("stream '{}' is open with order {:016x}, selection '{}', global "
                             "batch {} over {} ranks; rank {} asks for order {:016x}, selection "
                             "'{}', global batch {} over {} ranks",
                             name, group.order.Fingerprint(), group.selection,
                             group.global_batch, group.ranks, spec.rank,
                             joining.order.Fingerprint(), joining.selection,
                             joining.global_batch, joining.ranks));
  }
  ++group.members;
  reserved_bytes_ += need;
  std::shared_ptr<StreamSession> session(new StreamSession(
      *this, std::make_shared<const StreamSpec>(std::move(spec)), sink, need));
  sessions_.push_back(session.get());
  parts_.future.Add(session->future_);
  return session;
}

void StreamRegistry::Closed(const StreamSession& session) {
  const SessionStats stats = session.stats();
  parts_.future.Remove(session.future_.get());
  std::lock_guard lock(mutex_);
  std::erase(sessions_, &session);
  reserved_bytes_ -= session.reserved_bytes_;
  Add(closed_totals_, stats);
  const auto group = groups_.find(GroupName(session.spec()));
  if (group != groups_.end() && --group->second.members == 0) groups_.erase(group);
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

void StreamRegistry::Park(std::shared_ptr<StreamSession::Job> job) {
  std::lock_guard lock(mutex_);
  parked_.push_back(std::move(job));
}

void StreamRegistry::SlotsFreed() {
  std::vector<std::shared_ptr<StreamSession::Job>> ready;
  {
    std::lock_guard lock(mutex_);
    ready.swap(parked_);
  }
  for (const auto& job : ready) job->session->Start(job);
}

void StreamRegistry::ExpireParked() {
  const std::int64_t oldest = parts_.clock.NowNs() - limits::kPullDeadlineMs * 1'000'000;
  std::vector<std::shared_ptr<StreamSession::Job>> expired;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(parked_, [&](const std::shared_ptr<StreamSession::Job>& job) {
      if (job->started_ns > oldest) return false;
      expired.push_back(job);
      return true;
    });
  }
  for (const auto& job : expired) {
    job->session->Finish(
        job, Error(ErrorCode::kResourceExhausted,
                   fmt::format("no slot memory became free within {} ms; raise slots.capacity",
                               limits::kPullDeadlineMs)));
  }
  // One that was parked after the last release would otherwise wait for the next one.
  SlotsFreed();
}

std::unique_ptr<BatchAssembler> StreamRegistry::TakeAssembler() {
  std::lock_guard lock(mutex_);
  if (assemblers_.empty()) return std::make_unique<BatchAssembler>();
  std::unique_ptr<BatchAssembler> assembler = std::move(assemblers_.back());
  assemblers_.pop_back();
  return assembler;
}

void StreamRegistry::GiveAssembler(std::unique_ptr<BatchAssembler> assembler) {
  std::lock_guard lock(mutex_);
  assemblers_.push_back(std::move(assembler));
}

}  // namespace forebay::stream
