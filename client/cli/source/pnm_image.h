// Images of the PNM family: binary greyscale (P5) and colour (P6), 8 and 16 bits.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "client/cli/source/raster_image.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// Decodes a whole PGM or PPM file. Errors say what is wrong with it:
//   kInvalidArgument  no binary PGM or PPM; a header that is not whole; bytes behind the pixels; a
//                     value above the largest that the header names; too large (CheckImageShape)
//   kDataLoss         pixels are missing
Result<RasterImage> DecodePnm(std::span<const std::byte> file);

// A PNM file of dense little-endian pixels, [rows][columns][channels]: the inverse of DecodePnm.
std::vector<std::byte> WritePnm(const ImageShape& shape, std::span<const std::byte> pixels);

}  // namespace forebay::cli
