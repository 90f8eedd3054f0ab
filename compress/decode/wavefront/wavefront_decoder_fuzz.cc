// Fuzz target: a wavefront body. The first four bytes give the shape (frames, rows, columns, bits),
// the rest is the body behind its kind byte; plane_body_fuzz.h says what must hold.
#include <cstdint>

#include "compress/decode/plane_body_fuzz.h"
#include "compress/decode/wavefront/wavefront_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const forebay::compress::PlaneShape shape{
      .frames = 1U + data[0] % 3, .rows = 8U + data[1] % 72, .columns = 24U + data[2] % 144,
      .bits = static_cast<std::uint8_t>(1 + data[3] % 16)};
  const auto decode = [](const auto&... arguments) {
    return forebay::compress::DecodeWavefront(arguments...);
  };
  forebay::compress::CheckPlaneBody(
      {.scratch_bytes = forebay::compress::WavefrontScratchBytes, .decode = decode}, shape,
      std::as_bytes(std::span(data + 4, size - 4)));
  return 0;
}
