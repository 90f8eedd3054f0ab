// Decodes JPEG with the TurboJPEG interface of libjpeg-turbo, which returns error codes: libjpeg's
// own interface reports errors by longjmp. A warning of the library (data that ends early, a block
// that does not decode) counts as an error: it would give pixels that nobody took a picture of.
#include "client/cli/source/jpeg_image.h"

#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <turbojpeg.h>

namespace forebay::cli {
namespace {

// A progressive file may have any number of scans of few bytes, each of which costs a pass over all
// pixels; TJFLAG_LIMITSCANS refuses files of more than 500.
constexpr int kFlags = TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;

struct DestroyDecoder {
  void operator()(void* decoder) const { tjDestroy(decoder); }
};

}  // namespace

Result<RasterImage> DecodeJpeg(std::span<const std::byte> file) {
  const std::unique_ptr<void, DestroyDecoder> decoder(tjInitDecompress());
  if (decoder == nullptr) {
    return Error(ErrorCode::kResourceExhausted, "no memory for a JPEG decoder");
  }
  const auto* const bytes = reinterpret_cast<const unsigned char*>(file.data());
  int columns = 0, rows = 0, subsampling = 0, colours = 0;
  if (tjDecompressHeader3(decoder.get(), bytes, file.size(), &columns, &rows, &subsampling,
                          &colours) != 0) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("its JPEG header cannot be read: {}; if other programs show the "
                             "image, convert it to PNG or to JPEG of 8 bits",
                             tjGetErrorStr2(decoder.get())));
  }
  // The library takes a file that ends before its frame header for one that only has tables.
  if (columns == 0 || rows == 0) {
    return Error(ErrorCode::kDataLoss, "is a JPEG image that is cut off before its size; fetch it "
                                       "again, or move it out of the folder");
  }
  if (colours == TJCS_CMYK || colours == TJCS_YCCK) {
    return Error(ErrorCode::kInvalidArgument,
                 "is a JPEG image in CMYK; convert it to RGB, for example with `magick IN "
                 "-colorspace sRGB OUT`");
  }
  const bool grey = colours == TJCS_GRAY;
  RasterImage image{.shape = {.rows = static_cast<std::uint32_t>(rows),
                              .columns = static_cast<std::uint32_t>(columns),
                              .channels = grey ? 1U : 3U},
                    .pixels = {}};
  // Rows and columns are still only claims of the header; the memory below is allocated by them.
  FOREBAY_TRY(CheckCompressedShape(image.shape, file.size()));
  image.pixels.resize(static_cast<std::size_t>(image.shape.bytes()));
  // Pitch 0 means rows without padding, which is what `pixels` has room for.
  if (tjDecompress2(decoder.get(), bytes, file.size(),
                    reinterpret_cast<unsigned char*>(image.pixels.data()), columns, /*pitch=*/0,
                    rows, grey ? TJPF_GRAY : TJPF_RGB, kFlags) != 0) {
    return Error(ErrorCode::kDataLoss, fmt::format("is a damaged JPEG image: {}; fetch it again, "
                                                   "or move it out of the folder",
                                                   tjGetErrorStr2(decoder.get())));
  }
  return image;
}

}  // namespace forebay::cli
