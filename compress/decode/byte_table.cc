#include "compress/decode/byte_table.h"

#include <algorithm>

#include "compress/decode/wave_decoder.h"

namespace forebay::compress {

std::uint8_t MapBytes(const ByteTable& table, const std::uint8_t* from, std::size_t count,
                      std::uint8_t* to) {
#ifdef FOREBAY_X86_KERNELS
  if (BestWaveKernel() == WaveKernel::kAvx512) return MapBytesAvx512(table, from, count, to);
#endif
  std::uint8_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, from[i]);
    to[i] = table[from[i]];
  }
  return largest;
}

}  // namespace forebay::compress
