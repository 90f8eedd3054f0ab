// Images in memory: what every reader of image files gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::cli {

struct ImageShape {
  std::uint32_t rows = 0, columns = 0;
  std::uint32_t channels = 1;     // 1 (grey) or 3 (red, green, blue)
  std::uint32_t value_max = 255;  // 1 to 65535; samples have two bytes from 256 on

  std::uint32_t element_bytes() const { return value_max > 255 ? 2 : 1; }
  std::uint64_t bytes() const {
    return std::uint64_t{rows} * columns * channels * element_bytes();
  }
  std::string ToString() const;  // "480 x 640, 3 channels, values to 255"
  bool operator==(const ImageShape&) const = default;
};

struct RasterImage {
  ImageShape shape;
  std::vector<std::byte> pixels;  // [rows][columns][channels], little-endian
};

// kInvalidArgument for an image without pixels, or of more than limits::kSampleBytesMax bytes; the
// message names the limit.
Status CheckImageShape(const ImageShape& shape);

// For files that are compressed: also refuses a shape that `file_bytes` cannot hold, before memory
// is allocated for it. The best that PNG can do is 1032 bytes of pixels for a byte, a plain grey
// JPEG about as much; kDataLoss from 2048 on.
Status CheckCompressedShape(const ImageShape& shape, std::uint64_t file_bytes);

}  // namespace forebay::cli
