// Encoders for tests. Errors of the libraries end the test program: the images are ours.
#include "client/cli/testing/image_writer.h"

#include <png.h>
#include <turbojpeg.h>

#include "proto/contract/check.h"

namespace forebay::cli {

std::uint8_t PictureValue(int row, int column, int channel) {
  return static_cast<std::uint8_t>(40 + 3 * row + 2 * column + 30 * channel);
}

std::string WriteJpeg(JpegKind kind, int rows, int columns) {
  const int channels = kind == JpegKind::kGrey ? 1 : kind == JpegKind::kCmyk ? 4 : 3;
  const int format = kind == JpegKind::kGrey   ? TJPF_GRAY
                     : kind == JpegKind::kCmyk ? TJPF_CMYK
                                               : TJPF_RGB;
  std::vector<unsigned char> pixels;
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      for (int c = 0; c < channels; ++c) pixels.push_back(PictureValue(row, column, c));
    }
  }
  const tjhandle encoder = tjInitCompress();
  FOREBAY_CHECK(encoder != nullptr);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  FOREBAY_CHECK(tjCompress2(encoder, pixels.data(), columns, 0, rows, format, &bytes, &size,
                            kind == JpegKind::kGrey ? TJSAMP_GRAY : TJSAMP_444, 100,
                            kind == JpegKind::kProgressive ? TJFLAG_PROGRESSIVE : 0) == 0);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  tjFree(bytes);
  tjDestroy(encoder);
  return file;
}

std::string WritePng(const PngWriting& writing, const std::string& pixels) {
  std::string file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  FOREBAY_CHECK(png != nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp from, png_bytep bytes, std::size_t count) {
        static_cast<std::string*>(png_get_io_ptr(from))
            ->append(reinterpret_cast<const char*>(bytes), count);
      },
      nullptr);
  png_set_IHDR(png, info, writing.columns, writing.rows, writing.bits, writing.colour_type,
               writing.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  for (const std::uint32_t colour : writing.palette) {
    palette.push_back({.red = static_cast<png_byte>(colour >> 16),
                       .green = static_cast<png_byte>(colour >> 8 & 0xFF),
                       .blue = static_cast<png_byte>(colour & 0xFF)});
  }
  if (!palette.empty()) {
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  }
  png_byte alpha = 7;
  png_color_16 key = {};
  if (writing.transparent) png_set_tRNS(png, info, &alpha, palette.empty() ? 0 : 1, &key);
  png_write_info(png, info);
  if (pixels.empty()) {
    const std::string junk = "no pixels";
    const std::string name = "IDAT";
    png_write_chunk(png, reinterpret_cast<png_const_bytep>(name.data()),
                    reinterpret_cast<png_const_bytep>(junk.data()), junk.size());
  } else {
    const std::size_t row_bytes = pixels.size() / writing.rows;
    std::string held = pixels;
    std::vector<png_bytep> rows;
    for (std::size_t row = 0; row < writing.rows; ++row) {
      rows.push_back(reinterpret_cast<png_bytep>(held.data()) + row * row_bytes);
    }
    png_write_image(png, rows.data());
    png_write_end(png, nullptr);
  }
  png_destroy_write_struct(&png, &info);
  return file;
}

}  // namespace forebay::cli
