// Image files of the kinds that `forebay pack --images` takes: PGM and PPM, JPEG, PNG.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "client/cli/source/raster_image.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// Whether a file of that name is taken for an image: .pgm, .ppm, .pnm, .jpg, .jpeg, .png, in
// capital letters, too.
bool IsImageName(std::string_view name);

// Decodes an image file. The first bytes say of which kind it is, whatever the name says. Errors:
// those of DecodePnm, DecodeJpeg and DecodePng; kInvalidArgument for files of other kinds.
Result<RasterImage> DecodeImage(std::span<const std::byte> file);

// Reads and decodes a file. Errors name the path: those of DecodeImage, a system's, and
// kInvalidArgument for a file of more than limits::kSampleBytesMax bytes.
Result<RasterImage> ReadImage(const std::string& path);

}  // namespace forebay::cli
