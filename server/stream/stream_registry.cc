// Ranks of one stream have the same data set and stream name, and form a group. The first rank that
// opens it fixes selection, order, batch and number of ranks; the others must ask for the same,
// until the last one has left. mutex_ guards the groups and the list of sessions. Sessions call
// back (Left, Closed) without a lock of their own, so the registry may ask them for figures under
// mutex_.
#include "server/stream/stream_registry.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"

namespace forebay::stream {
namespace {

// The digest is left out: it belongs to one stream and is compared with that stream's reader.
void Add(SessionStats& total, const SessionStats& part) {
  total.batches += part.batches;
  total.samples += part.samples;
  total.padded += part.padded;
  total.bytes += part.bytes;
  total.ram_samples += part.ram_samples;
  total.ssd_samples += part.ssd_samples;
  total.other_samples += part.other_samples;
  total.ram_bytes += part.ram_bytes;
  total.ssd_bytes += part.ssd_bytes;
  total.waited_samples += part.waited_samples;
  total.copied_views += part.copied_views;
  total.decode.Add(part.decode);
  total.failed += part.failed;
  total.held += part.held;
}

}  // namespace

StreamRegistry::StreamRegistry(const RegistryOptions& options, const SchedulerParts& parts,
                               FutureUse& future)
    : options_(options), future_(future), scheduler_(options.batches, parts) {}

StreamRegistry::~StreamRegistry() { FOREBAY_CHECK(sessions_.empty()); }

std::string StreamRegistry::GroupName(const StreamSpec& spec) {
  return spec.dataset->name() + "/" + spec.stream_name;
}

// Refuses a rank whose parameters differ from those of the open group. If it were let in, the ranks
// would read different batches under one name, and samples would be lost or repeated. The message
// names both sides, because the usual cause is a second run that meets the daemon of the first.
Status StreamRegistry::CheckJoinsLocked(const StreamSpec& spec, const Group& joining) const {
  const std::string name = GroupName(spec);
  const auto known = groups_.find(name);
  if (known == groups_.end()) return {};
  const Group& group = known->second;
  const bool same = group.selection == joining.selection && group.order == joining.order &&
                    group.global_batch == joining.global_batch && group.ranks == joining.ranks;
  if (same) return {};
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

Result<std::shared_ptr<StreamSession>> StreamRegistry::Open(StreamSpec stream_spec,
                                                            BatchSink* sink) {
  // Shared: the session, its slots and its future outlive each other in either order.
  const auto spec = std::make_shared<const StreamSpec>(std::move(stream_spec));
  // Held to the end, so that of two ranks that open a new stream at once one fixes the parameters.
  const MutexLock lock(mutex_);
  if (sessions_.size() >= options_.streams_max) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{} streams are open, the most this daemon serves",
                             options_.streams_max));
  }
  Group joining{.selection = std::string(spec->selection->spec()),
                .order = spec->order,
                .global_batch = spec->plan.global_batch(),
                .ranks = spec->plan.ranks()};
  FOREBAY_TRY(CheckJoinsLocked(*spec, joining));
  const std::string name = GroupName(*spec);
  // Promises slot memory. It is the last step that can fail, so nothing has to be undone.
  auto slots = scheduler_.Admit(spec);
  if (!slots.has_value()) return slots.error().WithContext(fmt::format("stream '{}'", name));
  // Leaves an existing group as it is; CheckJoinsLocked has compared the two.
  ++groups_.try_emplace(name, std::move(joining)).first->second.members;
  auto future = future_.Add(spec);
  auto session = std::make_shared<StreamSession>(
      spec, sink,
      SessionParts{.scheduler = scheduler_,
                   .slots = *slots,
                   .future = future,
                   .view_pin_bytes = options_.batches.view_pin_bytes,
                   .hooks = {.left = [this](const StreamSession& left) { Left(left); },
                             .closed = [this](const StreamSession& closed,
                                              bool has_left) { Closed(closed, has_left); },
                             .keep = [this](std::vector<BatchHold>& holds) {
                               return Keep(holds);
                             }}});
  sessions_.push_back({session.get(), std::move(*slots), std::move(future)});
  return session;
}

void StreamRegistry::Left(const StreamSession& session) {
  const MutexLock lock(mutex_);
  LeaveLocked(session.spec());
}

void StreamRegistry::LeaveLocked(const StreamSpec& spec) {
  const auto group = groups_.find(GroupName(spec));
  FOREBAY_CHECK(group != groups_.end());
  // The name may now be used with other parameters.
  if (--group->second.members == 0) groups_.erase(group);
}

void StreamRegistry::Closed(const StreamSession& session, bool has_left) {
  // The session holds no batch any more, and no further one is counted.
  const SessionStats stats = session.stats();
  const MutexLock lock(mutex_);
  const auto open = std::ranges::find(sessions_, &session, &OpenStream::session);
  FOREBAY_CHECK(open != sessions_.end());
  future_.Remove(open->future.get());
  // Before Open can run again, so that a new stream finds the memory that this one was promised.
  scheduler_.Dismiss(*open->slots);
  sessions_.erase(open);
  Add(closed_totals_, stats);
  // A reader that took its trailer has left the group already.
  if (!has_left) LeaveLocked(session.spec());
}

std::vector<StreamSummary> StreamRegistry::Summaries() const {
  const MutexLock lock(mutex_);
  std::vector<StreamSummary> summaries;
  for (const OpenStream& open : sessions_) {
    const StreamSpec& spec = open.session->spec();
    summaries.push_back({.stream_name = spec.stream_name,
                         .dataset = spec.dataset->name(),
                         .client = spec.client,
                         .rank = spec.rank,
                         .ranks = static_cast<std::uint32_t>(spec.plan.ranks()),
                         .credits = spec.credits,
                         .stats = open.session->stats()});
  }
  return summaries;
}

SessionStats StreamRegistry::totals() const {
  const MutexLock lock(mutex_);
  SessionStats total = closed_totals_;
  // Closed streams hold nothing.
  total.held = 0;
  for (const OpenStream& open : sessions_) Add(total, open.session->stats());
  return total;
}

std::size_t StreamRegistry::open_count() const {
  const MutexLock lock(mutex_);
  return sessions_.size();
}

void StreamRegistry::KeepWhatReadersHave() {
  const MutexLock lock(mutex_);
  keeps_ = true;
}

bool StreamRegistry::Keep(std::vector<BatchHold>& holds) {
  const MutexLock lock(mutex_);
  if (keeps_) std::ranges::move(holds, std::back_inserter(kept_));
  return keeps_;
}

}  // namespace forebay::stream
