// Maps bytes through a table of up to 256 entries, one at a time, or by the kernel of the
// instruction set. The largest byte is returned, so that the caller finds codes beyond the table
// after the fact instead of testing each. Called by element_assembler.cc for dictionaries of bytes.
#include "compress/decode/chunk/byte_table.h"

#include <algorithm>

namespace forebay::compress {

std::uint8_t MapBytes(const ByteTable& table, std::span<const std::uint8_t> from,
                      std::uint8_t* to, Isa isa) {
#ifdef FOREBAY_X86_KERNELS
  if (isa == Isa::kAvx512) return MapBytesAvx512(table, from, to);
  if (isa == Isa::kAvx2) return MapBytesAvx2(table, from, to);
#endif
  static_cast<void>(isa);
  std::uint8_t largest = 0;
  for (const std::uint8_t byte : from) {
    largest = std::max(largest, byte);
    *to++ = table.bytes[byte];
  }
  return largest;
}

}  // namespace forebay::compress
