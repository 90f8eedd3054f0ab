// What a chunk holds, how its elements lie in planes (docs/pack_chunk.md, section 2), and the
// codecs of its payload (docs/pack.md, chunk record).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "compress/format/plane/plane_shape.h"
#include "proto/contract/result.h"
#include "proto/contract/tensor.h"

namespace forebay::compress {

// How a chunk's payload is coded. Persisted by number; never renumber.
enum class ChunkCodec : std::uint8_t {
  kStore = 0,  // the elements
  kZstd = 1,   // one zstd frame, with content size and checksum
  kLz4 = 2,    // one LZ4 block
  kCoded = 3,  // stages and planes (docs/pack_chunk.md)
};

inline constexpr std::size_t kChunkRankMax = 4;
inline constexpr std::uint32_t kChannelsMax = 4;  // of a channel axis that is split into planes

// A field's tile over a run of samples: elements dense as [samples][extent 0]..[extent rank-1],
// little-endian. A value type; what CheckChunkShape accepts has at most 4 MiB.
struct ChunkShape {
  Dtype dtype = Dtype::kU8;  // kBytes counts as u8
  std::uint32_t samples = 0;
  std::uint8_t rank = 0;                                    // axes of a sample
  std::array<std::uint32_t, kChunkRankMax> extent = {1, 1, 1, 1};  // unused ones are 1
  std::int8_t channel_axis = -1;                            // colours of a pixel; -1: none
  // "No value here", as an element's bits. Looked at by the encoder only.
  std::optional<std::uint64_t> fill_bits = std::nullopt;

  std::size_t element_bytes() const { return DtypeBytes(dtype); }
  std::size_t sample_elements() const {
    return std::size_t{extent[0]} * extent[1] * extent[2] * extent[3];
  }
  std::size_t elements() const { return samples * sample_elements(); }
  std::size_t sample_bytes() const { return sample_elements() * element_bytes(); }
  std::size_t bytes() const { return elements() * element_bytes(); }
};

// kInvalidArgument for zero extents, a rank or channel axis out of range, or more than
// limits::kChunkBytesMax bytes. Nothing else here may be called before.
Status CheckChunkShape(const ChunkShape& shape);

// How a chunk's elements are dealt to channels and to planes. Element (sample, outer, channel,
// inner) is pixel (sample * outer_extent + outer) * inner_extent + inner of its channel.
struct ChunkGeometry {
  std::uint32_t channels = 1;
  std::size_t outer_extent = 1, inner_extent = 1;  // elements before and behind the channel axis
  std::size_t sample_pixels = 1;                   // outer_extent * inner_extent
  std::uint32_t frames = 1, rows = 1, columns = 1;  // of each channel's plane stack
  // Too narrow or too few rows for the plane codec: such planes are byte streams.
  bool allows_planes = false;

  std::size_t pixels() const { return std::size_t{frames} * rows * columns; }
  PlaneShape Plane(std::uint8_t bits) const {
    return {.frames = frames, .rows = rows, .columns = columns, .bits = bits};
  }
};

ChunkGeometry GeometryOf(const ChunkShape& shape);

}  // namespace forebay::compress
