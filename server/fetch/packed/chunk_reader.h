// ChunkReader: brings the records of chunks from where their extents lie. Those in RAM are used in
// place; those on SSD or on the GFS are read, many at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compress/decode/pack/chunk_record.h"
#include "proto/contract/result.h"
#include "server/catalog/pack/pack_table.h"
#include "server/fetch/read_means.h"
#include "server/fetch/source_counts.h"
#include "server/io/aligned_buffer.h"

namespace forebay::fetch {

// A chunk that is needed.
struct PlacedChunk {
  // In place of an index: another node has sent the record, which is set and was verified.
  static constexpr std::uint32_t kSent = ~std::uint32_t{0};
  catalog::PackChunk at;
  std::uint32_t extent_index = 0;          // in ReadMeans::refs
  std::span<const std::byte> record = {};  // empty: not read yet

  bool is_sent() const { return extent_index == kSent; }
};

// The piece of its extent that the chunk is.
inline catalog::Range PieceOf(const catalog::PackChunk& chunk) {
  return {.extent = chunk.extent, .offset = chunk.image_offset, .length = chunk.bytes()};
}

// Keeps its buffers for the next chunks. Not thread-safe.
class ChunkReader {
 public:
  // To be called before the chunks of another data set are read. `is_made_here`: they were packed
  // at staging and can be made again.
  void Begin(bool is_made_here) { is_made_here_ = is_made_here; }

  // Returns how many bytes of memory ReadFromSsd takes for those of the chunks that lie on SSD.
  static std::uint64_t SsdBytes(const ReadMeans& means, std::span<const PlacedChunk> chunks);
  // Reads those of the chunks that lie on SSD, at once; they stay until the next call.
  Status ReadFromSsd(const ReadMeans& means, std::span<PlacedChunk* const> chunks,
                     SourceCounts& counts);
  // Returns the chunk's record, checked, and notes in `chunk` where its bytes lie. If the chunk
  // lies on SSD and ReadFromSsd has not read it, it is read now; then the record is good until the
  // next call, and not noted. kDataLoss: the record is damaged; if the tier is to blame, the extent
  // is added to `bad`.
  Result<compress::ChunkRecord> RecordOf(const compress::PackContext& pack,
                                         const ReadMeans& means, PlacedChunk& chunk,
                                         SourceCounts& counts);
  // After a chunk did not decode: adds its extent to `bad` where another copy may be better.
  void BlameTier(const ReadMeans& means, const PlacedChunk& chunk, const Error& found) const;

 private:
  Status ReadPieces(const ReadMeans& means, std::span<PlacedChunk* const> chunks,
                    std::span<std::byte> memory, SourceCounts& counts);

  bool is_made_here_ = false;
  io::AlignedBuffer many_;    // what ReadFromSsd reads into
  io::AlignedBuffer single_;  // what RecordOf reads into
};

}  // namespace forebay::fetch
