// Answers a request in the steps of a batch: plan what is needed, pin the extents (waiting without
// a thread), read and verify or decode, note where the rows lie. Read then copies them. The request
// is a Work object that the callbacks own in turn, so it lives until its `done` was called.
#include "server/fetch/local_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "server/fetch/packed/chunk_rows.h"
#include "server/fetch/raw_rows.h"
#include "server/stage/extent_source.h"
#include "server/stage/local_extents.h"

namespace forebay::fetch {

Status CopyRows(const FoundRows& found, std::span<const Row> rows) {
  // Compared before anything is written, so that a refused request changes no memory.
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (found.error(i)) return *found.error(i);
    if (found.bytes(i) != rows[i].memory.size()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("field {} of sample {} has {} bytes, not {}",
                               rows[i].field.value(), rows[i].sample.value(), found.bytes(i),
                               rows[i].memory.size()));
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::byte* to = rows[i].memory.data();
    for (const std::span<const std::byte> run : found.runs(i)) {
      std::memcpy(to, run.data(), run.size());
      to += run.size();
    }
  }
  return {};
}

// The state of one request.
struct LocalRows::Work {
  stage::Dataset& dataset;
  WantedRows wanted;
  Found done;
  std::shared_ptr<FoundRows> found = nullptr;
  std::unique_ptr<RowFinder> finder = nullptr;
  DecodeRoom::Share room = nullptr;  // until the finder has it
  bool has_begun = false;
  std::vector<tier::ExtentRef> refs = {};  // of finder->extents(); empty: not pinned yet
  int refetches = 0;

  void SayThatItWaits() const {
    if (wanted.waits) wanted.waits();
  }
  void End(const Status& status) const {
    if (!status.has_value()) return done(stage::ErrorForOthers(status.error()));
    done(std::shared_ptr<const FoundRows>(found));
  }
};

// Compares the catalogs first, because the numbers of a request mean nothing in another one.
Status LocalRows::Plan(Work& work) {
  FOREBAY_TRY(stage::CheckFingerprint(work.dataset, work.wanted.fingerprint));
  std::vector<Row>& rows = work.wanted.rows;
  work.found = std::make_shared<FoundRows>(rows.size());
  const bool is_packed =
      work.dataset.form() != nullptr || work.dataset.catalog()->packs() != nullptr;
  if (!rows.empty() && rows.front().chunk != 0) {
    FOREBAY_ASSIGN(work.finder, ChunkRows::Create(work.dataset, std::move(rows),
                                                  work.wanted.bytes_max, work.found));
  } else if (is_packed) {
    FOREBAY_ASSIGN(work.finder,
                   PackedRows::Create({.dataset = work.dataset, .decoded = parts_.decoded,
                                       .tools = tools_},
                                      std::move(rows), work.wanted.bytes_max, work.found));
  } else {
    FOREBAY_ASSIGN(work.finder, RawRows::Create(work.dataset, std::move(rows),
                                                work.wanted.bytes_max, work.found));
  }
  return {};
}

void LocalRows::Find(stage::Dataset& dataset, WantedRows wanted, Found done) {
  auto work = std::make_shared<Work>(
      Work{.dataset = dataset, .wanted = std::move(wanted), .done = std::move(done)});
  // Another node may ask before any stream of this node has opened the data set.
  // Does nothing if the data set is staged already.
  parts_.stager.StageForReader(dataset);
  if (dataset.catalog() == nullptr) {
    if (work->wanted.has_substitutes && parts_.stager.Yields()) return work->End(stage::AskNext());
    work->SayThatItWaits();
  }
  dataset.WhenCatalogued([this, work](const Status& catalogued) {
    // This may be a thread of the stager, so the reads are left to the executor.
    if (!catalogued.has_value()) return work->End(catalogued);
    const Status planned = Plan(*work);
    if (!planned.has_value()) return work->End(planned);
    AwaitRoom(work);
  });
}

void LocalRows::Read(stage::Dataset& dataset, WantedRows wanted, RowSource::Done done) {
  const auto copy = [rows = wanted.rows, done = std::move(done)](
                        const Result<std::shared_ptr<const FoundRows>>& found) {
    if (!found.has_value()) return done(found.error());
    done(CopyRows(**found, rows));
  };
  Find(dataset, std::move(wanted), copy);
}

std::optional<ExtentId> LocalRows::FirstMissing(const stage::Dataset& dataset,
                                                std::span<const Row> rows, Need need) const {
  const auto catalog = dataset.catalog();
  const catalog::SampleTable* const samples = catalog ? catalog->samples() : nullptr;
  if (samples == nullptr) return std::nullopt;
  std::vector<tier::ExtentRef> refs;
  for (const Row& row : rows) {
    const auto range = samples->SampleRange(row.sample, catalog->PartOf(row.field));
    if (!range.has_value()) continue;
    const ExtentId extent = range->extent;
    if (!parts_.fetcher.TryAcquire(dataset, {&extent, 1}, need, refs)) return extent;
  }
  return std::nullopt;
}

// Called before extents are pinned, so that a request that waits for room holds none.
void LocalRows::AwaitRoom(const WorkRef& work) {
  const std::uint64_t bytes = work->finder->memory_bytes();
  if (bytes == 0) return Start(work);
  if (room_->WouldWait(bytes)) work->SayThatItWaits();
  room_->Take(bytes, [this, work](DecodeRoom::Share share) {
    work->room = std::move(share);
    Start(work);
  });
}

void LocalRows::Start(const WorkRef& work) {
  // The work may be behind a thread that waits.
  if (parts_.has_gfs_waiters && parts_.has_gfs_waiters()) work->SayThatItWaits();
  parts_.executor.Post([this, work](io::IoQueue& queue) { Advance(work, queue); });
}

// Makes one attempt, as BatchScheduler does: pins the extents, waiting without a thread for those
// that are on no tier, then finds some of the rows. After wrong bytes the extent is fetched again.
void LocalRows::Advance(const WorkRef& work, io::IoQueue& queue) {
  // A request may have waited for long; decoding for nobody would keep the next one waiting.
  if (work->wanted.is_wanted && !work->wanted.is_wanted()) {
    return work->End(Error(ErrorCode::kCancelled, "the node that asked has given up"));
  }
  RowFinder& finder = *work->finder;
  if (!std::exchange(work->has_begun, true)) finder.Begin(std::move(work->room));
  const Need need = work->wanted.need;
  const std::span<const ExtentId> extents = finder.extents();
  const bool refuses = work->wanted.has_substitutes && parts_.stager.Yields();
  // The references are there already if Acquire has called back and started this attempt, or if
  // this one goes on with the rows that the last one has left. A node that refuses what it does not
  // have offers no pieces either, because they are read from the GFS.
  if (work->refs.empty() && !parts_.fetcher.TryAcquire(work->dataset, extents,
                                                       refuses ? Need::kRuns : need, work->refs)) {
    work->refs.clear();
    if (refuses) return work->End(stage::AskNext());
    work->SayThatItWaits();
    return parts_.fetcher.Acquire(work->dataset, {extents.begin(), extents.end()},
                                  {.need = need, .is_wanted = work->wanted.is_wanted},
                                  [this, work](Result<std::vector<tier::ExtentRef>> refs) {
                                    if (!refs.has_value()) return work->End(refs.error());
                                    work->refs = std::move(*refs);
                                    Start(work);
                                  });
  }
  const bool is_read_in_pieces = std::ranges::any_of(work->refs, [](const tier::ExtentRef& ref) {
    return ref->tier == tier::TierKind::kGfs;
  });
  if (is_read_in_pieces) work->SayThatItWaits();
  std::vector<tier::BadExtent> bad;
  const Result<bool> found = finder.Find({.refs = work->refs, .queue = queue, .bad = bad});
  // The rest is posted instead of found in a loop, so that batches of this node's own readers have
  // their turns.
  if (found.has_value() && !*found) return Start(work);
  // So that the next attempt pins its extents again: no references means "not pinned yet".
  work->refs.clear();
  if (found.has_value()) return work->End({});
  if (bad.empty() || work->refetches++ >= limits::kRefetchMax) return work->End(found.error());
  // The next attempt finds no copy, so it makes the stager fetch the extent again.
  for (const auto& [extent, error] : bad) {
    parts_.fetcher.ReportBad(extent, error, parts_.clock.NowNs());
  }
  bad.clear();  // unpins the copies
  Start(work);
}

}  // namespace forebay::fetch
