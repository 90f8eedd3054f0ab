// ChunkReader: brings the records of chunks from where their extents lie. Those in RAM are used in
// place; those on SSD or on the GFS are read, many at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compress/decode/pack/chunk_record.h"
#include "proto/contract/result.h"
#include "server/catalog/pack/pack_table.h"
#include "server/io/aligned_buffer.h"
#include "server/io/io_backend.h"
#include "server/stream/assembled_batch.h"
#include "server/tier/extent_cache.h"
#include "server/tier/piece_reader.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::stream {

// What a packed batch is put together with; borrowed. `refs` are the extents it planned, in order.
struct PackedMeans {
  std::span<const tier::ExtentRef> refs;
  tier::RamArena& slots;
  io::IoQueue& queue;
  std::vector<tier::BadExtent>& bad;  // receives extents whose bytes were wrong
};

// A chunk that a batch needs.
struct PlacedChunk {
  catalog::PackChunk at;
  std::uint32_t extent_index = 0;          // in PackedMeans::refs
  std::span<const std::byte> record = {};  // empty: not read yet
};

// Keeps its buffers between batches. Not thread-safe.
class ChunkReader {
 public:
  // A new batch. `is_made_here`: its chunks were packed at staging, and can be packed again.
  void Begin(bool is_made_here) { is_made_here_ = is_made_here; }

  // Memory that ReadFromSsd takes for those of the chunks that lie on SSD.
  static std::uint64_t SsdBytes(const PackedMeans& means, std::span<const PlacedChunk> chunks);
  // Reads those of the chunks that lie on SSD, at once; they stay until the next call.
  Status ReadFromSsd(const PackedMeans& means, std::span<PlacedChunk* const> chunks,
                     AssembledBatch& batch);
  // The chunk's record, checked; read now where it lies on SSD and ReadFromSsd has not read it, and
  // then good until the next call. kDataLoss, with `bad` where the tier is to blame.
  Result<compress::ChunkRecord> RecordOf(const compress::PackContext& pack,
                                         const PackedMeans& means, PlacedChunk& chunk,
                                         AssembledBatch& batch);
  // After a chunk did not decode: adds its extent to `bad` where another copy may be better.
  void BlameTier(const PackedMeans& means, const PlacedChunk& chunk, const Error& found) const;

 private:
  Status ReadPieces(const PackedMeans& means, std::span<PlacedChunk* const> chunks,
                    std::span<std::byte> memory, AssembledBatch& batch);

  bool is_made_here_ = false;
  io::AlignedBuffer many_;    // what ReadFromSsd reads into
  io::AlignedBuffer single_;  // what RecordOf reads into
};

}  // namespace forebay::stream
