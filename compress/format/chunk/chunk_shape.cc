// Checks shapes of chunks and derives how their elements lie in planes (docs/pack_chunk.md, section
// 2). The constants below decide which payloads are valid, so they never change within a layout.
#include "compress/format/chunk/chunk_shape.h"

#include <string>

#include "proto/contract/limits.h"

namespace forebay::compress {
namespace {

// Smaller frames are stacked: all frames of a chunk become one frame of many rows.
// They have too few pixels for statistics of their own.
constexpr std::size_t kFramePixelsMin = 4096;
// The plane codec keeps margins around a frame, whose share these bound.
constexpr std::uint32_t kPlaneRowsMin = 8, kPlaneColumnsMin = 24;

Error InvalidShape(const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, "chunk shape: " + what);
}

}  // namespace

Status CheckChunkShape(const ChunkShape& shape) {
  if (shape.rank > kChunkRankMax) {
    return InvalidShape("rank " + std::to_string(shape.rank) + ", at most " +
                        std::to_string(kChunkRankMax));
  }
  if (shape.channel_axis < -1 || shape.channel_axis >= shape.rank) {
    return InvalidShape("channel axis " + std::to_string(shape.channel_axis) + " of rank " +
                        std::to_string(shape.rank));
  }
  // Divides the limit by each factor instead of multiplying the factors, whose product could
  // overflow.
  std::uint64_t left = limits::kChunkBytesMax / shape.element_bytes();
  if (shape.samples == 0 || shape.samples > left) {
    return InvalidShape(std::to_string(shape.samples) + " samples");
  }
  left /= shape.samples;
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    const std::uint32_t extent = shape.extent[axis];
    if (extent == 0 || (axis >= shape.rank && extent != 1)) {
      return InvalidShape("extent " + std::to_string(extent) + " of axis " + std::to_string(axis));
    }
    if (extent > left) {
      return InvalidShape("more than " + std::to_string(limits::kChunkBytesMax) +
                          " bytes; cut the field into smaller chunks");
    }
    left /= extent;
  }
  return {};
}

ChunkGeometry GeometryOf(const ChunkShape& shape) {
  ChunkGeometry geometry;
  int channel_axis = shape.channel_axis;
  if (channel_axis >= 0) {
    const std::uint32_t channels = shape.extent[static_cast<std::size_t>(channel_axis)];
    // One channel, or more than kChannelsMax, get no planes of their own: their axis counts as an
    // axis of pixels.
    if (channels >= 2 && channels <= kChannelsMax) {
      geometry.channels = channels;
    } else {
      channel_axis = -1;
    }
  }
  // The last two pixel axes are rows and columns; the product of the others counts frames. Going
  // forward, each axis pushes the ones before it up.
  std::uint32_t above = 1;  // frames of a sample
  std::uint32_t spatial_axes = 0;
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (axis == channel_axis) continue;
    const std::uint32_t extent = shape.extent[static_cast<std::size_t>(axis)];
    above *= geometry.rows;
    geometry.rows = geometry.columns;
    geometry.columns = extent;
    ++spatial_axes;
    if (axis < channel_axis) geometry.outer_extent *= extent;
    else geometry.inner_extent *= extent;
  }
  if (channel_axis < 0) {
    geometry.inner_extent = shape.sample_elements();
    geometry.outer_extent = 1;
  }
  geometry.sample_pixels = geometry.outer_extent * geometry.inner_extent;
  geometry.frames = shape.samples * above;
  const std::size_t frame_pixels = std::size_t{geometry.rows} * geometry.columns;
  if (spatial_axes < 2 || frame_pixels < kFramePixelsMin) {
    geometry.rows *= geometry.frames;
    geometry.frames = 1;
  }
  geometry.allows_planes = geometry.rows >= kPlaneRowsMin && geometry.columns >= kPlaneColumnsMin;
  return geometry;
}

}  // namespace forebay::compress
