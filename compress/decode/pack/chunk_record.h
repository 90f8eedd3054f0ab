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

// A request for a region of some samples of a fixed field, and where to write it: element
// (s, i0 .. i3), counted from the first, goes to byte s * sample_stride + sum of i * axis_stride.
struct TileRequest {
  std::uint64_t first_sample = 0, count = 0;  // numbered as in the index
  PackRegion region;
  StridedOutput out;

  // A request for whole samples of `field`, written one after the other.
  static TileRequest Samples(const PackField& field, std::uint64_t first_sample,
                             std::uint64_t count, std::span<std::byte> memory);
};

// Whether any requested element lies in the chunk. False for an empty request.
bool Intersects(const PackSchema& schema, const TileRequest& request, const ChunkEntry& entry);

// Borrows the record's bytes.
struct ChunkRecord {
  ChunkHead head;
  std::span<const std::byte> payload;
};

// "chunk of field image, samples 8 to 15, at byte 4096".
std::string NameOf(const PackSchema& schema, const ChunkEntry& entry);

// Reads the record of `entry` from its bytes, `record`. Checks the checksums of head and payload,
// and that it is the record that the index names. Errors: kDataLoss, with the chunk's name.
Result<ChunkRecord> ReadChunkRecord(const PackContext& pack, const ChunkEntry& entry,
                                    std::span<const std::byte> record);

// Bytes of scratch memory that the functions below need for this chunk.
std::size_t RecordScratchBytes(const PackSchema& schema, const ChunkEntry& entry);

// Checks that `bytes_max` of scratch memory are enough to decode any chunk that the schema allows.
// What a chunk needs follows from its shape alone; narrow frames need many times their own bytes.
// Errors: kResourceExhausted, with the field, its shape and what to do.
Status CheckScratch(const PackSchema& schema,
                    std::uint64_t bytes_max = limits::kChunkScratchBytesMax);

// Decodes the part of the request that lies in the chunk, and verifies its samples. Dense output is
// decoded in place. Only for fixed fields. Errors: those of DecodeChunk, and kDataLoss if a sample
// does not match its checksum.
Status DecodeTile(const PackContext& pack, const ChunkEntry& entry, const ChunkRecord& record,
                  const TileRequest& request, std::span<std::byte> scratch);

// Decodes samples of a fixed field, each to a place of its own, and verifies them. Sample i of the
// chunk goes to `places[i]`, which has the field's sample_bytes(), or is empty if the sample is not
// wanted. If the chunk is one tile of several, only the tile's elements are written. There may be
// fewer places than the chunk has samples, not more. Errors: those of DecodeTile; the places are
// then undefined.
Status DecodeSamples(const PackContext& pack, const ChunkEntry& entry, const ChunkRecord& record,
                     std::span<const std::span<std::byte>> places, std::span<std::byte> scratch);

// Decodes and verifies a whole chunk of a fixed or variable field into `out`, which has
// head.raw_bytes.
Status DecodeRecord(const PackContext& pack, const ChunkEntry& entry, const ChunkRecord& record,
                    std::span<std::byte> out, std::span<std::byte> scratch);

}  // namespace forebay::compress
