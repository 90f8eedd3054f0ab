// Plan groups the rows by unit, as GatherPlan does for a batch. Begin copies what is decoded
// already, so that these chunks need no extent. Find decodes the rest, a bounded part at each call,
// so that batches of this node's own readers have their turns in between. A unit that the cache
// would keep is decoded as a whole into the cache; of others only the wanted samples are decoded,
// straight into the memory of the answer.
#include "server/fetch/packed/packed_rows.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/fetch/requested_rows.h"

namespace forebay::fetch {

std::unique_ptr<DecodeTools> DecodeToolbox::Take() {
  const MutexLock lock(mutex_);
  if (idle_.empty()) return std::make_unique<DecodeTools>();
  std::unique_ptr<DecodeTools> tools = std::move(idle_.back());
  idle_.pop_back();
  return tools;
}

void DecodeToolbox::Give(std::unique_ptr<DecodeTools> tools) {
  const MutexLock lock(mutex_);
  idle_.push_back(std::move(tools));
}

Result<std::unique_ptr<RowFinder>> PackedRows::Create(const Parts& parts, std::vector<Row> rows,
                                                      std::uint64_t bytes_max,
                                                      std::shared_ptr<FoundRows> found) {
  std::unique_ptr<PackedRows> made(new PackedRows(parts, std::move(rows), std::move(found)));
  FOREBAY_TRY(made->Plan(bytes_max));
  return made;
}

PackedRows::PackedRows(const Parts& parts, std::vector<Row> rows,
                       std::shared_ptr<FoundRows> found)
    : parts_(parts),
      catalog_(parts.dataset.catalog()),
      form_(parts.dataset.form()),
      source_(UnitSource::Of(*catalog_, form_.get())),
      rows_(std::move(rows)),
      found_(std::move(found)) {}

// The request comes from another node, so each number is checked before it is used, and before any
// extent is pinned or staged for a row that does not exist.
Status PackedRows::Plan(std::uint64_t bytes_max) {
  RowBytes bytes(rows_.size(), bytes_max);
  std::unordered_map<std::uint64_t, std::uint32_t> index;  // number of a unit -> in units_
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (!IsRowOf(*catalog_, row)) {
      found_->SetError(i, NoSuchRow(*catalog_, row));
      continue;
    }
    const compress::PackField& field = source_->schema().fields[row.field.value()];
    // The node that asks cannot know how long the value is before it has decoded it.
    if (field.variable()) {
      found_->SetError(i, Error(ErrorCode::kUnimplemented,
                                fmt::format("values of field '{}' have no fixed size; ask for "
                                            "their chunks, or for whole extents",
                                            field.name)));
      continue;
    }
    const UnitPlace place = source_->UnitOf(row.field.value(), row.sample);
    const auto [entry, inserted] =
        index.try_emplace(place.number, static_cast<std::uint32_t>(units_.size()));
    if (inserted) {
      units_.push_back({.field = row.field.value(),
                        .place = place,
                        .key = {parts_.dataset.key(place.extent), place.piece,
                                parts_.dataset.number()},
                        .samples = {.dataset = parts_.dataset.hash(),
                                    .first = place.first_sample,
                                    .count = place.sample_count}});
    }
    wanted_.push_back({.unit = entry->second,
                       .index = static_cast<std::uint32_t>(row.sample.value() -
                                                           place.first_sample),
                       .row = i,
                       .offset = bytes.bytes()});
    FOREBAY_TRY(bytes.Add(field.sample_bytes()));
    found_->SetBytes(i, field.sample_bytes());
  }
  memory_bytes_ = bytes.bytes();
  SortByUnit();
  return {};
}

// Sorts the rows by unit, so that all rows of a unit are found together, in whatever order the
// request has them. The sort is stable, so that the rows of one sample stay in order.
void PackedRows::SortByUnit() {
  std::ranges::stable_sort(wanted_, {}, &Wanted::unit);
  for (std::uint32_t i = 0; i < wanted_.size(); ++i) {
    Unit& unit = units_[wanted_[i].unit];
    if (unit.wanted_count++ == 0) unit.first_wanted = i;
  }
}

void PackedRows::Begin(std::shared_ptr<const void> room) {
  memory_ = std::make_shared<Memory>(
      Memory{.room = std::move(room), .bytes = RawBytes(memory_bytes_)});
  found_->Keep(memory_);
  std::unordered_map<ExtentId, std::uint32_t, IdHash> extent_index;
  // Units are looked up now and copied at once, because a reference to a unit would keep memory
  // that the cache counts as free once it has evicted the unit.
  std::erase_if(units_, [&](const Unit& unit) {
    const UnitRef decoded = parts_.decoded.Find(unit.key, IndicesOf(unit));
    if (decoded) CopyFrom(unit, *decoded);
    return decoded != nullptr;
  });
  // Where the chunks lie in their extents is not known yet: a directory may have to be read.
  for (Unit& unit : units_) {
    unit.first_chunk = static_cast<std::uint32_t>(chunks_.size());
    for (std::uint32_t i = 0; i < unit.place.chunk_count; ++i) {
      const ExtentId extent = source_->ExtentOf(unit.place, i);
      const auto [entry, inserted] =
          extent_index.try_emplace(extent, static_cast<std::uint32_t>(extents_.size()));
      if (inserted) extents_.push_back(extent);
      chunks_.push_back({.at = {}, .extent_index = entry->second});
    }
  }
}

std::vector<std::uint32_t> PackedRows::IndicesOf(const Unit& unit) const {
  std::vector<std::uint32_t> indices;
  for (const Wanted& wanted : WantedOf(unit)) indices.push_back(wanted.index);
  return indices;
}

// Borrows the tools for this call only, so that there are no more of them than threads that decode,
// however many requests have begun.
Result<bool> PackedRows::Find(const ReadMeans& means) {
  std::unique_ptr<DecodeTools> tools = parts_.tools.Take();
  tools->reader.Begin(source_->IsMadeHere());
  Result<bool> is_complete = FindSome(means, *tools);
  // What was read ahead lies in memory of the tools, which another request may use next. After an
  // error the extents are pinned again, and the chunks may lie elsewhere in them.
  for (PlacedChunk& chunk : chunks_) chunk.record = {};
  knows_chunks_ = is_complete.has_value();
  parts_.tools.Give(std::move(tools));
  return is_complete;
}

// Moves next_ forward unit by unit, so that a request that is tried again does not repeat what it
// has.
Result<bool> PackedRows::FindSome(const ReadMeans& means, DecodeTools& tools) {
  if (!knows_chunks_) FOREBAY_TRY(FindChunks(means, tools));
  std::size_t end = next_;
  FOREBAY_TRY(ReadAhead(means, tools, end));
  for (; next_ < end; ++next_) {
    const Unit& unit = units_[next_];
    const Status decoded = DecodeUnit(unit, means, tools);
    if (decoded.has_value()) continue;
    // Another copy of the extent may be sound, so the request is tried again with one. Where the
    // tier is not to blame, the pack itself is damaged, and only the rows of this chunk are lost.
    const bool is_damaged = decoded.error().code() == ErrorCode::kDataLoss && means.bad.empty();
    if (!is_damaged) return decoded.error();
    SetErrors(unit, decoded.error());
  }
  return next_ == units_.size();
}

// Finds out where in their extents the chunks of all units lie that are not decoded yet.
Status PackedRows::FindChunks(const ReadMeans& means, DecodeTools& tools) {
  std::vector<WantedChunk> wanted;
  for (const Unit& unit : std::span(units_).subspan(next_)) {
    for (std::uint32_t i = 0; i < unit.place.chunk_count; ++i) {
      PlacedChunk& chunk = chunks_[unit.first_chunk + i];
      wanted.push_back({.unit = unit.place, .index = i, .extent_index = chunk.extent_index,
                        .at = &chunk.at});
    }
  }
  return tools.finder.Find(*source_, means.refs, means.queue, wanted, means.bad);
}

// Chooses the units of this call, from next_ up to `end`, and reads those of their chunks that lie
// on SSD, all at once. The bound holds for what is read as well as for what comes out; a unit
// beyond it is taken alone, and its chunks are read one by one when it is decoded.
Status PackedRows::ReadAhead(const ReadMeans& means, DecodeTools& tools, std::size_t& end) {
  std::vector<PlacedChunk*> ahead;
  std::uint64_t read_bytes = 0;
  std::uint64_t decoded_bytes = 0;
  for (; end < units_.size(); ++end) {
    const std::span<PlacedChunk> chunks = ChunksOf(units_[end]);
    // Chunks in RAM are used in place, and count for what comes out only.
    read_bytes += ChunkReader::SsdBytes(means, chunks);
    decoded_bytes += DecodedBytes(units_[end]);
    if (std::max(read_bytes, decoded_bytes) > limits::kDecodeReadBytesMax) break;
    for (PlacedChunk& chunk : chunks) ahead.push_back(&chunk);
  }
  end = std::min(units_.size(), std::max(end, next_ + 1));
  SourceCounts counts;
  return tools.reader.ReadFromSsd(means, ahead, counts);
}

// A unit beyond kDecodedUnitBytesMax is never decoded as a whole: a request for one row of it must
// not take that much memory.
Status PackedRows::DecodeUnit(const Unit& unit, const ReadMeans& means, DecodeTools& tools) {
  const std::uint64_t bytes = DecodedBytes(unit);
  if (bytes <= limits::kDecodedUnitBytesMax && parts_.decoded.WouldKeep(unit.samples, bytes)) {
    // Get may return a unit that a batch of this node, or another request, is decoding now.
    FOREBAY_ASSIGN(const UnitRef decoded,
                   parts_.decoded.Get(
                       unit.key, unit.samples, [&] { return DecodeWhole(unit, means, tools); },
                       IndicesOf(unit)));
    CopyFrom(unit, *decoded);
    return {};
  }
  std::vector<std::span<std::byte>> places(unit.samples.count);
  for (const Wanted& wanted : WantedOf(unit)) places[wanted.index] = PlaceOf(unit, wanted);
  FOREBAY_TRY(DecodeTo(unit, places, means, tools, /*check=*/nullptr));
  // A sample that was asked for twice was decoded to the last of its places.
  for (const Wanted& wanted : WantedOf(unit)) {
    const std::span<std::byte> place = PlaceOf(unit, wanted);
    if (place.data() != places[wanted.index].data()) {
      std::memcpy(place.data(), places[wanted.index].data(), place.size());
    }
    found_->AddRun(wanted.row, place);
  }
  return {};
}

// Decodes the samples of a unit that have a place, and verifies them. `check`, if it is set,
// receives what the scrubber will compare.
Status PackedRows::DecodeTo(const Unit& unit, std::span<const std::span<std::byte>> places,
                            const ReadMeans& means, DecodeTools& tools, UnitCheck* check) {
  SourceCounts counts;
  for (PlacedChunk& chunk : ChunksOf(unit)) {
    const compress::PackContext pack{.schema = source_->schema(), .identity = chunk.at.identity};
    FOREBAY_ASSIGN(const compress::ChunkRecord record,
                   tools.reader.RecordOf(pack, means, chunk, counts));
    const std::size_t scratch = compress::RecordScratchBytes(source_->schema(), chunk.at.entry);
    if (tools.scratch.size() < scratch) {
      tools.scratch = RawBytes();  // never both at once
      tools.scratch = RawBytes(scratch);
    }
    const Status decoded =
        compress::DecodeSamples(pack, chunk.at.entry, record, places, tools.scratch.span());
    if (!decoded.has_value()) {
      tools.reader.BlameTier(means, chunk, decoded.error());
      return decoded;
    }
    if (check == nullptr) continue;
    // The samples of tiles lie between each other.
    if (unit.place.chunk_count == 1) check->Add(pack, record, 0);
    else check->AddScattered();
  }
  return {};
}

// Decodes all samples of the unit, one after another, as the gatherer of a batch leaves them in the
// cache: it may be the next one to use them.
Result<DecodedUnit> PackedRows::DecodeWhole(const Unit& unit, const ReadMeans& means,
                                            DecodeTools& tools) {
  DecodedUnit decoded;
  decoded.samples = unit.samples.count;
  decoded.bytes = RawBytes(DecodedBytes(unit));
  std::vector<std::span<std::byte>> places;
  for (std::uint32_t i = 0; i < unit.samples.count; ++i) {
    places.push_back(decoded.bytes.span().subspan(i * SampleBytes(unit), SampleBytes(unit)));
  }
  UnitCheck check;
  FOREBAY_TRY(DecodeTo(unit, places, means, tools, &check));
  std::move(check).GiveTo(decoded);
  return decoded;
}

void PackedRows::CopyFrom(const Unit& unit, const DecodedUnit& decoded) {
  for (const Wanted& wanted : WantedOf(unit)) {
    // Get and Find have returned a unit that holds all wanted samples.
    const std::span<const std::byte> sample = decoded.Sample(wanted.index);
    const std::span<std::byte> place = PlaceOf(unit, wanted);
    std::memcpy(place.data(), sample.data(), place.size());
    found_->AddRun(wanted.row, place);
  }
}

void PackedRows::SetErrors(const Unit& unit, const Error& error) {
  for (const Wanted& wanted : WantedOf(unit)) found_->SetError(wanted.row, error);
}

}  // namespace forebay::fetch
