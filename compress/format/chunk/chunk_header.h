// The head of a coded chunk: its stages and streams (docs/pack_chunk.md, section 3).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compress/format/chunk/chunk_shape.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/result.h"

namespace forebay::compress {

inline constexpr std::uint8_t kChunkLayout = 1;
inline constexpr std::size_t kMasksMax = 2;
inline constexpr std::size_t kPlanesMax = 8;  // that an element is split into
inline constexpr std::uint32_t kDictionaryMax = 1U << 16;
inline constexpr std::size_t kStreamsMax = kMasksMax + 3 + kPlanesMax * kChannelsMax;

// Persisted by number; a head lists its stages in ascending order.
enum class ChunkStage : std::uint8_t {
  kQuantise = 1, kMask = 2, kEscape = 3, kOffset = 4, kDictionary = 5, kColour = 6,
};

enum class QuantiserKind : std::uint8_t { kNone = 0, kLinear = 1, kInteger = 2, kLogarithm = 3 };

struct Quantiser {
  QuantiserKind kind = QuantiserKind::kNone;
  double linear_step = 0;
  std::uint64_t integer_step = 0;  // of kInteger; of kLogarithm in 2^-32 octaves
  std::uint64_t origin = 0;        // of kLogarithm, two's complement
};

enum class ColourKind : std::uint8_t { kNone = 0, kGreen = 1, kYCoCg = 2 };

// Persisted by number.
enum class StreamCoder : std::uint8_t {
  kStore = 0, kZstd = 1, kLz4 = 2, kPlanes = 3, kConstant = 4,
};

struct ChunkMask {
  std::uint64_t pattern = 0;  // an element's bits
  bool temporal = false;      // coded as difference to the frame before
};

// What is done to a chunk's elements, in the order of encoding.
struct ChunkStages {
  Quantiser quantiser;
  std::uint8_t mask_count = 0;
  std::array<ChunkMask, kMasksMax> masks;
  std::uint32_t escape_count = 0;
  std::uint64_t offset = 0;
  std::uint8_t shift = 0;
  std::uint32_t dictionary_count = 0;
  ColourKind colour = ColourKind::kNone;
  std::uint8_t plane_count = 0;
  std::array<std::uint8_t, kPlanesMax> plane_bits{};  // lowest first

  bool is_quantised() const { return quantiser.kind != QuantiserKind::kNone; }
  std::uint32_t code_bits() const;  // of all planes
};

struct ChunkStream {
  StreamCoder coder = StreamCoder::kStore;
  std::uint32_t raw_bytes = 0;
  std::span<const std::byte> body;
};

// Streams in the order of the payload: masks, escape positions, escape values, dictionary,
// planes (channel by channel).
struct CodedHead {
  ChunkStages stages;
  std::uint32_t stream_count = 0;
  std::array<ChunkStream, kStreamsMax> streams;

  std::uint32_t escape_stream() const { return stages.mask_count; }
  std::uint32_t dictionary_stream() const {
    return escape_stream() + (stages.escape_count > 0 ? 2 : 0);
  }
  std::uint32_t plane_stream() const {
    return dictionary_stream() + (stages.dictionary_count > 0 ? 1 : 0);
  }
};

// Largest decoded size of a stream that is no plane.
inline std::size_t SideStreamBytesMax(const ChunkShape& shape) { return shape.bytes() + 64; }

// The head of `payload`, every size of it checked against `shape`; bodies are borrowed from the
// payload. Errors: kDataLoss; kUnimplemented for a layout, stage or coder of a newer version.
Result<CodedHead> ParseChunkHead(const ChunkShape& shape, std::span<const std::byte> payload);

// The payload: the head and then its bodies.
std::vector<std::byte> SerialiseChunk(const CodedHead& head);

}  // namespace forebay::compress
