// A block's 4 rows of 16 bytes in one register; prefix sums undo spatial predictors.
#include <immintrin.h>

#include <cstring>

#include "compress/decode/packed_blocks.h"

namespace forebay::compress {
namespace {

__m512i LoadRows(const std::uint8_t* from, std::size_t stride) {
  const auto line = [&](std::size_t y) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + y * stride));
  };
  __m512i rows = _mm512_castsi128_si512(line(0));
  rows = _mm512_inserti32x4(rows, line(1), 1);
  rows = _mm512_inserti32x4(rows, line(2), 2);
  return _mm512_inserti32x4(rows, line(3), 3);
}

// Running sums along each row of 16.
__m512i SumAlong(__m512i rows) {
  rows = _mm512_add_epi8(rows, _mm512_bslli_epi128(rows, 1));
  rows = _mm512_add_epi8(rows, _mm512_bslli_epi128(rows, 2));
  rows = _mm512_add_epi8(rows, _mm512_bslli_epi128(rows, 4));
  return _mm512_add_epi8(rows, _mm512_bslli_epi128(rows, 8));
}

// Running sums down the 4 rows.
__m512i SumDown(__m512i rows) {
  const __m512i zero = _mm512_setzero_si512();
  rows = _mm512_add_epi8(rows, _mm512_alignr_epi64(rows, zero, 6));
  return _mm512_add_epi8(rows, _mm512_alignr_epi64(rows, zero, 4));
}

}  // namespace

const std::byte* DecodePackedRowAvx512(const PackedRow<std::uint8_t>& row,
                                       const std::byte* planes) {
  const __m512i last_column = _mm512_set1_epi8(15);
  const __m512i mask = _mm512_set1_epi8(static_cast<char>(row.mask));
  // The last column of the block before, in every column: what west is at a block's left edge.
  __m512i west_samples = _mm512_setzero_si512();
  __m512i west_previous = _mm512_setzero_si512();
  for (std::uint32_t block = 0; block < row.blocks; ++block) {
    const std::size_t x = std::size_t{block} * kPackedColumns;
    const std::uint32_t width = row.codes[block] >> 3;
    const bool temporal = (row.codes[block] & kPackedTemporal) != 0 && row.previous != nullptr;
    __m512i value = _mm512_setzero_si512();
    for (std::uint32_t plane = 0; plane < width; ++plane, planes += sizeof(std::uint64_t)) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, planes, sizeof(bits));
      value = _mm512_mask_add_epi8(value, bits, value,
                                   _mm512_set1_epi8(static_cast<char>(1U << plane)));
    }
    if (width > 0) {
      value = _mm512_sub_epi8(value, _mm512_set1_epi8(static_cast<char>(1U << (width - 1))));
    }
    const __m512i previous = row.previous != nullptr ? LoadRows(row.previous + x, row.stride)
                                                     : _mm512_setzero_si512();
    const auto spatial = static_cast<PackedSpatial>(row.codes[block] & 3);
    if (spatial != PackedSpatial::kNone) {
      __m512i west = west_samples;
      __m128i above = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row.above + x));
      // Sums modulo 256 lose nothing: the corner is what both edges hold twice.
      std::uint8_t corner = x > 0 ? row.above[x - 1] : 0;
      if (temporal) {
        west = _mm512_sub_epi8(west, west_previous);
        above = _mm_sub_epi8(above, _mm_loadu_si128(reinterpret_cast<const __m128i*>(
                                        row.above_previous + x)));
        corner = static_cast<std::uint8_t>(corner - (x > 0 ? row.above_previous[x - 1] : 0));
      }
      if (spatial != PackedSpatial::kNorth) value = SumAlong(value);
      if (spatial != PackedSpatial::kWest) {
        value = _mm512_add_epi8(SumDown(value), _mm512_broadcast_i32x4(above));
      }
      if (spatial != PackedSpatial::kNorth) value = _mm512_add_epi8(value, west);
      if (spatial == PackedSpatial::kGradient) {
        value = _mm512_sub_epi8(value, _mm512_set1_epi8(static_cast<char>(corner)));
      }
    }
    if (temporal) value = _mm512_add_epi8(value, previous);
    value = _mm512_and_si512(value, mask);
    std::uint8_t* const to = row.samples + x;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_castsi512_si128(value));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + row.stride),
                     _mm512_extracti32x4_epi32(value, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * row.stride),
                     _mm512_extracti32x4_epi32(value, 2));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 3 * row.stride),
                     _mm512_extracti32x4_epi32(value, 3));
    west_samples = _mm512_shuffle_epi8(value, last_column);
    west_previous = _mm512_shuffle_epi8(previous, last_column);
  }
  return planes;
}

}  // namespace forebay::compress
