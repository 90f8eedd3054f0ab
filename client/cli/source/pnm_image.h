// Images of the PNM family: binary greyscale (P5) and colour (P6), 8 and 16 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::cli {

// What a PNM header says.
struct PnmShape {
  std::uint32_t rows = 0, columns = 0;
  std::uint32_t channels = 1;    // 1 (P5) or 3 (P6)
  std::uint32_t value_max = 255;  // 1 to 65535; samples have two bytes from 256 on

  std::uint32_t element_bytes() const { return value_max > 255 ? 2 : 1; }
  std::uint64_t bytes() const {
    return std::uint64_t{rows} * columns * channels * element_bytes();
  }
  std::string ToString() const;  // "480 x 640, 3 channels, values to 255"
  bool operator==(const PnmShape&) const = default;
};

struct PnmImage {
  PnmShape shape;
  std::vector<std::byte> pixels;  // [rows][columns][channels], little-endian
};

// The shape from the beginning of a file, and where its pixels begin. Errors: kInvalidArgument
// says what is wrong: another kind of image, a header that is not whole, a size of zero or of
// more than limits::kSampleBytesMax bytes.
struct PnmHeader {
  PnmShape shape;
  std::size_t bytes = 0;
};
Result<PnmHeader> ParsePnmHeader(std::span<const std::byte> file);

// Reads a whole image. Errors name the path: those of the header, kDataLoss where pixels are
// missing, kInvalidArgument where bytes follow or a value is above value_max, a system's.
Result<PnmImage> ReadPnm(const std::string& path);

// A PNM file of dense little-endian pixels, [rows][columns][channels]: the inverse of ReadPnm.
std::vector<std::byte> WritePnm(const PnmShape& shape, std::span<const std::byte> pixels);

// Reads the header only.
Result<PnmShape> ReadPnmShape(const std::string& path);

}  // namespace forebay::cli
