// Plan lists each sample once, with the pieces of its wanted fields; Find brings the pieces into
// memory, as the gatherer of a batch does, and notes where the bytes of each row lie.
#include "server/fetch/raw_rows.h"

#include <algorithm>
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
// here, before any extent is pinned or staged for it. The rows are sorted by sample: that puts
// those of one sample together, so that each of its pieces is read and verified once, and the
// samples into the order in which they lie in the extents.
Status RawRows::Plan() {
  std::vector<std::size_t> order;
  order.reserve(rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (IsRowOf(*catalog_, rows_[i])) {
      order.push_back(i);
    } else {
      found_->SetError(i, NoSuchRow(*catalog_, rows_[i]));
    }
  }
  std::ranges::sort(order, {}, [this](std::size_t i) { return rows_[i].sample; });
  pieces_.Begin(dataset_, *catalog_, order.size(), SamplePieces::SampleOrder::kAscending);
  sample_of_.resize(rows_.size());
  std::vector<FieldId> fields;  // of one sample
  std::size_t sample = 0;
  for (std::size_t begin = 0; begin < order.size(); ++sample) {
    fields.clear();
    const SampleId id = rows_[order[begin]].sample;
    for (; begin < order.size() && rows_[order[begin]].sample == id; ++begin) {
      fields.push_back(rows_[order[begin]].field);
      sample_of_[order[begin]] = sample;
    }
    FOREBAY_TRY(pieces_.Add(id, fields));
  }
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
