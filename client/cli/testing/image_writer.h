// Writes JPEG and PNG files for tests, with the libraries' encoders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forebay::cli {

enum class JpegKind { kGrey, kColour, kProgressive, kCmyk };

// A smooth picture of `rows` and `columns`: PictureValue of each channel.
std::string WriteJpeg(JpegKind kind, int rows, int columns);
// What WriteJpeg draws, which the decoder gives back nearly.
std::uint8_t PictureValue(int row, int column, int channel);

struct PngWriting {
  int colour_type = 0;  // PNG_COLOR_TYPE_...
  int bits = 8;
  std::uint32_t rows = 0, columns = 0;
  bool interlaced = false;
  bool transparent = false;          // a tRNS chunk
  std::vector<std::uint32_t> palette = {};  // 0xRRGGBB
};
// `pixels` are the rows as the file has them: high bytes first, bits packed. Where they are empty,
// the file has a head for that size, and then a few bytes that are no pixels.
std::string WritePng(const PngWriting& writing, const std::string& pixels);

}  // namespace forebay::cli
