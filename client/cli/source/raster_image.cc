// Checks of an image's size. They come before memory is allocated for pixels: the size stands in a
// header of a few bytes, which may say anything.
#include "client/cli/source/raster_image.h"

#include <fmt/format.h>

#include "proto/contract/limits.h"

namespace forebay::cli {
namespace {

// Twice what the best file of either format reaches (raster_image.h), so no sound image is refused.
constexpr std::uint64_t kPixelBytesPerFileByteMax = 2048;

}  // namespace

std::string ImageShape::ToString() const {
  return fmt::format("{} x {}, {} channel{}, values to {}", rows, columns, channels,
                     channels == 1 ? "" : "s", value_max);
}

Status CheckImageShape(const ImageShape& shape) {
  if (shape.rows == 0 || shape.columns == 0) {
    return Error(ErrorCode::kInvalidArgument, "has no pixels: " + shape.ToString());
  }
  const std::uint64_t pixel_bytes = std::uint64_t{shape.channels} * shape.element_bytes();
  // The check divides, because the product of four numbers from a header may wrap.
  if (shape.rows > limits::kSampleBytesMax / shape.columns / pixel_bytes) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("has more than {} bytes: {}", limits::kSampleBytesMax,
                             shape.ToString()));
  }
  return {};
}

Status CheckCompressedShape(const ImageShape& shape, std::uint64_t file_bytes) {
  FOREBAY_TRY(CheckImageShape(shape));
  // Divided and not multiplied for the same reason: `file_bytes` has no bound here.
  if (shape.bytes() / kPixelBytesPerFileByteMax < file_bytes) return {};
  return Error(ErrorCode::kDataLoss,
               fmt::format("is damaged: its header says {}, which a file of {} bytes cannot hold",
                           shape.ToString(), file_bytes));
}

}  // namespace forebay::cli
