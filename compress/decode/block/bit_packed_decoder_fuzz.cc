// Fuzz target: a bit-packed body. The first four bytes give the shape (frames, rows, columns,
// bits), the rest is the body behind its kind byte; plane_body_fuzz.h says what must hold.
#include <cstdint>

#include "compress/decode/block/bit_packed_decoder.h"
#include "compress/decode/plane_body_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const forebay::compress::PlaneShape shape{
      .frames = 1U + data[0] % 3, .rows = 1U + data[1] % 24, .columns = 1U + data[2] % 80,
      .bits = static_cast<std::uint8_t>(1 + data[3] % 16)};
  forebay::compress::CheckPlaneBody({.scratch_bytes = forebay::compress::BitPackedScratchBytes,
                                     .decode = forebay::compress::DecodeBitPacked},
                                    shape, std::as_bytes(std::span(data + 4, size - 4)));
  return 0;
}
