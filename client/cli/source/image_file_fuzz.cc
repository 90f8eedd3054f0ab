// Fuzz target: image files. What decodes has the pixels that its shape says, and no value above the
// largest; no input allocates more than CheckCompressedShape allows for its length.
#include <cstdint>
#include <span>

#include "client/cli/source/image_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay::cli;
  const auto image = DecodeImage(std::as_bytes(std::span(data, size)));
  if (!image.has_value()) {
    if (image.error().message().empty()) __builtin_trap();
    return 0;
  }
  const ImageShape& shape = image->shape;
  // The pack writer takes `shape.bytes()` for each sample without another look.
  if (image->pixels.size() != shape.bytes() || image->pixels.empty()) __builtin_trap();
  if (shape.channels != 1 && shape.channels != 3) __builtin_trap();
  for (std::size_t at = 0; at < image->pixels.size(); at += shape.element_bytes()) {
    auto value = std::to_integer<std::uint32_t>(image->pixels[at]);
    if (shape.element_bytes() == 2) {
      value |= std::to_integer<std::uint32_t>(image->pixels[at + 1]) << 8;
    }
    // A larger value would be written by `unpack --images` into a file that no program accepts.
    if (value > shape.value_max) __builtin_trap();
  }
  return 0;
}
