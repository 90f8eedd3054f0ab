// The AVX-512 kernel of bit-packed blocks, for samples of up to 8 bits: a block's 4 rows of 16
// bytes in one register. One matrix product over GF(2) turns bit planes into bytes, and prefix sums
// undo the spatial predictors. A block's predictor selects by masks and not by branches, because a
// processor could not predict those.
#include <immintrin.h>

#include "compress/decode/block/bit_packed_blocks.h"

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

void StoreRows(__m512i rows, std::size_t stride, std::uint8_t* to) {
  const auto line = [&](std::size_t y) { return reinterpret_cast<__m128i*>(to + y * stride); };
  _mm_storeu_si128(line(0), _mm512_castsi512_si128(rows));
  _mm_storeu_si128(line(1), _mm512_extracti32x4_epi32(rows, 1));
  _mm_storeu_si128(line(2), _mm512_extracti32x4_epi32(rows, 2));
  _mm_storeu_si128(line(3), _mm512_extracti32x4_epi32(rows, 3));
}

// All lanes or none.
__mmask64 Lanes(bool chosen) { return __mmask64{0} - static_cast<__mmask64>(chosen); }

// Prefix sums along each row of 16, in the lanes of `wanted`.
__m512i SumAlong(__m512i rows, __mmask64 wanted) {
  rows = _mm512_mask_add_epi8(rows, wanted, rows, _mm512_bslli_epi128(rows, 1));
  rows = _mm512_mask_add_epi8(rows, wanted, rows, _mm512_bslli_epi128(rows, 2));
  rows = _mm512_mask_add_epi8(rows, wanted, rows, _mm512_bslli_epi128(rows, 4));
  return _mm512_mask_add_epi8(rows, wanted, rows, _mm512_bslli_epi128(rows, 8));
}

// Prefix sums down the 4 rows, in the lanes of `wanted`.
__m512i SumDown(__m512i rows, __mmask64 wanted) {
  const __m512i zero = _mm512_setzero_si512();
  rows = _mm512_mask_add_epi8(rows, wanted, rows, _mm512_alignr_epi64(rows, zero, 6));
  return _mm512_mask_add_epi8(rows, wanted, rows, _mm512_alignr_epi64(rows, zero, 4));
}

// Bit k of byte i is bit i of the kth of `width` words.
__m512i FromPlanes(const std::byte* planes, std::uint32_t width) {
  // Moves byte j of word k to byte 7 - k of word j, the order in which the instruction expects the
  // rows of a matrix.
  const __m512i to_matrices = _mm512_set_epi64(
      0x070F'171F'272F'373F, 0x060E'161E'262E'363E, 0x050D'151D'252D'353D, 0x040C'141C'242C'343C,
      0x030B'131B'232B'333B, 0x020A'121A'222A'323A, 0x0109'1119'2129'3139, 0x0008'1018'2028'3038);
  const __m512i words =
      _mm512_maskz_loadu_epi64(static_cast<__mmask8>((1U << width) - 1), planes);
  // A matrix times the unit vectors gives its columns: the transposed matrix.
  const __m512i units = _mm512_set1_epi64(static_cast<long long>(0x8040'2010'0804'0201));
  return _mm512_gf2p8affine_epi64_epi8(units, _mm512_permutexvar_epi8(to_matrices, words), 0);
}

__m512i BroadcastRow(const std::uint8_t* from, __mmask64 wanted) {
  return _mm512_maskz_mov_epi8(
      wanted,
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

}  // namespace

const std::byte* DecodeBitPackedRowAvx512(const BitPackedRow<std::uint8_t>& row,
                                          const std::byte* planes) {
  const __m512i last_column = _mm512_set1_epi8(15);
  const __m512i mask = _mm512_set1_epi8(static_cast<char>(row.mask));
  const bool inter = row.previous != nullptr;
  // The last column of the previous block, copied to every column: the western neighbours of the
  // block's left edge.
  __m512i west_samples = _mm512_setzero_si512();
  __m512i west_previous = _mm512_setzero_si512();
  for (std::uint32_t block = 0; block < row.blocks; ++block) {
    const std::size_t x = std::size_t{block} * kBlockColumns;
    const std::uint32_t code = row.codes[block];
    const std::uint32_t width = code >> 3;
    const __mmask64 temporal = Lanes(inter && (code & kTemporalPredictor) != 0);
    const __mmask64 west = Lanes((code & 1) != 0), north = Lanes((code & 2) != 0);
    __m512i value = FromPlanes(planes, width);
    planes += width * sizeof(std::uint64_t);
    value = _mm512_sub_epi8(value, _mm512_set1_epi8(static_cast<char>((1U << width) >> 1)));
    value = SumDown(SumAlong(value, west), north);
    value = _mm512_add_epi8(value, BroadcastRow(row.above + x, north));
    // With the gradient predictor, both edges contain the corner sample, so it is subtracted once.
    // Sums modulo 256 lose nothing.
    std::uint32_t corner = x > 0 ? row.above[x - 1] : 0;
    __m512i previous = _mm512_setzero_si512();
    if (inter) {
      previous = LoadRows(row.previous + x, row.stride);
      value = _mm512_mask_add_epi8(value, temporal, value, previous);
      value = _mm512_sub_epi8(value, BroadcastRow(row.above_previous + x, temporal & north));
      value = _mm512_mask_sub_epi8(value, temporal & west, value, west_previous);
      const std::uint32_t corner_previous = x > 0 ? row.above_previous[x - 1] : 0;
      corner -= temporal != 0 ? corner_previous : 0;
    }
    value = _mm512_mask_sub_epi8(value, west & north, value,
                                 _mm512_set1_epi8(static_cast<char>(corner)));
    // West comes last, because it depends on the previous block.
    value = _mm512_mask_add_epi8(value, west, value, west_samples);
    value = _mm512_and_si512(value, mask);
    StoreRows(value, row.stride, row.samples + x);
    west_samples = _mm512_shuffle_epi8(value, last_column);
    west_previous = _mm512_shuffle_epi8(previous, last_column);
  }
  return planes;
}

}  // namespace forebay::compress
