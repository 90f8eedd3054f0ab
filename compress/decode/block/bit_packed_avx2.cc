// The AVX2 kernel of bit-packed blocks, for samples of up to 8 bits: a block's 4 rows of 16 bytes
// in two registers, two rows in each. Bit planes become bytes by transposing 8 x 8 matrices of
// bits, and prefix sums undo the spatial predictors. A block's predictor selects by masks and not
// by branches, because a processor could not predict those.
#include <immintrin.h>

#include "compress/decode/block/bit_packed_blocks.h"

namespace forebay::compress {
namespace {

struct Rows {
  __m256i upper, lower;  // rows 0 and 1, rows 2 and 3: one in each half
};

__m256i LoadTwo(const std::uint8_t* from, std::size_t stride) {
  const auto line = [&](std::size_t y) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + y * stride));
  };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(line(0)), line(1), 1);
}

void StoreTwo(__m256i rows, std::size_t stride, std::uint8_t* to) {
  const auto line = [&](std::size_t y) { return reinterpret_cast<__m128i*>(to + y * stride); };
  _mm_storeu_si128(line(0), _mm256_castsi256_si128(rows));
  _mm_storeu_si128(line(1), _mm256_extracti128_si256(rows, 1));
}

// All lanes or none.
__m256i Lanes(bool chosen) { return _mm256_set1_epi8(static_cast<char>(-int{chosen})); }

__m256i AddWhere(__m256i wanted, __m256i value, __m256i more) {
  return _mm256_add_epi8(value, _mm256_and_si256(more, wanted));
}

__m256i SubWhere(__m256i wanted, __m256i value, __m256i less) {
  return _mm256_sub_epi8(value, _mm256_and_si256(less, wanted));
}

// Prefix sums along each row of 16, in the lanes of `wanted`.
__m256i SumAlong(__m256i rows, __m256i wanted) {
  rows = AddWhere(wanted, rows, _mm256_bslli_epi128(rows, 1));
  rows = AddWhere(wanted, rows, _mm256_bslli_epi128(rows, 2));
  rows = AddWhere(wanted, rows, _mm256_bslli_epi128(rows, 4));
  return AddWhere(wanted, rows, _mm256_bslli_epi128(rows, 8));
}

// Prefix sums down the 4 rows, in the lanes of `wanted`.
Rows SumDown(Rows rows, __m256i wanted) {
  const __m256i over_lower = _mm256_permute2x128_si256(rows.upper, rows.lower, 0x21);
  rows.upper = AddWhere(wanted, rows.upper, _mm256_permute2x128_si256(rows.upper, rows.upper, 8));
  rows.lower = AddWhere(wanted, rows.lower, over_lower);
  rows.lower = AddWhere(wanted, rows.lower, rows.upper);
  return rows;
}

// Transposes four 8 x 8 matrices of bits, a row in each byte, by three exchanges of ever larger
// blocks (Hacker's Delight, 7-3).
__m256i TransposeBits(__m256i matrices) {
  const auto swap = [&](int distance, long long mask) {
    const __m256i differing = _mm256_and_si256(
        _mm256_xor_si256(matrices, _mm256_srli_epi64(matrices, distance)),
        _mm256_set1_epi64x(mask));
    matrices = _mm256_xor_si256(
        matrices, _mm256_xor_si256(differing, _mm256_slli_epi64(differing, distance)));
  };
  swap(7, 0x00AA'00AA'00AA'00AA);
  swap(14, 0x0000'CCCC'0000'CCCC);
  swap(28, 0x0000'0000'F0F0'F0F0);
  return matrices;
}

// Bit k of byte i is bit i of the kth of `width` words.
Rows FromPlanes(const std::byte* planes, std::uint32_t width) {
  const auto words = [&](std::uint32_t first) {
    const __m256i there = _mm256_cmpgt_epi64(_mm256_set1_epi64x(width),
                                             _mm256_add_epi64(_mm256_set1_epi64x(first),
                                                              _mm256_setr_epi64x(0, 1, 2, 3)));
    const auto* from = reinterpret_cast<const long long*>(planes) + first;
    return _mm256_maskload_epi64(from, there);
  };
  // Brings byte j of all eight words together, in three rounds of interleaving: two words, four,
  // eight. That is the matrix of samples 8 j to 8 j + 7.
  const __m256i pairs = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
  const __m256i first = _mm256_shuffle_epi8(words(0), pairs);
  const __m256i last = _mm256_shuffle_epi8(words(4), pairs);
  const __m256i even = _mm256_permute2x128_si256(first, last, 0x20);
  const __m256i odd = _mm256_permute2x128_si256(first, last, 0x31);
  const __m256i halves_together = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const auto matrices = [&](__m256i fours) {
    return TransposeBits(_mm256_permutevar8x32_epi32(fours, halves_together));
  };
  return {.upper = matrices(_mm256_unpacklo_epi16(even, odd)),
          .lower = matrices(_mm256_unpackhi_epi16(even, odd))};
}

__m256i BroadcastRow(const std::uint8_t* from) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

}  // namespace

const std::byte* DecodeBitPackedRowAvx2(const BitPackedRow<std::uint8_t>& row,
                                        const std::byte* planes) {
  const __m256i last_column = _mm256_set1_epi8(15);
  const __m256i mask = _mm256_set1_epi8(static_cast<char>(row.mask));
  const bool inter = row.previous != nullptr;
  // The last column of the previous block, copied to every column: the western neighbours of the
  // block's left edge.
  Rows west_samples{_mm256_setzero_si256(), _mm256_setzero_si256()};
  Rows west_previous = west_samples;
  for (std::uint32_t block = 0; block < row.blocks; ++block) {
    const std::size_t x = std::size_t{block} * kBlockColumns;
    const std::uint32_t code = row.codes[block];
    const std::uint32_t width = code >> 3;
    const bool is_temporal = inter && (code & kTemporalPredictor) != 0;
    const __m256i temporal = Lanes(is_temporal);
    const __m256i west = Lanes((code & 1) != 0), north = Lanes((code & 2) != 0);
    // The widths have been added up and compared with the section before, so these loads stay in
    // it.
    Rows value = FromPlanes(planes, width);
    planes += width * sizeof(std::uint64_t);
    const __m256i bias = _mm256_set1_epi8(static_cast<char>((1U << width) >> 1));
    value.upper = SumAlong(_mm256_sub_epi8(value.upper, bias), west);
    value.lower = SumAlong(_mm256_sub_epi8(value.lower, bias), west);
    value = SumDown(value, north);
    // With the gradient predictor, both edges contain the corner sample, so it is subtracted once.
    // Sums modulo 256 lose nothing.
    std::uint32_t corner = x > 0 ? row.above[x - 1] : 0;
    __m256i edge = _mm256_and_si256(BroadcastRow(row.above + x), north);
    Rows previous{_mm256_setzero_si256(), _mm256_setzero_si256()};
    if (inter) {
      // Loaded even if this block is not temporal: the next block may be, and needs this block's
      // last column of the previous frame.
      const std::uint8_t* const from = row.previous + x;
      previous = {LoadTwo(from, row.stride), LoadTwo(from + 2 * row.stride, row.stride)};
      edge = SubWhere(_mm256_and_si256(temporal, north), edge,
                      BroadcastRow(row.above_previous + x));
      const std::uint32_t corner_previous = x > 0 ? row.above_previous[x - 1] : 0;
      corner -= is_temporal ? corner_previous : 0;
    }
    edge = SubWhere(_mm256_and_si256(west, north), edge,
                    _mm256_set1_epi8(static_cast<char>(corner)));
    const __m256i both = _mm256_and_si256(temporal, west);
    const auto finish = [&](__m256i rows, __m256i before, __m256i before_west, __m256i here_west) {
      rows = AddWhere(temporal, _mm256_add_epi8(rows, edge), before);
      rows = SubWhere(both, rows, before_west);
      // West comes last, because it depends on the previous block.
      return _mm256_and_si256(AddWhere(west, rows, here_west), mask);
    };
    value.upper = finish(value.upper, previous.upper, west_previous.upper, west_samples.upper);
    value.lower = finish(value.lower, previous.lower, west_previous.lower, west_samples.lower);
    StoreTwo(value.upper, row.stride, row.samples + x);
    StoreTwo(value.lower, row.stride, row.samples + x + 2 * row.stride);
    west_samples = {_mm256_shuffle_epi8(value.upper, last_column),
                    _mm256_shuffle_epi8(value.lower, last_column)};
    west_previous = {_mm256_shuffle_epi8(previous.upper, last_column),
                     _mm256_shuffle_epi8(previous.lower, last_column)};
  }
  return planes;
}

}  // namespace forebay::compress
