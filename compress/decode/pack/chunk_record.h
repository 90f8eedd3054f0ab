// A chunk's record in memory: what PackFile reads from a file, and what a service finds on tiers
// of its own. Checked against what the index says, decoded, and its samples verified.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "compress/decode/chunk/chunk_decoder.h"
#include "compress/format/pack/pack_format.h"
#include "proto/contract/limits.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Of which pack a record is; borrowed.
struct PackContext {
  const PackSchema& schema;
  std::uint64_t identity = 0;
};

// A box of a field's elements; the field's whole extent where it is not said.
struct PackRegion {
  std::array<std::uint32_t, kChunkRankMax> origin = {0, 0, 0, 0};
  std::array<std::uint32_t, kChunkRankMax> extent = {1, 1, 1, 1};

  static PackRegion Whole(const PackField& field) { return {.extent = field.extent}; }
};

// Which samples of a fixed field are wanted, of which region, and where they go: element
// (s, i0 .. i3), counted from the first, lies at byte s * sample_stride + sum of i * axis_stride.
struct TileRequest {
  std::uint64_t first_sample = 0, count = 0;  // as the index numbers them
  PackRegion region;
  StridedOutput out;

  // Whole samples of `field`, dense.
  static TileRequest Samples(const PackField& field, std::uint64_t first_sample,
                             std::uint64_t count, std::span<std::byte> memory);
};

// Whether any wanted element lies in the chunk; of an empty request none does.
bool Intersects(const PackSchema& schema, const TileRequest& request, const ChunkEntry& entry);

// Borrows the record's bytes.
struct ChunkRecord {
  ChunkHead head;
  std::span<const std::byte> payload;
};

// "chunk of field image, samples 8 to 15, at byte 4096".
std::string NameOf(const PackSchema& schema, const ChunkEntry& entry);

// The record of `entry`, whose bytes are `record`. Checks head, payload and that it is the one
// that the index names: kDataLoss, with the chunk's name.
Result<ChunkRecord> ReadChunkRecord(const PackContext& pack, const ChunkEntry& entry,
                                    std::span<const std::byte> record);

// Scratch memory of those below for this chunk.
std::size_t RecordScratchBytes(const PackSchema& schema, const ChunkEntry& entry);

// Whether so much memory is enough to decode any chunk that the schema allows. What a chunk takes
// follows from its shape alone, and narrow frames take many times their own bytes.
// Errors: kResourceExhausted, naming the field and its shape.
Status CheckScratch(const PackSchema& schema,
                    std::uint64_t bytes_max = limits::kChunkScratchBytesMax);

// Decodes what of the request lies in the chunk, straight into its output where that is dense;
// verifies the samples. What the request wants besides is left alone. Of fixed fields only.
// Errors as DecodeChunk's, kDataLoss where a sample does not match its checksum.
Status DecodeTile(const PackContext& pack, const ChunkEntry& entry, const ChunkRecord& record,
                  const TileRequest& request, std::span<std::byte> scratch);

// Decodes whole samples of a fixed field, each to a place of its own, and verifies them: sample i
// of the chunk to `places[i]`, which has the field's sample_bytes(), or none where it is not
// wanted. Of a chunk that is a tile, its elements go there and nothing else is touched. No more
// places than the chunk has samples. Errors as DecodeTile's; the places are then undefined.
Status DecodeSamples(const PackContext& pack, const ChunkEntry& entry, const ChunkRecord& record,
                     std::span<const std::span<std::byte>> places, std::span<std::byte> scratch);

// Decodes and verifies a whole chunk of either kind into `out`, of head.raw_bytes.
Status DecodeRecord(const PackContext& pack, const ChunkEntry& entry, const ChunkRecord& record,
                    std::span<std::byte> out, std::span<std::byte> scratch);

}  // namespace forebay::compress
