// The catalog of packs knows where each chunk lies, so nothing is decoded and no directory is read:
// chunks in RAM are sent from there, and those on SSD are read to memory of the request. Each
// record is checked before it is sent. The node that asks checks it again, but only this node can
// fetch a damaged copy again.
#include "server/fetch/packed/chunk_rows.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "compress/decode/pack/chunk_record.h"
#include "proto/contract/limits.h"
#include "server/fetch/requested_rows.h"
#include "server/tier/piece_reader.h"

namespace forebay::fetch {

std::optional<catalog::PackChunk> ChunkNamedBy(const catalog::Catalog& catalog, const Row& row) {
  const catalog::PackTable* const packs = catalog.packs();
  if (packs == nullptr || row.chunk == 0 || !NamesField(catalog, row)) return std::nullopt;
  const catalog::ChunkGroup group = packs->GroupOf(row.field.value(), row.sample);
  if (row.chunk > group.count) return std::nullopt;
  return packs->chunk(group.first + row.chunk - 1);
}

Status CheckChunk(const catalog::Catalog& catalog, const Row& row) {
  const std::optional<catalog::PackChunk> chunk = ChunkNamedBy(catalog, row);
  if (!chunk) return NoSuchRow(catalog, row);
  const compress::PackContext pack{.schema = catalog.packs()->schema(),
                                   .identity = chunk->identity};
  FOREBAY_TRY(compress::ReadChunkRecord(pack, chunk->entry, row.memory));
  return {};
}

Result<std::unique_ptr<RowFinder>> ChunkRows::Create(const stage::Dataset& dataset,
                                                     std::vector<Row> rows,
                                                     std::uint64_t bytes_max,
                                                     std::shared_ptr<FoundRows> found) {
  std::unique_ptr<ChunkRows> made(new ChunkRows(dataset, std::move(rows), std::move(found)));
  FOREBAY_TRY(made->Plan(bytes_max));
  return made;
}

// The request comes from another node, so each number is checked before it is used, and before any
// extent is pinned or staged for a chunk that does not exist.
Status ChunkRows::Plan(std::uint64_t bytes_max) {
  RowBytes bytes(rows_.size(), bytes_max);
  std::unordered_map<ExtentId, std::uint32_t, IdHash> extent_index;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::optional<catalog::PackChunk> chunk = ChunkNamedBy(*catalog_, rows_[i]);
    if (!chunk) {
      found_->SetError(i, NoSuchRow(*catalog_, rows_[i]));
      continue;
    }
    FOREBAY_TRY(bytes.Add(chunk->bytes()));
    found_->SetBytes(i, chunk->bytes());
    const auto [entry, inserted] = extent_index.try_emplace(
        chunk->extent, static_cast<std::uint32_t>(extents_.size()));
    if (inserted) extents_.push_back(chunk->extent);
    chunks_.push_back({.at = *chunk, .extent_index = entry->second});
    chunk_rows_.push_back(i);
    memory_bytes_ += tier::AlignedBytes(PieceOf(*chunk));
  }
  return {};
}

void ChunkRows::Begin(std::shared_ptr<const void> room) {
  memory_ = std::make_shared<Memory>(Memory{.room = std::move(room), .readers = {}});
  found_->Keep(memory_);
}

// Moves next_ forward part by part, so that a request that is tried again does not repeat what it
// has.
Result<bool> ChunkRows::Find(const ReadMeans& means) {
  const std::size_t end = EndOfPart();
  ChunkReader reader;
  FOREBAY_TRY(FindPart(means, end, reader));
  memory_->readers.push_back(std::move(reader));
  next_ = end;
  return next_ == chunks_.size();
}

// Chunks in RAM count as if they were read, because their checksums take time as well.
std::size_t ChunkRows::EndOfPart() const {
  std::uint64_t bytes = 0;
  std::size_t end = next_;
  for (; end < chunks_.size(); ++end) {
    bytes += tier::AlignedBytes(PieceOf(chunks_[end].at));
    if (bytes > limits::kDecodeReadBytesMax && end > next_) break;
  }
  return end;
}

// The records of the chunks from next_ to `end` stay in the reader.
Status ChunkRows::FindPart(const ReadMeans& means, std::size_t end, ChunkReader& reader) {
  std::vector<PlacedChunk*> part;
  for (std::size_t i = next_; i < end; ++i) {
    chunks_[i].record = {};  // after an error the extents were pinned again, and may lie elsewhere
    part.push_back(&chunks_[i]);
  }
  SourceCounts counts;
  FOREBAY_TRY(reader.ReadFromSsd(means, part, counts));
  for (std::size_t i = next_; i < end; ++i) {
    const compress::PackContext pack{.schema = catalog_->packs()->schema(),
                                     .identity = chunks_[i].at.identity};
    const Result<compress::ChunkRecord> record = reader.RecordOf(pack, means, chunks_[i], counts);
    if (record.has_value()) continue;
    // Where the tier is not to blame, the pack itself is damaged, and only this chunk is lost.
    const bool is_damaged = record.error().code() == ErrorCode::kDataLoss && means.bad.empty();
    if (!is_damaged) return record.error();
    found_->SetError(chunk_rows_[i], record.error());
  }
  // Only now, because a part that is tried again begins with all its rows.
  std::unordered_set<std::uint32_t> pinned;
  for (std::size_t i = next_; i < end; ++i) {
    if (!found_->error(chunk_rows_[i])) found_->AddRun(chunk_rows_[i], chunks_[i].record);
    const tier::ExtentRef& ref = means.refs[chunks_[i].extent_index];
    const bool is_new = pinned.insert(chunks_[i].extent_index).second;
    if (is_new && ref->tier == tier::TierKind::kRam) found_->Pin(ref);
  }
  return {};
}

}  // namespace forebay::fetch
