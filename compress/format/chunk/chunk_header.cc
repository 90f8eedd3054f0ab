// Parses and writes the head of a coded chunk (docs/pack_chunk.md, section 3). Parsing checks
// everything that does not need a stream to be decoded: the order of stages, their parameters, and
// each stream's sizes against the chunk's shape. So decoders may trust the head, and no payload
// makes a reader hold more than the shape allows.
#include "compress/format/chunk/chunk_header.h"

#include <bit>
#include <cmath>
#include <string>
#include <string_view>

#include "compress/format/damaged.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kHeaderPart = "coded chunk";  // in errors
// The unit is 2^-32 octaves, so the limit is 256 octaves from one number to the next.
constexpr std::uint64_t kLogarithmStepMax = 1ULL << 40;

Error Newer(const std::string& what) {
  return Error(ErrorCode::kUnimplemented,
               "coded chunk: " + what + " is of a newer version; read it with a newer Forebay");
}

bool IsFloat(Dtype dtype) {
  return dtype == Dtype::kF16 || dtype == Dtype::kBf16 || dtype == Dtype::kF32 ||
         dtype == Dtype::kF64;
}

// True where `value` has no bits beyond an element's.
bool FitsElement(const ChunkShape& shape, std::uint64_t value) {
  const std::size_t bits = 8 * shape.element_bytes();
  return bits == 64 || value >> bits == 0;
}

// The kind decides which types it applies to: linear and logarithmic steps to floating-point
// elements, integer steps to integers of at most 4 bytes, whose products with a 32-bit number fit
// 64 bits.
Status ReadQuantiser(const ChunkShape& shape, ByteReader& reader, Quantiser& quantiser) {
  const auto kind = reader.ReadLe<std::uint8_t>();
  // Compared before the cast, so that no value outside the enumeration ever exists.
  if (kind > static_cast<std::uint8_t>(QuantiserKind::kLogarithm)) return Newer("a quantiser");
  quantiser.kind = static_cast<QuantiserKind>(kind);
  bool valid = IsFloat(shape.dtype);
  switch (quantiser.kind) {
    // A chunk without a quantiser leaves the stage out, so this number is not valid here.
    case QuantiserKind::kNone: valid = false; break;
    case QuantiserKind::kLinear:
      quantiser.linear_step = std::bit_cast<double>(reader.ReadLe<std::uint64_t>());
      // A step of 0, of infinity or of NaN would decode every element to the same value, or to NaN.
      valid = valid && std::isfinite(quantiser.linear_step) && quantiser.linear_step > 0;
      break;
    case QuantiserKind::kInteger:
      quantiser.integer_step = reader.ReadVarint();
      valid = !IsFloat(shape.dtype) && shape.element_bytes() <= 4 &&
              quantiser.integer_step > 0 && quantiser.integer_step <= 0xFFFF'FFFF;
      break;
    case QuantiserKind::kLogarithm:
      quantiser.integer_step = reader.ReadVarint();
      quantiser.origin = reader.ReadLe<std::uint64_t>();
      valid = valid && quantiser.integer_step > 0 && quantiser.integer_step <= kLogarithmStepMax;
      break;
  }
  if (!reader.ok() || !valid) return Damaged(kHeaderPart, "the quantiser is invalid");
  return {};
}

Status ReadMasks(const ChunkShape& shape, ByteReader& reader, ChunkStages& stages) {
  stages.mask_count = reader.ReadLe<std::uint8_t>();
  if (stages.mask_count == 0 || stages.mask_count > kMasksMax) {
    return Damaged(kHeaderPart, "the number of masks is invalid");
  }
  for (std::size_t i = 0; i < stages.mask_count; ++i) {
    stages.masks[i].pattern = reader.ReadLe<std::uint64_t>();
    const auto flags = reader.ReadLe<std::uint8_t>();
    stages.masks[i].temporal = flags == 1;
    // A wider pattern would equal no element: the mask could not have been found by a writer.
    if (!reader.ok() || flags > 1 || !FitsElement(shape, stages.masks[i].pattern)) {
      return Damaged(kHeaderPart, "a mask is invalid");
    }
  }
  return {};
}

Status ReadStage(const ChunkShape& shape, ChunkStage stage, ByteReader& reader,
                 ChunkStages& stages) {
  switch (stage) {
    case ChunkStage::kQuantise: return ReadQuantiser(shape, reader, stages.quantiser);
    case ChunkStage::kMask: return ReadMasks(shape, reader, stages);
    case ChunkStage::kEscape: {
      const std::uint64_t count = reader.ReadVarint();
      if (!reader.ok() || count == 0 || count > shape.elements()) {
        return Damaged(kHeaderPart, "the escapes are invalid");
      }
      stages.escape_count = static_cast<std::uint32_t>(count);
      return {};
    }
    case ChunkStage::kOffset:
      stages.offset = reader.ReadVarint();
      stages.shift = reader.ReadLe<std::uint8_t>();
      // A shift by the element's width or more is undefined in C++ and loses all bits.
      if (!reader.ok() || stages.shift >= 8 * shape.element_bytes()) {
        return Damaged(kHeaderPart, "the offset stage is invalid");
      }
      return {};
    case ChunkStage::kDictionary: {
      const std::uint64_t count = reader.ReadVarint();
      // A dictionary never has more values than the chunk has elements: this bounds its memory by
      // the shape and not by the payload.
      if (!reader.ok() || count == 0 || count > kDictionaryMax || count > shape.elements()) {
        return Damaged(kHeaderPart, "the dictionary is invalid");
      }
      stages.dictionary_count = static_cast<std::uint32_t>(count);
      return {};
    }
    case ChunkStage::kColour: {
      const auto kind = reader.ReadLe<std::uint8_t>();
      if (kind > static_cast<std::uint8_t>(ColourKind::kYCoCg)) return Newer("a colour space");
      stages.colour = static_cast<ColourKind>(kind);
      // A hostile head may name a transform for a chunk of fewer channels. The inverse reads three.
      if (!reader.ok() || kind == 0 || GeometryOf(shape).channels < 3) {
        return Damaged(kHeaderPart, "the colour stage is invalid");
      }
      return {};
    }
  }
  // The stage's length is not stored, so a reader cannot pass over one that it does not know.
  return Newer("stage " + std::to_string(static_cast<int>(stage)));
}

// Stages in ascending order, then the planes. Checks what stages mean for each other at the end.
Status ReadStages(const ChunkShape& shape, ByteReader& reader, ChunkStages& stages) {
  const auto count = reader.ReadLe<std::uint8_t>();
  int last = 0;
  for (int i = 0; i < count; ++i) {
    const auto id = reader.ReadLe<std::uint8_t>();
    // Ascending numbers also rule out a stage that is given twice.
    if (!reader.ok() || id <= last) {
      return Damaged(kHeaderPart, "the stages are not in ascending order");
    }
    last = id;
    FOREBAY_TRY(ReadStage(shape, static_cast<ChunkStage>(id), reader, stages));
  }
  stages.plane_count = reader.ReadLe<std::uint8_t>();
  if (!reader.ok() || stages.plane_count > kPlanesMax) {
    return Damaged(kHeaderPart, "the planes are invalid");
  }
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < stages.plane_count; ++i) {
    const auto bits = reader.ReadLe<std::uint8_t>();
    if (bits == 0 || bits > 16) return Damaged(kHeaderPart, "a plane has no bits, or more than 16");
    stages.plane_bits[i] = bits;
    // A sample of up to 8 bits takes a byte in memory, and a wider one takes two.
    bytes += bits <= 8 ? 1 : 2;
  }
  // The planes of an element never take more memory than the element: decoders size their scratch
  // memory by it.
  if (!reader.ok() || bytes > shape.element_bytes()) {
    return Damaged(kHeaderPart, "the planes are invalid");
  }
  // Dictionaries and colours work on codes that fit one 16-bit number.
  const bool narrow = stages.code_bits() <= 16;
  if (!narrow && (stages.dictionary_count > 0 || stages.colour != ColourKind::kNone)) {
    return Damaged(kHeaderPart, "codes of more than 16 bits have a dictionary or colours");
  }
  // A colour transform takes half the range of a code, and codes of no bits have none.
  if (stages.plane_count == 0 && stages.colour != ColourKind::kNone) {
    return Damaged(kHeaderPart, "there are colours without planes");
  }
  if (narrow && stages.dictionary_count > 1U << stages.code_bits()) {
    return Damaged(kHeaderPart, "the dictionary has more values than codes can name");
  }
  return {};
}

Status CheckPlaneStream(const ChunkGeometry& geometry, std::uint8_t bits,
                        const ChunkStream& stream, std::uint64_t coded_bytes) {
  const std::size_t sample_bytes = bits <= 8 ? 1 : 2;
  if (stream.raw_bytes != geometry.pixels() * sample_bytes) {
    return Damaged(kHeaderPart, "a plane has the wrong size");
  }
  // A constant plane stores its one sample, so decoders read it without looking at the length.
  if (stream.coder == StreamCoder::kConstant && coded_bytes != sample_bytes) {
    return Damaged(kHeaderPart, "a constant has the wrong size");
  }
  // Scratch memory for the plane codec was not taken for such a shape.
  if (stream.coder == StreamCoder::kPlanes && !geometry.allows_planes) {
    return Damaged(kHeaderPart, "planes are too narrow for their coder");
  }
  return {};
}

// A stream that is no plane: only masks of one channel may be coded as planes.
Status CheckSideStream(const ChunkShape& shape, const ChunkGeometry& geometry, bool is_mask,
                       const ChunkStream& stream) {
  if (stream.raw_bytes > SideStreamBytesMax(shape)) {
    return Damaged(kHeaderPart, "a stream is too large");
  }
  if (stream.coder == StreamCoder::kConstant) {
    return Damaged(kHeaderPart, "a stream has a coder that it must not have");
  }
  if (stream.coder != StreamCoder::kPlanes) return {};
  if (!is_mask || geometry.channels != 1 || !geometry.allows_planes ||
      stream.raw_bytes != shape.elements()) {
    return Damaged(kHeaderPart, "a stream has a coder that it must not have");
  }
  return {};
}

// Reads one line of the table of streams. The stream's body of `coded_bytes` lies behind the whole
// table.
Status ReadStream(ByteReader& reader, ChunkStream& stream, std::uint64_t& coded_bytes) {
  const auto coder = reader.ReadLe<std::uint8_t>();
  const std::uint64_t raw_bytes = reader.ReadVarint();
  coded_bytes = reader.ReadVarint();
  if (!reader.ok() || raw_bytes > 0xFFFF'FFFF) {
    return Damaged(kHeaderPart, "the table of streams is cut off");
  }
  if (coder > static_cast<std::uint8_t>(StreamCoder::kConstant)) return Newer("a stream's coder");
  stream.coder = static_cast<StreamCoder>(coder);
  stream.raw_bytes = static_cast<std::uint32_t>(raw_bytes);
  if (stream.coder == StreamCoder::kStore && coded_bytes != raw_bytes) {
    return Damaged(kHeaderPart, "a stored stream has the wrong size");
  }
  return {};
}

// Streams of planes are ordered by channel, and within a channel by plane.
std::uint32_t BitsOfStream(const CodedHead& head, std::uint32_t index) {
  return head.stages.plane_bits[(index - head.plane_stream()) % head.stages.plane_count];
}

}  // namespace

std::uint32_t ChunkStages::code_bits() const {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < plane_count; ++i) bits += plane_bits[i];
  return bits;
}

Result<CodedHead> ParseChunkHead(const ChunkShape& shape, std::span<const std::byte> payload) {
  ByteReader reader(payload);
  CodedHead head;
  const auto layout = reader.ReadLe<std::uint8_t>();
  if (!reader.ok()) return Damaged(kHeaderPart, "the payload is empty");
  // The layout comes first: nothing behind it has a meaning that this version can rely on
  // otherwise.
  if (layout != kChunkLayout) return Newer("layout " + std::to_string(layout));
  FOREBAY_TRY(ReadStages(shape, reader, head.stages));
  const ChunkGeometry geometry = GeometryOf(shape);
  head.stream_count = head.plane_stream() + head.stages.plane_count * geometry.channels;
  // The counts of stages, planes and channels have been bounded, so the streams fit kStreamsMax.
  std::array<std::uint64_t, kStreamsMax> coded_bytes{};
  for (std::uint32_t i = 0; i < head.stream_count; ++i) {
    ChunkStream& stream = head.streams[i];
    FOREBAY_TRY(ReadStream(reader, stream, coded_bytes[i]));
    if (i < head.plane_stream()) {
      FOREBAY_TRY(CheckSideStream(shape, geometry, i < head.stages.mask_count, stream));
    } else {
      FOREBAY_TRY(CheckPlaneStream(geometry, static_cast<std::uint8_t>(BitsOfStream(head, i)),
                                   stream, coded_bytes[i]));
    }
  }
  // Every escape has its value stored whole. The lengths of the other side streams depend on what
  // they encode, and are checked when they are decoded.
  const std::uint32_t escape = head.escape_stream();
  if (head.stages.escape_count > 0 &&
      head.streams[escape + 1].raw_bytes != head.stages.escape_count * shape.element_bytes()) {
    return Damaged(kHeaderPart, "the escapes have the wrong size");
  }
  for (std::uint32_t i = 0; i < head.stream_count; ++i) {
    if (coded_bytes[i] > reader.remaining()) {
      return Damaged(kHeaderPart, "a stream ends beyond the payload");
    }
    // Bodies lie behind the table, one after the other, in the same order.
    head.streams[i].body = reader.Take(static_cast<std::size_t>(coded_bytes[i]));
  }
  // Bytes that nothing reads could differ between payloads that decode alike; they are refused.
  if (reader.remaining() != 0) {
    return Damaged(kHeaderPart, "there are bytes behind the last stream");
  }
  return head;
}

namespace {

// Stages that do nothing are left out. Their number comes first, so the list is collected before it
// is written.
void WriteStages(const ChunkStages& stages, ByteWriter& writer) {
  ByteWriter list;
  std::uint8_t count = 0;
  const auto begin = [&](ChunkStage stage) {
    list.Le(static_cast<std::uint8_t>(stage));
    ++count;
  };
  const Quantiser& quantiser = stages.quantiser;
  if (stages.is_quantised()) {
    begin(ChunkStage::kQuantise);
    list.Le(static_cast<std::uint8_t>(quantiser.kind));
    if (quantiser.kind == QuantiserKind::kLinear) {
      list.Le(std::bit_cast<std::uint64_t>(quantiser.linear_step));
    } else {
      list.Varint(quantiser.integer_step);
    }
    if (quantiser.kind == QuantiserKind::kLogarithm) list.Le(quantiser.origin);
  }
  if (stages.mask_count > 0) {
    begin(ChunkStage::kMask);
    list.Le(stages.mask_count);
    for (std::size_t i = 0; i < stages.mask_count; ++i) {
      list.Le(stages.masks[i].pattern);
      list.Le(static_cast<std::uint8_t>(stages.masks[i].temporal));
    }
  }
  if (stages.escape_count > 0) {
    begin(ChunkStage::kEscape);
    list.Varint(stages.escape_count);
  }
  if (stages.offset != 0 || stages.shift != 0) {
    begin(ChunkStage::kOffset);
    list.Varint(stages.offset);
    list.Le(stages.shift);
  }
  if (stages.dictionary_count > 0) {
    begin(ChunkStage::kDictionary);
    list.Varint(stages.dictionary_count);
  }
  if (stages.colour != ColourKind::kNone) {
    begin(ChunkStage::kColour);
    list.Le(static_cast<std::uint8_t>(stages.colour));
  }
  writer.Le(count);
  writer.Bytes(list.bytes());
}

}  // namespace

std::vector<std::byte> SerialiseChunk(const CodedHead& head) {
  ByteWriter writer;
  writer.Le(kChunkLayout);
  WriteStages(head.stages, writer);
  writer.Le(head.stages.plane_count);
  for (std::size_t i = 0; i < head.stages.plane_count; ++i) writer.Le(head.stages.plane_bits[i]);
  for (std::uint32_t i = 0; i < head.stream_count; ++i) {
    writer.Le(static_cast<std::uint8_t>(head.streams[i].coder));
    writer.Varint(head.streams[i].raw_bytes);
    writer.Varint(head.streams[i].body.size());
  }
  for (std::uint32_t i = 0; i < head.stream_count; ++i) writer.Bytes(head.streams[i].body);
  return writer.Release();
}

}  // namespace forebay::compress
