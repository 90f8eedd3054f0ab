// PNG images, by libpng.
#pragma once

#include <cstddef>
#include <span>

#include "client/cli/source/raster_image.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// Decodes a whole PNG file, interlaced or not, to the values that it stores: grey images to one
// channel, colour images and palettes to three (RGB); 16-bit images to two bytes a value; grey of
// 1, 2 and 4 bits is scaled to 0 to 255. Gamma and colour profiles are not applied. Errors say what
// is wrong with the file, and what to do:
//   kInvalidArgument  no PNG; an image with transparency; too large (CheckImageShape)
//   kDataLoss         damaged or cut off
Result<RasterImage> DecodePng(std::span<const std::byte> file);

}  // namespace forebay::cli
