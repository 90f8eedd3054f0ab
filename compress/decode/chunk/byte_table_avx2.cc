// The AVX2 kernel of byte_table.h: 64 bytes at a time, by shuffles of 16 table entries. Its time
// grows with the number of entries in use, which is small in most dictionaries.
#include <immintrin.h>

#include <array>

#include "compress/decode/chunk/byte_table.h"

namespace forebay::compress {

// For each sixteenth of the table, a shuffle looks up the bytes whose upper half names it. For all
// others the saturated addition sets the top bit, for which a shuffle gives zero; so the parts are
// combined by OR.
std::uint8_t MapBytesAvx2(const ByteTable& table, std::span<const std::uint8_t> from,
                          std::uint8_t* to) {
  const auto load = [](const std::uint8_t* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  };
  const __m256i elsewhere = _mm256_set1_epi8(0x70);
  __m256i largest = _mm256_setzero_si256();
  std::size_t at = 0;
  for (; from.size() - at >= 64; at += 64) {
    const __m256i low = load(&from[at]), high = load(&from[at + 32]);
    largest = _mm256_max_epu8(largest, _mm256_max_epu8(low, high));
    __m256i low_values = _mm256_setzero_si256(), high_values = _mm256_setzero_si256();
    for (std::size_t first = 0; first < table.entries; first += 16) {
      const __m256i part = _mm256_set1_epi8(static_cast<char>(first));
      const __m256i values = _mm256_broadcastsi128_si256(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(table.bytes.data() + first)));
      const auto look_up = [&](__m256i bytes) {
        return _mm256_shuffle_epi8(
            values, _mm256_adds_epu8(_mm256_xor_si256(bytes, part), elsewhere));
      };
      low_values = _mm256_or_si256(low_values, look_up(low));
      high_values = _mm256_or_si256(high_values, look_up(high));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + at), low_values);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + at + 32), high_values);
  }
  alignas(32) std::array<std::uint8_t, 32> lanes;
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes.data()), largest);
  std::uint8_t most = 0;
  for (const std::uint8_t lane : lanes) most = lane > most ? lane : most;
  // The last up to 63 bytes. Reading whole registers here would read beyond the plane.
  for (; at < from.size(); ++at) {
    most = from[at] > most ? from[at] : most;
    to[at] = table.bytes[from[at]];
  }
  return most;
}

}  // namespace forebay::compress
