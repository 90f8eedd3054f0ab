// A job that waits here has no thread: the callback of the request goes on with it. Rows are
// written into the memory of batches that are complete otherwise. Chunks are kept by the job, whose
// batch is then planned again.
#include "server/stream/remote_waits.h"

#include <algorithm>
#include <utility>

#include "proto/contract/limits.h"

namespace forebay::stream {
namespace {

// Small batches ask other nodes together for so many rows at most. More would hardly make a row
// cheaper, and would need more extents at once on the node that is asked.
constexpr std::size_t kRowsTogether = 128;
// They do so while answers come within this time. After one that took longer, and at the start of a
// stream, each batch asks alone for a while; after an error for so long that the reader has asked
// again for the batches that failed.
constexpr std::int64_t kQuickRowsNs = 50'000'000;
constexpr std::int64_t kAloneAfterSlowNs = 1'000'000'000;
constexpr std::int64_t kAloneAfterErrorNs = 2 * limits::kPullDeadlineMs * 1'000'000;

// A reader has pulled no more batches than it has credits. Some of those before this one may still
// wait for something else, but those before all of them have been answered.
fetch::ReaderPlace PlaceOf(const StreamSpec& spec, const BatchName& name) {
  // The other orders need all extents on the tiers, so no node evicts any.
  if (!spec.ReadsRuns(name.epoch)) return {};
  const std::uint64_t step = name.step.value();
  return {.order = spec.order.Fingerprint(),
          .rank = spec.rank,
          .ranks = static_cast<std::uint32_t>(spec.plan.ranks()),
          .epoch = name.epoch,
          .position = (step - std::min<std::uint64_t>(step, spec.credits)) *
                      spec.plan.global_batch()};
}

}  // namespace

RemoteWaits::RemoteWaits(const Parts& parts, std::uint64_t sent_chunk_bytes, Ends ends)
    : parts_(parts), ends_(std::move(ends)), chunks_(parts.rows, sent_chunk_bytes) {}

void RemoteWaits::Begin(StreamSlots& slots) const {
  slots.asks_alone_until_ns = parts_.clock.NowNs() + kAloneAfterSlowNs;
}

OtherNodes RemoteWaits::OthersOf(const BatchJob& job) const {
  return {.fetcher = &parts_.fetcher,
          .chunks = &job.sent_chunks,
          .are_chunks_asked = !job.takes_no_chunks};
}

void RemoteWaits::Expire() { chunks_.Expire(parts_.clock.NowNs()); }

void RemoteWaits::Fail(const JobRef& job, const Error& error) {
  AnsweredBatch answered = {.job = job, .outcome = error};
  ends_.hand_over({&answered, 1});
}

// The job keeps the chunks until it has decoded them, whatever is planned then, and pins nothing
// while it waits for them. However often it asks, it gets an outcome in the time of one wait.
void RemoteWaits::AwaitChunks(const JobRef& job, std::vector<fetch::WantedRemote> chunks) {
  // The job has pinned extents already, so the plan before this one wanted others: what is decoded,
  // or on this node, has changed meanwhile. The job must not wait for ever because that happens
  // again and again.
  if (!job->refs.empty()) job->wants_all_extents = true;
  job->refs.clear();
  if (!job->chunk_deadline_ns) {
    job->chunk_deadline_ns = parts_.clock.NowNs() + limits::kPullDeadlineMs * 1'000'000;
  }
  const StreamSpec& spec = job->owner->spec();
  const bool are_asked = chunks_.Bring(
      *spec.dataset, chunks,
      {.need = job->need(),
       .place = PlaceOf(spec, job->name),
       .unwanted = job->owner->unwanted()},
      *job->chunk_deadline_ns, [this, job, chunks](Result<std::vector<fetch::SentChunk>> sent) {
        ChunksCame(job, chunks, std::move(sent));
      });
  if (are_asked) return;
  // There is no memory for them. The next plan takes the samples as rows, or with their extents.
  job->takes_no_chunks = true;
  ends_.start(job);
}

void RemoteWaits::ChunksCame(const JobRef& job, const std::vector<fetch::WantedRemote>& wanted,
                             Result<std::vector<fetch::SentChunk>> sent) {
  if (!sent.has_value()) return Fail(job, sent.error());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    // The request of another batch has failed to bring it; the next plan asks again.
    if ((*sent)[i] == nullptr) continue;
    job->waited = job->waited || (*sent)[i]->is_own();
    job->sent_chunks.insert_or_assign(wanted[i].number, std::move((*sent)[i]));
  }
  ends_.start(job);
}

// Batches ask together only where nothing waits: not for the GFS or for room in RAM here, nor, as
// far as the last answers tell, on other nodes. Otherwise a batch would wait for what another one
// needs, and the extents of several batches may be more than an owner has room for.
void RemoteWaits::Lack(RowsAwaited lacking, std::vector<RowsAwaited>& together) {
  const bool asks_alone = lacking.job->waited || parts_.fetcher.IsAnyNeededNow() ||
                          parts_.clock.NowNs() < lacking.job->slots->asks_alone_until_ns;
  std::size_t rows = lacking.rows.size();
  for (const RowsAwaited& other : together) rows += other.rows.size();
  if (asks_alone || rows > kRowsTogether) AwaitRows(std::exchange(together, {}));
  together.push_back(std::move(lacking));
  if (asks_alone) AwaitRows(std::exchange(together, {}));
}

// These batches of one stream are complete but for rows that the router brings. The rows of all are
// asked for together, because a request costs as much as some tens of small rows, and the batches
// are then handed over together. Rows are written into the batches' memory, so the batches live
// until the router has ended, whatever becomes of their reader. The router sees to it that this
// does not take longer than other waits.
void RemoteWaits::AwaitRows(std::vector<RowsAwaited> batches) {
  if (batches.empty()) return;
  const BatchJob& first = *batches.front().job;
  const StreamSpec& spec = first.owner->spec();
  const fetch::RowReader reader = {.need = first.need(),
                                   .place = PlaceOf(spec, first.name),
                                   .unwanted = first.owner->unwanted()};
  std::vector<fetch::RoutedRow> rows;
  for (const RowsAwaited& lacking : batches) {
    rows.insert(rows.end(), lacking.rows.begin(), lacking.rows.end());
  }
  const auto held = std::make_shared<std::vector<RowsAwaited>>(std::move(batches));
  parts_.rows.Fill(*spec.dataset, std::move(rows), reader,
                   [this, held, asked_ns = parts_.clock.NowNs()](
                       const Result<fetch::RowRouter::Filled>& filled) {
                     RowsCame(*held, asked_ns, filled);
                   });
}

void RemoteWaits::RowsCame(std::vector<RowsAwaited>& batches, std::int64_t asked_ns,
                           const Result<fetch::RowRouter::Filled>& filled) {
  const BatchJob& first = *batches.front().job;
  const std::int64_t now_ns = parts_.clock.NowNs();
  if (!filled.has_value()) {
    first.slots->asks_alone_until_ns = now_ns + kAloneAfterErrorNs;
  } else if (now_ns - asked_ns > kQuickRowsNs) {
    // Never earlier than an error has said.
    first.slots->asks_alone_until_ns =
        std::max(first.slots->asks_alone_until_ns.load(), now_ns + kAloneAfterSlowNs);
  }
  const bool is_final = !filled.has_value() && filled.error().code() != ErrorCode::kUnavailable &&
                        !first.owner->closed();
  if (is_final && batches.size() > 1) {
    // The error may be about the rows of one batch. The others must not fail with it, so each batch
    // asks once more, alone. After kUnavailable the reader itself asks for its batches again.
    for (RowsAwaited& lacking : batches) {
      std::vector<RowsAwaited> alone;
      alone.push_back(std::move(lacking));
      AwaitRows(std::move(alone));
    }
    return;
  }
  std::vector<AnsweredBatch> answered;
  std::size_t own_left = filled.has_value() ? filled->own_samples : 0;
  for (RowsAwaited& lacking : batches) {
    if (!filled.has_value()) {
      lacking.batch.hold = {};  // its memory is free before anybody is told so
      answered.push_back({.job = lacking.job, .outcome = filled.error()});
      continue;
    }
    // The router counts the samples of all batches together. They are attributed to the first
    // batches: the figures of a stream are sums, so only those of a batch are inexact. If one batch
    // had to wait for the GFS, all have waited.
    const std::size_t samples = fetch::CountSamples(lacking.rows);
    const std::size_t own = std::min(own_left, samples);
    own_left -= own;
    if (filled->own_samples > 0) lacking.job->waited = true;
    lacking.batch.other_samples += samples - own;
    answered.push_back({.job = lacking.job, .outcome = std::move(lacking.batch)});
  }
  ends_.hand_over(answered);
}

}  // namespace forebay::stream
