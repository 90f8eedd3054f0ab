// Reads and writes PGM and PPM. The header is text with comments; the pixels follow it as they are,
// the high byte first where a value has two.
#include "client/cli/source/pnm_image.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include "compress/decode/pack/byte_source.h"
#include "proto/contract/limits.h"

namespace forebay::cli {
namespace {

constexpr std::size_t kHeaderBytesMax = 4096;  // comments included

Error BadImage(std::string what) { return Error(ErrorCode::kInvalidArgument, std::move(what)); }

// Reads the words of a header: numbers between white space and comments.
class HeaderReader {
 public:
  explicit HeaderReader(std::span<const std::byte> bytes)
      // Only the header's limit is visible to the reader, so that a file that is one long comment
      // costs little. The two bytes of the kind were looked at before.
      : bytes_(bytes.first(std::min(bytes.size(), kHeaderBytesMax))), at_(2) {}

  std::size_t offset() const { return at_; }

  Result<std::uint32_t> Number(const char* name) {
    // White space is required before each number: "P5640" would be ambiguous.
    FOREBAY_TRY(SkipSpace(name));
    std::uint64_t value = 0;
    const std::size_t begin = at_;
    while (at_ < bytes_.size() && Here() >= '0' && Here() <= '9') {
      value = value * 10 + static_cast<std::uint64_t>(Here() - '0');
      // Checked at each digit, so that the number cannot wrap.
      if (value > 0xFFFF'FFFF) return BadImage(fmt::format("its {} is too large", name));
      ++at_;
    }
    if (at_ == begin) {
      return BadImage(fmt::format("its header lacks the {} (byte {})", name, begin));
    }
    return static_cast<std::uint32_t>(value);
  }

  // A single white space ends the header.
  Status End() {
    // Exactly one: a second one would already be the first pixel.
    if (at_ == bytes_.size() || !IsSpace(Here())) {
      return BadImage("no white space follows its header");
    }
    ++at_;
    return {};
  }

 private:
  static bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
  char Here() const { return static_cast<char>(bytes_[at_]); }

  Status SkipSpace(const char* name) {
    const std::size_t begin = at_;
    while (at_ < bytes_.size() && (IsSpace(Here()) || Here() == '#')) {
      if (Here() == '#') {
        while (at_ < bytes_.size() && Here() != '\n') ++at_;
      } else {
        ++at_;
      }
    }
    if (at_ == bytes_.size()) {
      return BadImage(fmt::format("its header ends before the {}", name));
    }
    if (at_ == begin) return BadImage(fmt::format("no white space stands before the {}", name));
    return {};
  }

  std::span<const std::byte> bytes_;
  std::size_t at_;
};

// PNM has the high byte first.
void SwapPairs(std::span<std::byte> pixels) {
  for (std::size_t i = 0; i + 1 < pixels.size(); i += 2) std::swap(pixels[i], pixels[i + 1]);
}

bool AllWithin(const RasterImage& image) {
  const std::uint32_t largest = image.shape.value_max;
  if (image.shape.element_bytes() == 1) {
    // No byte can lie above 255 and no pair above 65535, so the usual files are not read a second
    // time.
    return largest == 255 || std::ranges::all_of(image.pixels, [&](std::byte value) {
             return std::to_integer<std::uint32_t>(value) <= largest;
           });
  }
  for (std::size_t i = 0; i + 1 < image.pixels.size() && largest < 65535; i += 2) {
    const auto low = std::to_integer<std::uint32_t>(image.pixels[i]);
    if ((low | std::to_integer<std::uint32_t>(image.pixels[i + 1]) << 8) > largest) return false;
  }
  return true;
}

struct PnmHeader {
  ImageShape shape;
  std::size_t bytes = 0;  // where the pixels begin
};

Result<PnmHeader> ParseHeader(std::span<const std::byte> file) {
  if (file.size() < 2 || file[0] != std::byte{'P'} ||
      (file[1] != std::byte{'5'} && file[1] != std::byte{'6'})) {
    return BadImage("is not a binary PGM or PPM image (it does not begin with P5 or P6)");
  }
  PnmHeader header;
  // The kinds with text pixels (P1 to P3) and bitmaps (P4) were refused above.
  header.shape.channels = file[1] == std::byte{'6'} ? 3 : 1;
  HeaderReader reader(file);
  FOREBAY_ASSIGN(header.shape.columns, reader.Number("width"));
  FOREBAY_ASSIGN(header.shape.rows, reader.Number("height"));
  FOREBAY_ASSIGN(header.shape.value_max, reader.Number("largest value"));
  FOREBAY_TRY(reader.End());
  if (header.shape.value_max == 0 || header.shape.value_max > 65535) {
    return BadImage(fmt::format("its largest value is {}; it must be 1 to 65535",
                                header.shape.value_max));
  }
  // After this, `bytes()` of the shape does not wrap; the comparisons with the file's size need
  // that.
  FOREBAY_TRY(CheckImageShape(header.shape));
  header.bytes = reader.offset();
  return header;
}

}  // namespace

Result<RasterImage> DecodePnm(std::span<const std::byte> file) {
  FOREBAY_ASSIGN(const PnmHeader header, ParseHeader(file));
  const std::span<const std::byte> pixels = file.subspan(header.bytes);
  if (pixels.size() < header.shape.bytes()) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("is cut off: {} bytes of pixels, its header says {}", pixels.size(),
                             header.shape.bytes()));
  }
  // The format allows several images in a file. Taking the first only would lose the others
  // silently.
  if (pixels.size() > header.shape.bytes()) {
    return BadImage(fmt::format("{} bytes follow its pixels; files of several images are not read",
                                pixels.size() - header.shape.bytes()));
  }
  RasterImage image{.shape = header.shape, .pixels = {pixels.begin(), pixels.end()}};
  if (image.shape.element_bytes() == 2) SwapPairs(image.pixels);
  // A value above the largest would be written back into a file that other programs refuse.
  if (!AllWithin(image)) {
    return BadImage(fmt::format("has values above {}, which its header calls the largest",
                                image.shape.value_max));
  }
  return image;
}

std::vector<std::byte> WritePnm(const ImageShape& shape, std::span<const std::byte> pixels) {
  const std::string header = fmt::format("P{}\n{} {}\n{}\n", shape.channels == 3 ? 6 : 5,
                                         shape.columns, shape.rows, shape.value_max);
  const auto begin = std::as_bytes(std::span(header));
  std::vector<std::byte> file(begin.begin(), begin.end());
  file.insert(file.end(), pixels.begin(), pixels.end());
  // Two bytes of a value: the high one first.
  for (std::size_t at = begin.size(); shape.element_bytes() == 2 && at + 1 < file.size(); at += 2) {
    std::swap(file[at], file[at + 1]);
  }
  return file;
}

}  // namespace forebay::cli
