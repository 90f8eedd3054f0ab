// JPEG images, by libjpeg-turbo.
#pragma once

#include <cstddef>
#include <span>

#include "client/cli/source/raster_image.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// Decodes a whole JPEG file: grey images to one channel, colour images to three (RGB), as libjpeg
// does by default (accurate integer DCT, smooth upsampling of chroma). Pixels stay as they are
// stored: an EXIF orientation is not applied. Errors say what is wrong with the file, and what to
// do:
//   kInvalidArgument  an image in CMYK, or one that is too large (CheckImageShape)
//   kDataLoss         damaged or cut off; a header that the library does not understand, which also
//                     JPEG of 12 bits has
Result<RasterImage> DecodeJpeg(std::span<const std::byte> file);

}  // namespace forebay::cli
