#include "compress/decode/byte_table.h"

#include <algorithm>

namespace forebay::compress {

std::uint8_t MapBytes(const ByteTable& table, std::size_t entries, const std::uint8_t* from,
                      std::size_t count, std::uint8_t* to, WaveKernel kernel) {
#ifdef FOREBAY_X86_KERNELS
  if (kernel == WaveKernel::kAvx512) return MapBytesAvx512(table, from, count, to);
  if (kernel == WaveKernel::kAvx2) return MapBytesAvx2(table, entries, from, count, to);
#endif
  static_cast<void>(kernel);
  static_cast<void>(entries);
  std::uint8_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, from[i]);
    to[i] = table[from[i]];
  }
  return largest;
}

}  // namespace forebay::compress
