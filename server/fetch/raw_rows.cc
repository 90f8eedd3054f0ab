// Plan lists each sample once, with the pieces of its wanted fields; Find brings the pieces into
// memory, as the gatherer of a batch does, and notes where the bytes of each row lie.
#include "server/fetch/raw_rows.h"

#include <unordered_map>
#include <utility>

#include "server/fetch/requested_rows.h"
#include "server/io/aligned_buffer.h"

namespace forebay::fetch {

Result<std::unique_ptr<RowFinder>> RawRows::Create(const stage::Dataset& dataset,
                                                   std::vector<Row> rows, std::uint64_t bytes_max,
                                                   std::shared_ptr<FoundRows> found) {
  std::unique_ptr<RawRows> made(new RawRows(dataset, std::move(rows), std::move(found)));
  FOREBAY_TRY(made->Plan());
  FOREBAY_TRY(made->Measure(bytes_max));
  return made;
}

RawRows::RawRows(const stage::Dataset& dataset, std::vector<Row> rows,
                 std::shared_ptr<FoundRows> found)
    : dataset_(dataset),
      catalog_(dataset.catalog()),
      rows_(std::move(rows)),
      found_(std::move(found)) {}

// The rows of one sample may come in any order in the request. A row that does not exist is found
// here, before any extent is pinned or staged for it.
Status RawRows::Plan() {
  // A sample with several wanted fields is listed once, so that each of its pieces is read and
  // verified once.
  std::unordered_map<SampleId, std::size_t, IdHash> index;
  std::vector<std::pair<SampleId, std::vector<FieldId>>> samples;
  sample_of_.resize(rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (!IsRowOf(*catalog_, row)) {
      found_->SetError(i, NoSuchRow(*catalog_, row));
      continue;
    }
    const auto [entry, inserted] = index.try_emplace(row.sample, samples.size());
    if (inserted) samples.push_back({row.sample, {}});
    samples[entry->second].second.push_back(row.field);
    sample_of_[i] = entry->second;
  }
  // Samples are listed in the order of their first rows, which is mostly their order in the
  // extents.
  pieces_.Begin(dataset_, *catalog_, samples.size());
  for (const auto& [sample, fields] : samples) FOREBAY_TRY(pieces_.Add(sample, fields));
  return {};
}

// Notes how long each row is, according to the catalog.
Status RawRows::Measure(std::uint64_t bytes_max) {
  RowBytes bytes(rows_.size(), bytes_max);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (found_->error(i)) continue;
    const catalog::FieldLocation& where = pieces_.location(sample_of_[i], rows_[i].field.value());
    if (!where.present) {
      found_->SetError(i, NoSuchRow(*catalog_, rows_[i]));
      continue;
    }
    FOREBAY_TRY(bytes.Add(where.range.length));
    found_->SetBytes(i, where.range.length);
  }
  return {};
}

// Brings the pieces into memory and notes where each row's bytes lie. Wrong copies go to `bad`.
Result<bool> RawRows::Find(const ReadMeans& means) {
  std::uint64_t scratch_bytes = 0;
  for (const SamplePiece& piece : pieces_.pieces()) {
    if (means.refs[piece.extent_index]->tier == tier::TierKind::kRam) continue;
    scratch_bytes += SamplePieces::ScratchBytes(piece);
  }
  // Direct reads transfer whole blocks, so pieces on SSD are read into this buffer first.
  const auto scratch = std::make_shared<io::AlignedBuffer>();
  if (scratch_bytes > 0) {
    FOREBAY_ASSIGN(*scratch, io::AlignedBuffer::Create(scratch_bytes));
  }
  // All rows in RAM may stay in place, because `found_` keeps the pins as long as the rows are in
  // use.
  const std::vector<bool> in_place(means.refs.size(), true);
  FOREBAY_TRY(
      pieces_.Place(means.refs, in_place, {.memory = scratch->span()}, means.queue, means.bad));
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (found_->error(i)) continue;
    std::uint64_t length_in_all = 0;
    pieces_.ForEachRun(sample_of_[i], rows_[i].field.value(),
                       [&](const SamplePiece& piece, std::uint64_t lead, std::uint64_t length) {
                         found_->AddRun(i, {piece.bytes + lead, length});
                         length_in_all += length;
                       });
    // After such an error the request ends, because no copy is to blame.
    if (length_in_all != found_->bytes(i)) return NoSuchRow(*catalog_, rows_[i]);
  }
  if (scratch_bytes > 0) found_->Keep(scratch);
  // Copies on SSD, and those that are read in pieces, are in `scratch` by now.
  for (const tier::ExtentRef& ref : means.refs) {
    if (ref->tier == tier::TierKind::kRam) found_->Pin(ref);
  }
  return true;
}

}  // namespace forebay::fetch
