// Decodes PNG with libpng's full interface: the simplified one converts gamma and 16-bit values,
// and a pack should hold the values of the file. The library reports errors by longjmp, which must
// not leave a frame that has objects with destructors. Therefore the functions that call setjmp
// (ReadHead, ReadPixels) and the callbacks use plain values and pointers only; everything that owns
// memory lives in the frames of DecodePng and PngReader, which no jump passes over.
#include "client/cli/source/png_image.h"

#include <array>
#include <csetjmp>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <png.h>

namespace forebay::cli {
namespace {

// Where the library reads from, and what it complained of. Plain data: jumps pass over its users.
struct PngInput {
  const std::byte* bytes = nullptr;
  std::size_t size = 0, at = 0;
  bool ended = false;  // more was asked for than there is
  std::array<char, 128> complaint = {};
};

void ReadInput(png_structp png, png_bytep out, std::size_t count) {
  auto* const input = static_cast<PngInput*>(png_get_io_ptr(png));
  // Compared with what is left, not as a sum, which could wrap.
  if (count > input->size - input->at) {
    input->ended = true;
    png_error(png, "the file ends early");
  }
  std::memcpy(out, input->bytes + input->at, count);
  input->at += count;
}

[[noreturn]] void Complain(png_structp png, png_const_charp message) {
  auto* const input = static_cast<PngInput*>(png_get_error_ptr(png));
  // The array was filled with zeros and its last byte is never written, so the text always ends.
  std::strncpy(input->complaint.data(), message, input->complaint.size() - 1);
  png_longjmp(png, 1);
}

// Warnings are about what is not used here: texts, profiles, times.
void Ignore(png_structp, png_const_charp) {}

class PngReader {
 public:
  explicit PngReader(PngInput& input) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &input, Complain, Ignore);
    if (png_ == nullptr) return;
    info_ = png_create_info_struct(png_);
    png_set_read_fn(png_, &input, ReadInput);
    // Sizes are checked in CheckImageShape, whose message names our limit.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  bool valid() const { return png_ != nullptr && info_ != nullptr; }
  png_structp png() const { return png_; }
  png_infop info() const { return info_; }

 private:
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

struct PngHead {
  png_uint_32 columns = 0, rows = 0;
  int bits = 0, colours = 0;
  bool transparent = false;
};

// Reads all that stands before the pixels. False where the library complained.
bool ReadHead(png_structp png, png_infop info, PngHead& head) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_info(png, info);
  head.columns = png_get_image_width(png, info);
  head.rows = png_get_image_height(png, info);
  head.bits = png_get_bit_depth(png, info);
  head.colours = png_get_color_type(png, info);
  head.transparent = (head.colours & PNG_COLOR_MASK_ALPHA) != 0 ||
                     png_get_valid(png, info, PNG_INFO_tRNS) != 0;
  return true;
}

// Reads the pixels into `rows`, and what stands behind them, so that a file that is cut off there
// is noticed. False where the library complained, or where rows are not `row_bytes` long.
bool ReadPixels(png_structp png, png_infop info, std::size_t row_bytes, png_bytepp rows) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_expand_gray_1_2_4_to_8(png);
  png_set_palette_to_rgb(png);
  png_set_swap(png);  // 16 bits: the low byte first
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  // The library writes rows of its own length. Where the calls above gave another layout than
  // `rows` has room for, it would write beyond the pixels.
  if (png_get_rowbytes(png, info) != row_bytes) png_error(png, "rows of an unexpected length");
  png_read_image(png, rows);
  png_read_end(png, nullptr);
  return true;
}

Error PngError(const PngInput& input) {
  return Error(ErrorCode::kDataLoss,
               fmt::format("is a PNG image that is {}: {}; fetch it again, or move it out of the "
                           "folder",
                           input.ended ? "cut off" : "damaged", input.complaint.data()));
}

}  // namespace

Result<RasterImage> DecodePng(std::span<const std::byte> file) {
  PngInput input{.bytes = file.data(), .size = file.size()};
  const PngReader reader(input);
  if (!reader.valid()) {
    return Error(ErrorCode::kResourceExhausted, "no memory for a PNG decoder");
  }
  PngHead head;
  if (!ReadHead(reader.png(), reader.info(), head)) return PngError(input);
  if (head.transparent) {
    return Error(ErrorCode::kInvalidArgument,
                 "is a PNG image with transparency, which a field of pixels does not have; remove "
                 "it, for example with `magick IN -alpha off OUT`");
  }
  const bool colour = (head.colours & PNG_COLOR_MASK_COLOR) != 0;  // palettes, too
  RasterImage image{.shape = {.rows = head.rows,
                              .columns = head.columns,
                              .channels = colour ? 3U : 1U,
                              .value_max = head.bits == 16 ? 65535U : 255U},
                    .pixels = {}};
  FOREBAY_TRY(CheckCompressedShape(image.shape, file.size()));
  image.pixels.resize(static_cast<std::size_t>(image.shape.bytes()));
  // CheckCompressedShape has refused a shape without rows.
  const std::size_t row_bytes = image.pixels.size() / image.shape.rows;
  std::vector<png_bytep> rows(image.shape.rows);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    rows[row] = reinterpret_cast<png_bytep>(image.pixels.data()) + row * row_bytes;
  }
  // `rows` and `image` live in this frame, which the jump does not pass over: it ends in
  // ReadPixels.
  if (!ReadPixels(reader.png(), reader.info(), row_bytes, rows.data())) return PngError(input);
  return image;
}

}  // namespace forebay::cli
