// Chunks in RAM, and those that another node has sent, are used in place. Chunks on SSD, or on no
// tier, are read into one of two buffers: ReadFromSsd fills one with the chunks of several units at
// once, so that the device has many requests to work on; RecordOf fills the other with a single
// chunk that was too large for that. Every record is verified before anybody decodes it. Called by
// the worker that assembles the batch.
#include "server/fetch/packed/chunk_reader.h"

#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "server/tier/piece_reader.h"

namespace forebay::fetch {

using compress::ChunkRecord;

namespace {

// Memory for `bytes`, kept for the next time.
Result<std::span<std::byte>> Grow(io::AlignedBuffer& buffer, std::uint64_t bytes) {
  if (buffer.size() < bytes) {
    buffer = io::AlignedBuffer();  // never both at once
    FOREBAY_ASSIGN(buffer, io::AlignedBuffer::Create(static_cast<std::size_t>(bytes)));
  }
  return buffer.span();
}

}  // namespace

std::uint64_t ChunkReader::SsdBytes(const ReadMeans& means,
                                    std::span<const PlacedChunk> chunks) {
  std::uint64_t bytes = 0;
  for (const PlacedChunk& chunk : chunks) {
    if (chunk.is_sent() || means.refs[chunk.extent_index]->tier == tier::TierKind::kRam) continue;
    bytes += tier::AlignedBytes(PieceOf(chunk.at));
  }
  return bytes;
}

Status ChunkReader::ReadFromSsd(const ReadMeans& means, std::span<PlacedChunk* const> chunks,
                                SourceCounts& counts) {
  std::vector<PlacedChunk*> on_ssd;
  std::uint64_t bytes = 0;
  for (PlacedChunk* chunk : chunks) {
    const std::uint64_t cell = SsdBytes(means, {chunk, 1});
    // The chunk lies in memory.
    if (cell == 0) continue;
    bytes += cell;
    on_ssd.push_back(chunk);
  }
  if (on_ssd.empty()) return {};
  FOREBAY_ASSIGN(const std::span<std::byte> memory, Grow(many_, bytes));
  return ReadPieces(means, on_ssd, memory, counts);
}

Status ChunkReader::ReadPieces(const ReadMeans& means,
                                std::span<PlacedChunk* const> chunks,
                                std::span<std::byte> memory, SourceCounts& counts) {
  std::vector<tier::PieceRead> reads;
  std::uint64_t used = 0;
  for (PlacedChunk* chunk : chunks) {
    const tier::ResidentExtent& extent = *means.refs[chunk->extent_index];
    const catalog::Range piece = PieceOf(chunk->at);
    // The catalog and the copy of the extent disagree about the pieces: the copy is bad.
    if (chunk->at.piece >= extent.sums().pieces.size()) {
      const Error error(ErrorCode::kDataLoss, fmt::format("extent {} was stored with {} pieces",
                                                          tier::KeyText(extent.key),
                                                          extent.sums().pieces.size()));
      means.bad.push_back({means.refs[chunk->extent_index], error});
      return error;
    }
    const std::uint64_t cell = tier::AlignedBytes(piece);
    reads.push_back({.extent = &extent, .piece = piece,
                     .checksum = extent.sums().pieces[chunk->at.piece],
                     .memory = memory.subspan(used, cell)});
    // Set before the bytes are there. If a read fails, the batch is given up before anybody uses
    // it.
    chunk->record = memory.subspan(used + tier::LeadBytes(piece), piece.length);
    used += cell;
    counts.CountSource(extent.tier, 0, piece.length);
  }
  std::vector<tier::PieceFailure> failures;
  FOREBAY_TRY(tier::ReadPieces(means.queue, reads, failures));
  if (failures.empty()) return {};
  return tier::BlameCopies(
      failures,
      [&](std::size_t index) -> const tier::ExtentRef& {
        return means.refs[chunks[index]->extent_index];
      },
      means.bad);
}

Result<ChunkRecord> ChunkReader::RecordOf(const compress::PackContext& pack,
                                          const ReadMeans& means, PlacedChunk& chunk,
                                          SourceCounts& counts) {
  std::span<const std::byte> bytes = chunk.record;
  if (bytes.empty() && means.refs[chunk.extent_index]->tier == tier::TierKind::kRam) {
    const std::span<const std::byte> image = means.refs[chunk.extent_index]->block.bytes();
    // FindChunks has refused chunks that would lie outside of their extent.
    FOREBAY_CHECK(chunk.at.image_offset + chunk.at.bytes() <= image.size());
    bytes = image.subspan(chunk.at.image_offset, chunk.at.bytes());
    chunk.record = bytes;
    counts.ram_bytes += bytes.size();
  // The chunk was too large to be read ahead.
  } else if (bytes.empty()) {
    PlacedChunk* one[] = {&chunk};
    FOREBAY_ASSIGN(const std::span<std::byte> memory,
                   Grow(single_, tier::AlignedBytes(PieceOf(chunk.at))));
    FOREBAY_TRY(ReadPieces(means, one, memory, counts));
    bytes = std::exchange(chunk.record, {});  // until the next chunk is read there
  }
  const Result<ChunkRecord> record = compress::ReadChunkRecord(pack, chunk.at.entry, bytes);
  if (!record.has_value()) BlameTier(means, chunk, record.error());
  return record;
}

// A chunk that does not decode was damaged in RAM, or was damaged on the GFS already. In the second
// case another copy is no better, and the batch's reader gets the error. Bytes from SSD have just
// matched their checksum, so they are as they came from the GFS. A chunk that was compressed at
// staging can be compressed again from the original, so its copy is always given up.
void ChunkReader::BlameTier(const ReadMeans& means, const PlacedChunk& chunk,
                            const Error& found) const {
  // No tier has it, and it was compared with the pack's checksum when it came.
  if (chunk.is_sent()) return;
  const tier::ExtentRef& extent = means.refs[chunk.extent_index];
  if (is_made_here_) return means.bad.push_back({extent, found});
  if (extent->tier != tier::TierKind::kRam) return;
  // If the bytes in RAM match the checksum that they had when they came off the GFS, the pack
  // itself is damaged.
  const bool is_known = chunk.at.piece < extent->sums().pieces.size();
  const std::span<const std::byte> bytes =
      extent->block.bytes().subspan(chunk.at.image_offset, chunk.at.bytes());
  if (is_known && tier::VerifyPiece(extent->key, PieceOf(chunk.at),
                                    extent->sums().pieces[chunk.at.piece], bytes)
                      .has_value()) {
    return;
  }
  means.bad.push_back({extent, found});
}

}  // namespace forebay::fetch
