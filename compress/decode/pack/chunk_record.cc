// Decodes chunks from their records in memory, for files, sets and the daemon. ReadChunkRecord
// proves that a record is the one that the index names; every way to decode then compares each
// sample with its checksum before it counts as read. A part of a tile is decoded aside, because
// checksums cover whole samples, and then copied.
#include "compress/decode/pack/chunk_record.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "compress/decode/chunk/strided_copy.h"
#include "compress/decode/scratch_arena.h"
#include "compress/format/damaged.h"
#include "proto/contract/limits.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kRecordPart = "pack";  // in errors

// The shape under which a chunk was encoded; byte strings are one row of bytes.
ChunkShape ShapeOf(const PackField& field, const ChunkEntry& entry, std::uint64_t raw_bytes) {
  return field.variable() ? BytesShape(raw_bytes) : field.Shape(entry.tile, entry.sample_count);
}

Status CheckScratchOf(const PackField& field, const ChunkShape& shape, std::uint64_t bytes_max) {
  // Narrow frames may need many times their own bytes, because each is padded on all sides.
  const std::size_t bytes = ChunkScratchBytes(shape);
  if (bytes <= bytes_max) return {};
  std::string extents = std::to_string(shape.samples);
  for (std::size_t axis = 0; axis < shape.rank; ++axis) {
    extents += "x" + std::to_string(shape.extent[axis]);
  }
  return Error(ErrorCode::kResourceExhausted,
               "pack: field " + field.name + ": to decode a chunk of " + extents + " " +
                   std::string(DtypeName(shape.dtype)) + " takes " + std::to_string(bytes) +
                   " bytes of memory, more than " + std::to_string(bytes_max) +
                   "; write it with fewer samples per chunk or wider tiles: `forebay pack --from` "
                   "reads such a pack and takes --samples-per-chunk and --tile; a program may "
                   "raise PackReadOptions::scratch_bytes_max");
}

Status VerifySample(const PackContext& pack, const ChunkHead& head, std::uint32_t index,
                    std::span<const std::byte> bytes) {
  if (SampleChecksum(pack.identity, head.field, head.tile, head.first_sample + index,
                     head.part_offset, bytes) == head.ChecksumOf(index)) {
    return {};
  }
  return Damaged(kRecordPart, "sample " + std::to_string(head.first_sample + index) + " of field " +
                 pack.schema.fields[head.field].name + " does not match its checksum");
}

// Whether two ranges share anything; an empty one shares nothing, wherever it lies.
bool Overlap(std::uint64_t begin, std::uint64_t count, std::uint64_t other_begin,
             std::uint64_t other_count) {
  // Regions have 32 bits, and callers have checked numbers of samples, so the sums do not wrap.
  return std::max(begin, other_begin) < std::min(begin + count, other_begin + other_count);
}

// `count` samples from `first` on, one after the other.
Status VerifySamples(const PackContext& pack, const ChunkHead& head, std::uint32_t first,
                     std::uint32_t count, std::span<const std::byte> bytes) {
  const PackField& field = pack.schema.fields[head.field];
  std::size_t at = 0;
  for (std::uint32_t i = first; i < first + count; ++i) {
    // A part of a long byte string is one "sample" here and has a checksum of its own.
    const std::size_t length = field.variable() ? head.LengthOf(i) : bytes.size() / count;
    FOREBAY_TRY(VerifySample(pack, head, i, bytes.subspan(at, length)));
    at += length;
  }
  return {};
}

// DecodeSamples for a chunk that is one tile of several: decodes its part of all samples into
// scratch memory, verifies it, and copies each part into its sample's place.
Status DecodeTileSamples(const PackContext& pack, const ChunkEntry& entry,
                         const ChunkRecord& record, const ChunkShape& shape,
                         std::span<const std::span<std::byte>> places,
                         std::span<std::byte> scratch) {
  const PackField& field = pack.schema.fields[entry.field];
  const auto count = static_cast<std::uint32_t>(places.size());
  const ChunkRange range = ChunkRange::Samples(shape, 0, count);
  ScratchArena arena(scratch);
  // RecordScratchBytes has counted these two, in this order.
  const std::span<std::byte> samples = arena.Take<std::byte>(count * shape.sample_bytes());
  FOREBAY_TRY(DecodeChunk(shape, record.head.codec, record.payload, range,
                          StridedOutput::Dense(shape, range, samples),
                          arena.Take<std::byte>(ChunkScratchBytes(shape)),
                          pack.schema.predictors));
  const auto origin = field.TileOrigin(entry.tile);
  ChunkShape one = shape;
  one.samples = 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    // An empty place stands for a sample that nobody wants.
    if (places[i].empty()) continue;
    const std::span<const std::byte> sample =
        samples.subspan(i * shape.sample_bytes(), shape.sample_bytes());
    FOREBAY_TRY(VerifySample(pack, record.head, i, sample));
    StridedOutput out = TileRequest::Samples(field, 0, 1, places[i]).out;
    std::size_t skipped = 0;
    for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
      skipped += origin[axis] * out.axis_stride[axis];
    }
    out.memory = out.memory.subspan(skipped);
    CopyBox(one, ChunkRange::Whole(one), sample, out);
  }
  return {};
}

}  // namespace

std::string NameOf(const PackSchema& schema, const ChunkEntry& entry) {
  return "chunk of field " + schema.fields[entry.field].name + ", samples " +
         std::to_string(entry.first_sample) + " to " +
         std::to_string(entry.first_sample + entry.sample_count - 1) + ", at byte " +
         std::to_string(entry.offset);
}

TileRequest TileRequest::Samples(const PackField& field, std::uint64_t first_sample,
                                 std::uint64_t count, std::span<std::byte> memory) {
  TileRequest request{.first_sample = first_sample,
                      .count = count,
                      .region = PackRegion::Whole(field),
                      .out = {.memory = memory, .sample_stride = field.sample_bytes()}};
  std::size_t stride = DtypeBytes(field.dtype);
  for (std::size_t axis = kChunkRankMax; axis-- > 0;) {
    // The last axis is dense, and each stride is the size of what lies inside the axis.
    request.out.axis_stride[axis] = stride;
    stride *= field.extent[axis];
  }
  return request;
}

bool Intersects(const PackSchema& schema, const TileRequest& request, const ChunkEntry& entry) {
  const PackField& field = schema.fields[entry.field];
  const auto origin = field.TileOrigin(entry.tile);
  const auto extent = field.TileExtent(entry.tile);
  const PackRegion& region = request.region;
  bool intersects = Overlap(request.first_sample, request.count, entry.first_sample,
                       entry.sample_count);
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    intersects = intersects &&
                 Overlap(region.origin[axis], region.extent[axis], origin[axis], extent[axis]);
  }
  return intersects;
}

Result<ChunkRecord> ReadChunkRecord(const PackContext& pack, const ChunkEntry& entry,
                                    std::span<const std::byte> record) {
  const auto fail = [&](const Error& error) {
    return error.WithContext(NameOf(pack.schema, entry));
  };
  // The sizes are compared first: the checks below read from the record by them.
  if (record.size() < entry.head_bytes ||
      record.size() - entry.head_bytes != entry.payload_bytes) {
    return fail(Damaged(kRecordPart, "its record has another length than the index says"));
  }
  const auto prefix = ReadRecordPrefix(record);
  if (!prefix.has_value()) return fail(prefix.error());
  // The head's checksum stands in the index too, and the index is hashed: a record that is valid
  // but of another chunk is found here.
  if (prefix->type != RecordType::kChunk || prefix->head_bytes != entry.head_bytes ||
      prefix->payload_bytes != entry.payload_bytes ||
      prefix->head_checksum != entry.head_checksum) {
    return fail(Damaged(kRecordPart, "its record is not the one that the index names"));
  }
  // The offset is part of what is hashed: a sound record of this pack that was read from another
  // place is refused.
  const auto added = CheckRecordHead(pack.identity, entry.offset, record);
  if (!added.has_value()) return fail(added.error());
  auto head = ReadChunkHead(pack.schema, *added);
  if (!head.has_value()) return fail(head.error());
  // The index and the head say the same twice. A writer that contradicts itself is found here, as
  // checksums cannot find it.
  if (head->field != entry.field || head->tile != entry.tile ||
      head->first_sample != entry.first_sample || head->sample_count != entry.sample_count ||
      head->part_offset != entry.part_offset || head->sample_bytes != entry.sample_bytes) {
    return fail(Damaged(kRecordPart, "it holds other samples than the index says"));
  }
  const ChunkRecord chunk{.head = std::move(*head), .payload = record.subspan(entry.head_bytes)};
  // Last, because it is the only check that reads the whole payload.
  if (PayloadChecksum(pack.identity, RecordType::kChunk, entry.offset, chunk.payload) !=
      prefix->payload_checksum) {
    return fail(Damaged(kRecordPart, "its payload does not match its checksum"));
  }
  return chunk;
}

Status CheckScratch(const PackSchema& schema, std::uint64_t bytes_max) {
  for (const PackField& field : schema.fields) {
    if (field.variable()) continue;  // as large as a chunk can be, and one row
    // Tiles at the ends of axes are smaller, and smaller shapes can take more scratch memory, so
    // every combination of whole and cut axes is asked. A chunk of fewer samples never takes more.
    ChunkShape shape = field.Shape(0, field.samples_per_chunk);
    const auto whole = shape.extent, ends = field.TileExtent(field.tiles() - 1);
    unsigned cut = 0;  // axes whose last tile is another
    for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
      cut |= ends[axis] != whole[axis] ? 1U << axis : 0;
    }
    for (unsigned corner = 0; corner < 1U << kChunkRankMax; ++corner) {
      if ((corner & ~cut) != 0) continue;
      for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
        shape.extent[axis] = (corner >> axis & 1) != 0 ? ends[axis] : whole[axis];
      }
      FOREBAY_TRY(CheckScratchOf(field, shape, bytes_max));
    }
  }
  return {};
}

std::size_t RecordScratchBytes(const PackSchema& schema, const ChunkEntry& entry) {
  // A variable field's chunk has its size in its head, which has not been read: the largest is
  // assumed.
  const ChunkShape shape = ShapeOf(schema.fields[entry.field], entry, limits::kChunkBytesMax);
  ScratchArena arena;
  // An arena without memory only counts, with the same alignment as the one that DecodeTile uses.
  arena.Take<std::byte>(shape.bytes());
  arena.Take<std::byte>(ChunkScratchBytes(shape));
  return arena.bytes();
}

Status DecodeTile(const PackContext& pack, const ChunkEntry& entry, const ChunkRecord& record,
                  const TileRequest& request, std::span<std::byte> scratch) {
  // Everything below relies on a part that is not empty on every axis.
  if (!Intersects(pack.schema, request, entry)) return {};
  const PackField& field = pack.schema.fields[entry.field];
  const auto origin = field.TileOrigin(entry.tile);
  const auto extent = field.TileExtent(entry.tile);
  // The part of the request that lies in this tile, once in the tile's own coordinates (`range`)
  // and once as the place in the output where it begins (`skipped`).
  const std::uint64_t begin = std::max(request.first_sample, entry.first_sample);
  const std::uint64_t end = std::min(request.first_sample + request.count,
                                     entry.first_sample + entry.sample_count);
  ChunkRange range{.first_sample = static_cast<std::uint32_t>(begin - entry.first_sample),
                   .sample_count = static_cast<std::uint32_t>(end - begin)};
  StridedOutput part = request.out;
  std::size_t skipped =
      static_cast<std::size_t>(begin - request.first_sample) * part.sample_stride;
  const PackRegion& region = request.region;
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    const std::uint32_t low = std::max(region.origin[axis], origin[axis]);
    const std::uint32_t high = std::min(region.origin[axis] + region.extent[axis],
                                        origin[axis] + extent[axis]);
    range.origin[axis] = low - origin[axis];
    range.extent[axis] = high - low;
    skipped += (low - region.origin[axis]) * part.axis_stride[axis];
  }
  // subspan() does not check its argument; CheckRange below then checks the rest.
  if (skipped > part.memory.size()) {
    return Error(ErrorCode::kInvalidArgument, "pack: the output is too small");
  }
  part.memory = part.memory.subspan(skipped);
  ChunkShape shape = field.Shape(entry.tile, entry.sample_count);
  // Before anything is decoded: a caller's strides may lead out of the caller's memory.
  FOREBAY_TRY(CheckRange(shape, range, part));
  ScratchArena arena(scratch);
  // Checksums cover whole samples: a part, or strided output, is decoded into scratch first.
  const ChunkRange whole = ChunkRange::Samples(shape, range.first_sample, range.sample_count);
  const bool direct = IsDense(shape, range, part);
  const std::size_t bytes = range.sample_count * shape.sample_bytes();
  const std::span<std::byte> samples =
      direct ? part.memory.first(bytes) : arena.Take<std::byte>(bytes);
  const Status decoded = DecodeChunk(shape, record.head.codec, record.payload, whole,
                                     StridedOutput::Dense(shape, whole, samples),
                                     arena.Take<std::byte>(ChunkScratchBytes(shape)),
                                     pack.schema.predictors);
  if (!decoded.has_value()) return decoded.error().WithContext(NameOf(pack.schema, entry));
  // Samples that do not match may have been decoded into the caller's memory. The error tells the
  // caller that they are undefined.
  FOREBAY_TRY(VerifySamples(pack, record.head, range.first_sample, range.sample_count, samples));
  if (!direct) {
    // The scratch memory begins with the first sample that was decoded.
    range.first_sample = 0;
    shape.samples = range.sample_count;
    CopyBox(shape, range, samples, part);
  }
  return {};
}

Status DecodeSamples(const PackContext& pack, const ChunkEntry& entry, const ChunkRecord& record,
                     std::span<const std::span<std::byte>> places,
                     std::span<std::byte> scratch) {
  const PackField& field = pack.schema.fields[entry.field];
  // The places are the caller's, so a wrong size is the caller's error and not the pack's.
  const bool fits = std::ranges::all_of(places, [&](std::span<std::byte> place) {
    return place.empty() || place.size() == field.sample_bytes();
  });
  if (!fits || places.size() > entry.sample_count) {
    return Error(ErrorCode::kInvalidArgument,
                 "pack: places that are not the samples' of " + NameOf(pack.schema, entry));
  }
  // Samples behind the last one that is wanted need not be decoded.
  while (!places.empty() && places.back().empty()) places = places.first(places.size() - 1);
  if (places.empty()) return {};
  const ChunkShape shape = field.Shape(entry.tile, entry.sample_count);
  // A tile that is the whole sample needs no copy: its samples are decoded to their places.
  const bool is_tile = shape.sample_bytes() != field.sample_bytes();
  const Status decoded =
      is_tile ? DecodeTileSamples(pack, entry, record, shape, places, scratch)
              : DecodeChunkSamples(shape, record.head.codec, record.payload, places, scratch,
                                   pack.schema.predictors);
  if (!decoded.has_value()) return decoded.error().WithContext(NameOf(pack.schema, entry));
  for (std::uint32_t i = 0; !is_tile && i < places.size(); ++i) {
    if (!places[i].empty()) FOREBAY_TRY(VerifySample(pack, record.head, i, places[i]));
  }
  return {};
}

Status DecodeRecord(const PackContext& pack, const ChunkEntry& entry, const ChunkRecord& record,
                    std::span<std::byte> out, std::span<std::byte> scratch) {
  const PackField& field = pack.schema.fields[entry.field];
  // ReadChunkHead has bounded raw_bytes, so an output of that size was possible.
  if (out.size() != record.head.raw_bytes) {
    return Error(ErrorCode::kInvalidArgument, "pack: the output has another length than the chunk");
  }
  // A chunk whose byte strings are all empty has no shape to decode. Its checksums are compared
  // below.
  if (!out.empty()) {
    const ChunkShape shape = ShapeOf(field, entry, record.head.raw_bytes);
    const ChunkRange whole = ChunkRange::Whole(shape);
    ScratchArena arena(scratch);
    const Status decoded = DecodeChunk(shape, record.head.codec, record.payload, whole,
                                       StridedOutput::Dense(shape, whole, out),
                                       arena.Take<std::byte>(ChunkScratchBytes(shape)),
                                       pack.schema.predictors);
    if (!decoded.has_value()) return decoded.error().WithContext(NameOf(pack.schema, entry));
  }
  return VerifySamples(pack, record.head, 0, entry.sample_count, out);
}

}  // namespace forebay::compress
