// Answers a request in the steps of a batch: plan the pieces, pin their extents (waiting without a
// thread), read and verify them, note where the fields lie. Read then copies them. The request is a
// Work object that the callbacks own in turn, so it lives until its `done` was called.
#include "server/fetch/local_rows.h"

#include <cstring>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/fetch/sample_pieces.h"
#include "server/io/aligned_buffer.h"
#include "server/stage/extent_source.h"
#include "server/stage/local_extents.h"

namespace forebay::fetch {

// The state of one request.
struct LocalRows::Work {
  stage::Dataset& dataset;
  WantedRows wanted;
  Found done;
  std::shared_ptr<const catalog::Catalog> catalog = nullptr;
  SamplePieces pieces = {};
  std::vector<std::size_t> sample_of = {};  // of each row, in `pieces`
  std::vector<tier::ExtentRef> refs = {};   // of pieces.extents(); empty: not pinned yet
  std::shared_ptr<FoundRows> found = std::make_shared<FoundRows>();
  int refetches = 0;

  Status Plan();
  Status Measure();
  Status Fill(io::IoQueue& queue, std::vector<tier::BadExtent>& bad);
  void End(const Status& status) const {
    if (!status.has_value()) return done(stage::ErrorForOthers(status.error()));
    done(std::shared_ptr<const FoundRows>(found));
  }
  Error NoSuchRow(const Row& row) const {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("data set '{}' has no field {} of sample {}", dataset.name(),
                             row.field.value(), row.sample.value()));
  }
};

// Lists each sample once, with the pieces of its wanted fields. The rows of one sample may come in
// any order in the request. The request comes from another node, so each number is checked before
// it is used, and before any extent is pinned or staged for a row that does not exist.
Status LocalRows::Work::Plan() {
  const std::vector<Row>& rows = wanted.rows;
  FOREBAY_TRY(stage::CheckFingerprint(dataset, wanted.fingerprint));
  catalog = dataset.catalog();
  if (dataset.form() != nullptr || catalog->samples() == nullptr) {
    return Error(ErrorCode::kUnimplemented,
                 fmt::format("samples of data set '{}' are packed; ask for whole extents",
                             dataset.name()));
  }
  // A sample with several wanted fields is listed once, so that each of its pieces is read and
  // verified once.
  std::unordered_map<SampleId, std::size_t, IdHash> index;
  std::vector<std::pair<SampleId, std::vector<FieldId>>> samples;
  found->rows_.resize(rows.size());
  sample_of.resize(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const bool exists =
        row.sample.value() < catalog->sample_count() &&
        row.field.value() < catalog->fields().size() &&
        catalog->fields()[row.field.value()].source == FieldSource::kExtent;
    if (!exists) {
      found->rows_[i].error = NoSuchRow(row);
      continue;
    }
    const auto [entry, inserted] = index.try_emplace(row.sample, samples.size());
    if (inserted) samples.push_back({row.sample, {}});
    samples[entry->second].second.push_back(row.field);
    sample_of[i] = entry->second;
  }
  pieces.Begin(dataset, *catalog, samples.size());
  for (const auto& [sample, fields] : samples) FOREBAY_TRY(pieces.Add(sample, fields));
  return Measure();
}

// Notes how long each row is, according to the catalog.
Status LocalRows::Work::Measure() {
  const std::vector<Row>& rows = wanted.rows;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    FoundRows::Entry& entry = found->rows_[i];
    if (entry.error) continue;
    const catalog::FieldLocation& where = pieces.location(sample_of[i], rows[i].field.value());
    if (!where.present) {
      entry.error = NoSuchRow(rows[i]);
      continue;
    }
    entry.bytes = where.range.length;
    // A single row may be longer: its length was admitted when the data set was catalogued.
    if (rows.size() > 1 && entry.bytes > wanted.bytes_max - bytes) {
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("the {} rows asked for take more than {} bytes", rows.size(),
                               wanted.bytes_max));
    }
    bytes += entry.bytes;
  }
  return {};
}

// Brings the pieces into memory and notes where each row's bytes lie. Wrong copies go to `bad`.
Status LocalRows::Work::Fill(io::IoQueue& queue, std::vector<tier::BadExtent>& bad) {
  std::uint64_t scratch_bytes = 0;
  for (const SamplePiece& piece : pieces.pieces()) {
    if (refs[piece.extent_index]->tier == tier::TierKind::kRam) continue;
    scratch_bytes += SamplePieces::ScratchBytes(piece);
  }
  // Direct reads transfer whole blocks, so pieces on SSD are read into this buffer first.
  io::AlignedBuffer scratch;
  if (scratch_bytes > 0) {
    FOREBAY_ASSIGN(scratch, io::AlignedBuffer::Create(scratch_bytes));
  }
  // All in place: `found` keeps the pins as long as the rows are in use.
  const std::vector<bool> in_place(refs.size(), true);
  FOREBAY_TRY(pieces.Place(refs, in_place, {.memory = scratch.span()}, queue, bad));
  for (std::size_t i = 0; i < wanted.rows.size(); ++i) {
    FoundRows::Entry& entry = found->rows_[i];
    if (entry.error) continue;
    entry.first_run = found->runs_.size();
    std::uint64_t length_in_all = 0;
    pieces.ForEachRun(sample_of[i], wanted.rows[i].field.value(),
                      [&](const SamplePiece& piece, std::uint64_t lead, std::uint64_t length) {
                        found->runs_.emplace_back(piece.bytes + lead, length);
                        length_in_all += length;
                      });
    entry.run_count = found->runs_.size() - entry.first_run;
    if (length_in_all != entry.bytes) return NoSuchRow(wanted.rows[i]);
  }
  found->scratch_ = std::move(scratch);
  // Copies on SSD, and those that are read in pieces, are in `scratch` by now.
  for (tier::ExtentRef& ref : refs) {
    if (ref->tier == tier::TierKind::kRam) found->pins_.push_back(std::move(ref));
  }
  return {};
}

void LocalRows::Find(stage::Dataset& dataset, WantedRows wanted, Found done) {
  auto work = std::make_shared<Work>(
      Work{.dataset = dataset, .wanted = std::move(wanted), .done = std::move(done)});
  // Another node may ask before any stream of this node has opened the data set.
  // Does nothing if the data set is staged already.
  stager_.StageForReader(dataset);
  dataset.WhenCatalogued([this, work](const Status& catalogued) {
    // This may be a thread of the stager, so the reads are left to the executor.
    if (!catalogued.has_value()) return work->End(catalogued);
    const Status planned = work->Plan();
    if (!planned.has_value()) return work->End(planned);
    Start(work);
  });
}

void LocalRows::Read(stage::Dataset& dataset, WantedRows wanted, RowSource::Done done) {
  const auto copy = [rows = wanted.rows, done = std::move(done)](
                        Result<std::shared_ptr<const FoundRows>> found) {
    if (!found.has_value()) return done(found.error());
    // Compared before anything is written, so that a refused request changes no memory.
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if ((*found)->error(i)) return done(*(*found)->error(i));
      if ((*found)->bytes(i) != rows[i].memory.size()) {
        return done(Error(ErrorCode::kInvalidArgument,
                          fmt::format("field {} of sample {} has {} bytes, not {}",
                                      rows[i].field.value(), rows[i].sample.value(),
                                      (*found)->bytes(i), rows[i].memory.size())));
      }
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::byte* to = rows[i].memory.data();
      for (const std::span<const std::byte> run : (*found)->runs(i)) {
        std::memcpy(to, run.data(), run.size());
        to += run.size();
      }
    }
    done(Status());
  };
  Find(dataset, std::move(wanted), copy);
}

void LocalRows::Start(const WorkRef& work) {
  executor_.Post([this, work](io::IoQueue& queue) { Advance(work, queue); });
}

// One attempt, as BatchScheduler makes it: pins the extents, waiting without a thread for those
// that are on no tier, then fills the rows. After wrong bytes the extent is fetched again.
void LocalRows::Advance(const WorkRef& work, io::IoQueue& queue) {
  const Need need = work->wanted.need;
  const std::span<const ExtentId> extents = work->pieces.extents();
  // The references are there already if Acquire has called back and started this attempt.
  if (work->refs.empty() && !fetcher_.TryAcquire(work->dataset, extents, need, work->refs)) {
    work->refs.clear();
    return fetcher_.Acquire(work->dataset, {extents.begin(), extents.end()}, need,
                            [this, work](Result<std::vector<tier::ExtentRef>> refs) {
                              if (!refs.has_value()) return work->End(refs.error());
                              work->refs = std::move(*refs);
                              Start(work);
                            });
  }
  std::vector<tier::BadExtent> bad;
  const Status filled = work->Fill(queue, bad);
  // So that the next attempt pins its extents again: no references means "not pinned yet".
  work->refs.clear();
  if (!filled.has_value()) work->found->runs_.clear();
  if (filled.has_value() || bad.empty() || work->refetches++ >= limits::kRefetchMax) {
    return work->End(filled);
  }
  // The next attempt finds no copy, so it makes the stager fetch the extent again.
  for (const auto& [extent, error] : bad) fetcher_.ReportBad(extent, error, clock_.NowNs());
  bad.clear();  // unpins the copies
  Start(work);
}

}  // namespace forebay::fetch
