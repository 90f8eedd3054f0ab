// Reads an image file and chooses its decoder by the first bytes: names in data sets are often
// wrong about the kind (PNG files called .jpg).
#include "client/cli/source/image_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "client/cli/source/jpeg_image.h"
#include "client/cli/source/png_image.h"
#include "client/cli/source/pnm_image.h"
#include "compress/decode/pack/byte_source.h"
#include "proto/contract/limits.h"

namespace forebay::cli {
namespace {

constexpr std::array<std::string_view, 6> kExtensions = {".pgm", ".ppm",  ".pnm",
                                                         ".jpg", ".jpeg", ".png"};
// Start of image, and the first byte of the marker that follows it.
constexpr std::string_view kJpegBegin = "\xFF\xD8\xFF";
// The signature includes its line ends, so a file that was damaged by a transfer as text is not
// recognised.
constexpr std::string_view kPngBegin = "\x89PNG\r\n\x1A\n";

bool BeginsWith(std::span<const std::byte> file, std::string_view begin) {
  const auto bytes = std::as_bytes(std::span(begin));
  return file.size() >= bytes.size() &&
         std::equal(bytes.begin(), bytes.end(), file.begin());
}

}  // namespace

bool IsImageName(std::string_view name) {
  // Only names decide what is listed: opening each file of a folder of millions to look at its
  // first bytes would take a round trip to the file system for each.
  std::string extension = std::filesystem::path(name).extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::ranges::find(kExtensions, extension) != kExtensions.end();
}

Result<RasterImage> DecodeImage(std::span<const std::byte> file) {
  if (BeginsWith(file, "P5") || BeginsWith(file, "P6")) return DecodePnm(file);
  if (BeginsWith(file, kJpegBegin)) return DecodeJpeg(file);
  if (BeginsWith(file, kPngBegin)) return DecodePng(file);
  return Error(ErrorCode::kInvalidArgument,
               "is no image that is read here: neither binary PGM or PPM (P5, P6), nor JPEG, nor "
               "PNG; convert it, or move it out of the folder");
}

Result<RasterImage> ReadImage(const std::string& path) {
  FOREBAY_ASSIGN(const auto source, compress::OpenByteSource(path));
  // Before the buffer is allocated, because a file's size is whatever somebody put there.
  if (source->size() > limits::kSampleBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: has {} bytes; an image file has at most {}", path,
                             source->size(), limits::kSampleBytesMax));
  }
  std::vector<std::byte> file(static_cast<std::size_t>(source->size()));
  FOREBAY_TRY(source->ReadAt(0, file));
  // Decoders see bytes only and do not know the path, so it is added here.
  auto image = DecodeImage(file);
  if (!image) return image.error().WithContext(path);
  return image;
}

}  // namespace forebay::cli
