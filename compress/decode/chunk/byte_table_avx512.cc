// The AVX-512 kernel of byte_table.h (VBMI): a permutation of two registers looks up one of 128
// entries, and the top bit of a byte chooses between the lower and the upper half of the table.
#include <immintrin.h>

#include <array>

#include "compress/decode/chunk/byte_table.h"

namespace forebay::compress {

std::uint8_t MapBytesAvx512(const ByteTable& table, std::span<const std::uint8_t> from,
                            std::uint8_t* to) {
  std::array<__m512i, 4> quarters;
  for (std::size_t i = 0; i < quarters.size(); ++i) {
    quarters[i] = _mm512_loadu_si512(table.bytes.data() + 64 * i);
  }
  __m512i largest = _mm512_setzero_si512();
  for (std::size_t at = 0; at < from.size(); at += 64) {
    const std::size_t left = from.size() - at;
    // Masked lanes are neither read nor written, so the end needs no loop of its own. Zeros stand
    // for them in `largest`.
    const __mmask64 wanted = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    const __m512i bytes = _mm512_maskz_loadu_epi8(wanted, from.data() + at);
    largest = _mm512_max_epu8(largest, bytes);
    const __m512i lower = _mm512_permutex2var_epi8(quarters[0], bytes, quarters[1]);
    const __m512i upper = _mm512_permutex2var_epi8(quarters[2], bytes, quarters[3]);
    _mm512_mask_storeu_epi8(
        to + at, wanted, _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), lower, upper));
  }
  alignas(64) std::array<std::uint8_t, 64> lanes;
  _mm512_store_si512(lanes.data(), largest);
  std::uint8_t most = 0;
  for (const std::uint8_t lane : lanes) most = lane > most ? lane : most;
  return most;
}

}  // namespace forebay::compress
