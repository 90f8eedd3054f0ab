// Ranks of one stream have the same data set and stream name, and form a group. The first rank that
// opens it fixes selection, order, batch and number of ranks; the others must ask for the same,
// until the last one has left. A client of another node joins no group of this one: its ranks were
// compared with each other at home, and its stream may be another one of the same name. mutex_
// guards the groups and the list of sessions. Sessions call back (Left, KeepsAll, Closed) without a
// lock that stats() needs, so the registry may ask them for figures under mutex_.
//
// A reader whose call ends unexpectedly moves from its session to cut_off_ with all that it has:
// its batches and the slot memory that is promised to it. It moves to a new session if the reader
// opens the stream again, and is dropped if the reader says that it has no batch any more, or its
// process has ended.
#include "server/stream/stream_registry.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "server/io/log.h"

namespace forebay::stream {
namespace {

// The digest is left out: it belongs to one stream and is compared with that stream's reader.
void Add(SessionStats& total, const SessionStats& part) {
  total.batches += part.batches;
  total.samples += part.samples;
  total.padded += part.padded;
  total.bytes += part.bytes;
  total.waited_samples += part.waited_samples;
  total.Add(part);
  total.failed += part.failed;
  total.held += part.held;
}

StreamSummary SummaryOf(const StreamSpec& spec) {
  return {.stream_name = spec.stream_name,
          .dataset = spec.dataset->name(),
          .client = spec.client,
          .rank = spec.rank,
          .ranks = static_cast<std::uint32_t>(spec.plan.ranks()),
          .credits = spec.credits,
          .is_cut_off = false,
          .stats = {}};
}

Error CameLate() {
  return Error(ErrorCode::kCancelled, "a later call of this reader has come before this one");
}

// Null, with a line in the log, if it cannot be watched. A client of another pid namespace is no
// news.
std::shared_ptr<const io::ProcessWatch> WatchClient(const StreamSpec& spec) {
  auto watch = io::ProcessWatch::Of(static_cast<pid_t>(spec.client.pid));
  if (watch.has_value()) return std::move(*watch);
  if (spec.client.pid != 0) {
    log::Warn("stream '{}' of '{}': should its client be cut off, its batches are freed at once, "
              "because the daemon cannot watch it: {}",
              spec.stream_name, spec.client.name, watch.error().message());
  }
  return nullptr;
}

// Whether a call that asks for `b` goes on with one that asked for `a`: the same batches, in memory
// of the same sizes.
bool IsSameStream(const StreamSpec& a, const StreamSpec& b) {
  return a.dataset == b.dataset && a.catalog == b.catalog && a.form == b.form &&
         a.order == b.order && a.plan.global_batch() == b.plan.global_batch() &&
         a.plan.ranks() == b.plan.ranks() && a.rank == b.rank && a.delivery == b.delivery &&
         a.credits == b.credits && a.inline_payload == b.inline_payload;
}

}  // namespace

StreamRegistry::StreamRegistry(const RegistryOptions& options, const SchedulerParts& parts,
                               FutureUse& future)
    : options_(options), future_(future), scheduler_(options.batches, parts) {}

StreamRegistry::~StreamRegistry() { FOREBAY_CHECK(sessions_.empty()); }

std::string StreamRegistry::GroupName(const StreamSpec& spec) {
  const std::string name = spec.dataset->name() + "/" + spec.stream_name;
  // A client of another node is named by its address. No data set has a name with a space.
  return spec.client.is_remote ? "client " + spec.client.name + "/" + name : name;
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

template <typename Condition>
void StreamRegistry::CloseOpen(Condition is_it, bool reader_is_done) {
  std::vector<std::shared_ptr<StreamSession>> closed;
  {
    const MutexLock lock(mutex_);
    for (const OpenStream& open : sessions_) {
      if (!is_it(open.session->spec())) continue;
      // Null: somebody else is about to close it.
      if (auto session = open.owned.lock()) closed.push_back(std::move(session));
    }
  }
  for (const auto& session : closed) session->CloseByOther(reader_is_done);
}

// The memory, promised and in use, of a reader that comes back; of a new one: newly promised
// memory, and no batch.
Result<StreamReader> StreamRegistry::AdmitLocked(std::shared_ptr<const StreamSpec> spec) {
  const auto is_it = [&](const StreamSpec& other) {
    return spec->reader != 0 && other.reader == spec->reader;
  };
  const auto open = std::ranges::find_if(
      sessions_, [&](const OpenStream& other) { return is_it(other.session->spec()); });
  if (open != sessions_.end() && open->session->spec().call >= spec->call) return CameLate();
  if (open != sessions_.end()) {
    return Error(ErrorCode::kUnavailable, "the former call of this reader is being closed");
  }
  const auto former = std::ranges::find_if(
      cut_off_, [&](const StreamReader& other) { return is_it(*other.spec); });
  if (former != cut_off_.end() && former->spec->call >= spec->call) return CameLate();
  if (former == cut_off_.end()) {
    if (sessions_.size() + cut_off_.size() >= options_.streams_max) {
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("{} streams are open, {} of them cut off: the most this daemon "
                               "serves",
                               options_.streams_max, cut_off_.size()));
    }
    StreamReader reader{.spec = spec, .slots = nullptr, .held = {}, .process = nullptr};
    if (spec->reader != 0 && !spec->inline_payload) reader.process = WatchClient(*spec);
    // Promises slot memory. It is the last step that can fail, so nothing has to be undone.
    auto slots = scheduler_.Admit(std::move(spec));
    if (!slots.has_value()) return slots.error();
    reader.slots = std::move(*slots);
    return reader;
  }
  if (!IsSameStream(*former->spec, *spec)) {
    return Error(ErrorCode::kFailedPrecondition,
                 "its reader has batches of a former call with other parameters, or of before the "
                 "data set was rebuilt: open a new stream");
  }
  StreamReader reader = std::move(*former);
  cut_off_.erase(former);
  reader.spec = std::move(spec);
  return reader;
}

Result<std::shared_ptr<StreamSession>> StreamRegistry::Open(
    StreamSpec stream_spec, BatchSink* sink, std::span<const std::uint64_t> still_held) {
  // Shared: the session, its slots and its future outlive each other in either order.
  const auto spec = std::make_shared<const StreamSpec>(std::move(stream_spec));
  if (spec->reader != 0) {
    // A daemon that stood still finds the new call before it has learned that the old one is over.
    const auto is_former = [&](const StreamSpec& open) {
      return open.reader == spec->reader && open.call < spec->call;
    };
    CloseOpen(is_former, /*reader_is_done=*/false);
  }
  FreeWhatNobodyReads();  // the process of before may just have been killed
  std::vector<HeldBatches::Held> freed;
  std::shared_ptr<StreamSlots> slots;
  std::shared_ptr<StreamSession> session;
  {
    // The lock is held to the end: if two ranks open a new stream at once, one of them fixes the
    // parameters, and the other one is compared with it.
    const MutexLock lock(mutex_);
    Group joining{.selection = std::string(spec->selection->spec()),
                  .order = spec->order,
                  .global_batch = spec->plan.global_batch(),
                  .ranks = spec->plan.ranks()};
    FOREBAY_TRY(CheckJoinsLocked(*spec, joining));
    const std::string name = GroupName(*spec);
    auto reader = AdmitLocked(spec);
    if (!reader.has_value()) return reader.error().WithContext(fmt::format("stream '{}'", name));
    // Leaves an existing group as it is; CheckJoinsLocked has compared the two.
    ++groups_.try_emplace(name, std::move(joining)).first->second.members;
    freed = reader->held.TakeAllBut(still_held);
    slots = reader->slots;
    auto future = future_.Add(spec);
    session = std::make_shared<StreamSession>(
        std::move(*reader), sink,
        SessionParts{.scheduler = scheduler_, .future = future, .hooks = MakeHooks()});
    sessions_.push_back({session.get(), session, std::move(future)});
  }
  if (!freed.empty()) scheduler_.Release(*slots, std::move(freed));
  return session;
}

SessionHooks StreamRegistry::MakeHooks() {
  return {.left = [this](const StreamSession& left) { Left(left); },
          .keeps_all = [this] { return KeepsAll(); },
          .closed = [this](const StreamSession& closed, StreamReader reader, bool has_left) {
            Closed(closed, std::move(reader), has_left);
          }};
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

bool StreamRegistry::KeepsAll() const {
  const MutexLock lock(mutex_);
  return keeps_all_;
}

void StreamRegistry::Closed(const StreamSession& session, StreamReader reader, bool has_left) {
  // No further batch is counted.
  const SessionStats stats = session.stats();
  const MutexLock lock(mutex_);
  const auto open = std::ranges::find(sessions_, &session, &OpenStream::session);
  FOREBAY_CHECK(open != sessions_.end());
  future_.Remove(open->future.get());
  if (reader.held.size() == 0) {
    // Before Open can run again, so that a new stream finds the memory that this one was promised.
    scheduler_.Dismiss(*reader.slots);
  } else {
    const StreamSpec& spec = session.spec();
    log::Info("stream '{}' of '{}' (pid {}) was cut off: {} batches that its reader may still "
              "read, {} bytes, are kept until it comes back or its process has ended",
              GroupName(spec), spec.client.name, spec.client.pid, reader.held.size(),
              reader.held.bytes());
    cut_off_.push_back(std::move(reader));
  }
  sessions_.erase(open);
  Add(closed_totals_, stats);
  // A reader that took its trailer has left the group already.
  if (!has_left) LeaveLocked(session.spec());
}

template <typename Ends>
void StreamRegistry::Drop(Ends ends) {
  std::vector<StreamReader> ended;
  {
    const MutexLock lock(mutex_);
    std::erase_if(cut_off_, [&](StreamReader& reader) {
      const bool drops = ends(reader);
      if (drops) ended.push_back(std::move(reader));
      return drops;
    });
  }
  for (StreamReader& reader : ended) {
    scheduler_.Release(*reader.slots, reader.held.TakeAllBut({}));
    scheduler_.Dismiss(*reader.slots);
    scheduler_.Release(*reader.slots, {});  // for those that lack what was promised
  }
}

void StreamRegistry::Forget(std::span<const std::uint64_t> readers) {
  if (readers.empty()) return;
  const auto is_gone = [&](const StreamSpec& spec) {
    return spec.reader != 0 && std::ranges::find(readers, spec.reader) != readers.end();
  };
  CloseOpen(is_gone, /*reader_is_done=*/true);
  Drop([&](const StreamReader& reader) { return is_gone(*reader.spec); });
}

void StreamRegistry::FreeWhatNobodyReads() {
  Drop([](const StreamReader& reader) {
    return reader.process != nullptr && reader.process->HasEnded();
  });
}

std::vector<StreamSummary> StreamRegistry::Summaries() const {
  const MutexLock lock(mutex_);
  std::vector<StreamSummary> summaries;
  for (const OpenStream& open : sessions_) {
    summaries.push_back(SummaryOf(open.session->spec()));
    summaries.back().stats = open.session->stats();
  }
  for (const StreamReader& reader : cut_off_) {
    summaries.push_back(SummaryOf(*reader.spec));
    summaries.back().is_cut_off = true;
    summaries.back().stats.held = static_cast<std::uint32_t>(reader.held.size());
  }
  return summaries;
}

SessionStats StreamRegistry::totals() const {
  const MutexLock lock(mutex_);
  SessionStats total = closed_totals_;
  // What closed streams held when they were closed is kept, or free.
  total.held = 0;
  for (const OpenStream& open : sessions_) Add(total, open.session->stats());
  for (const StreamReader& reader : cut_off_) {
    total.held += static_cast<std::uint32_t>(reader.held.size());
  }
  return total;
}

std::size_t StreamRegistry::open_count() const {
  const MutexLock lock(mutex_);
  return sessions_.size();
}

void StreamRegistry::KeepWhatReadersHave() {
  const MutexLock lock(mutex_);
  keeps_all_ = true;
}

}  // namespace forebay::stream
