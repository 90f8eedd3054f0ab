// The AVX-512 kernel of block-rANS blocks, for samples of 9 to 16 bits: a block's 4 rows of 32
// bytes in two registers. Otherwise as block_rans_avx512.cc, modulo 2^16.
#include <immintrin.h>

#include <array>
#include <cstring>

#include "compress/decode/block/block_rans_lanes_avx512.h"

namespace forebay::compress {
namespace {

// Rows 0 and 1, rows 2 and 3.
using Rows = std::array<__m512i, 2>;

__m256i Load32(const std::uint16_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

Rows LoadRows(const std::uint16_t* from, std::size_t stride) {
  const auto two = [&](const std::uint16_t* at) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(Load32(at)), Load32(at + stride), 1);
  };
  return {two(from), two(from + 2 * stride)};
}

void StoreRows(const Rows& rows, std::uint16_t* to, std::size_t stride) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto line = [&](std::size_t y) {
      return reinterpret_cast<__m256i*>(to + (2 * i + y) * stride);
    };
    _mm256_storeu_si256(line(0), _mm512_castsi512_si256(rows[i]));
    _mm256_storeu_si256(line(1), _mm512_extracti64x4_epi64(rows[i], 1));
  }
}

// Running sums along each row of 16.
__m512i SumAlong(__m512i rows) {
  rows = _mm512_add_epi16(rows, _mm512_bslli_epi128(rows, 2));
  rows = _mm512_add_epi16(rows, _mm512_bslli_epi128(rows, 4));
  rows = _mm512_add_epi16(rows, _mm512_bslli_epi128(rows, 8));
  // Shifts stay within 128 bits, which is half a row. So the sum of the first half, its last word,
  // is broadcast, moved to the other half of its row (parts 0 and 2 go to parts 1 and 3) and added
  // there.
  const __m512i half = _mm512_shuffle_epi8(rows, _mm512_set1_epi16(0x0F0E));
  return _mm512_add_epi16(rows, _mm512_maskz_shuffle_i64x2(0b1100'1100, half, half, 0b10100000));
}

// Running sums down the 4 rows: first within each register, the upper row added to the lower one;
// then row 1, which is the sum of the first two, is added to both rows of the second register.
Rows SumDown(const Rows& rows) {
  const auto add_upper = [](__m512i two) {
    return _mm512_add_epi16(two, _mm512_maskz_shuffle_i64x2(0b1111'0000, two, two, 0b01000100));
  };
  const __m512i first = add_upper(rows[0]);
  const __m512i second = _mm512_shuffle_i64x2(first, first, 0b11101110);
  return {first, _mm512_add_epi16(add_upper(rows[1]), second)};
}

// The residuals of a block of class `table`: tokens shifted, then low bits, then escapes, which
// replace the residuals of their lanes. False if a section ends early.
bool ReadResiduals(const BlockRansClass& table, BlockRansLanes& lanes, BlockRansStream& stream,
                   Rows& residuals) {
  __mmask64 escapes = 0;
  // A step may read up to 64 bytes beyond the words, where the escapes and the states lie. The last
  // line of this function finds that out.
  const __m512i tokens = lanes.Step(table, escapes);
  const __m128i shift = _mm_cvtsi32_si128(table.shift);
  residuals[0] = _mm512_sll_epi16(
      _mm512_cvtepi8_epi16(_mm512_castsi512_si256(tokens)), shift);
  residuals[1] = _mm512_sll_epi16(
      _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(tokens, 1)), shift);
  if (table.shift > 0) {
    // Compared once for all planes of the block, before any of them is read.
    if (stream.planes_end - stream.planes < table.shift * 8) return false;
    for (std::uint32_t plane = 0; plane < table.shift; ++plane, stream.planes += 8) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, stream.planes, sizeof(bits));
      const __m512i one = _mm512_set1_epi16(static_cast<short>(1U << plane));
      for (__m512i& rows : residuals) {
        rows = _mm512_mask_add_epi16(rows, static_cast<__mmask32>(bits), rows, one);
        bits >>= 32;
      }
    }
  }
  if (escapes != 0) {
    const std::ptrdiff_t count = _mm_popcnt_u64(escapes);
    // A whole register is loaded below. What it reads beyond the escapes are the states, with which
    // every body ends.
    if (stream.escapes_end - stream.escapes < 2 * count) return false;
    for (__m512i& rows : residuals) {
      const auto here = static_cast<__mmask32>(escapes);
      rows = _mm512_mask_expand_epi16(rows, here, _mm512_loadu_si512(stream.escapes));
      stream.escapes += 2 * _mm_popcnt_u32(here);
      escapes >>= 32;
    }
  }
  return lanes.next() <= stream.bytes_end;
}

__m512i Both(__m256i row) { return _mm512_broadcast_i64x4(row); }

// Undoes the predictors of one block after the other. Keeps the last block, whose last column lies
// west of the next block.
class Reconstruction {
 public:
  explicit Reconstruction(const BlockRansRow<std::uint16_t>& row)
      : row_(row), mask_(_mm512_set1_epi16(static_cast<short>(row.mask))) {}

  void Block(std::uint8_t code, std::size_t x, Rows value) {
    const bool temporal = (code & kTemporalPredictor) != 0 && row_.previous != nullptr;
    Rows previous = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    if (row_.previous != nullptr) previous = LoadRows(row_.previous + x, row_.stride);
    const auto spatial = static_cast<SpatialPredictor>(code & 3);
    if (spatial != SpatialPredictor::kNone) UndoSpatial(spatial, temporal, x, value);
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (temporal) value[i] = _mm512_add_epi16(value[i], previous[i]);
      value[i] = _mm512_and_si512(value[i], mask_);
    }
    StoreRows(value, row_.samples + x, row_.stride);
    left_ = value;
    left_previous_ = previous;
  }

 private:
  // Left edge + upper edge - corner + prefix sums, as in the kernels of 8 bits. Sums modulo 2^16
  // lose nothing.
  void UndoSpatial(SpatialPredictor spatial, bool temporal, std::size_t x, Rows& value) const {
    const bool west = spatial != SpatialPredictor::kNorth;
    const bool north = spatial != SpatialPredictor::kWest;
    if (west) value = {SumAlong(value[0]), SumAlong(value[1])};
    if (north) {
      __m256i above = Load32(row_.above + x);
      if (temporal) above = _mm256_sub_epi16(above, Load32(row_.above_previous + x));
      value = SumDown(value);
      for (__m512i& rows : value) rows = _mm512_add_epi16(rows, Both(above));
    }
    if (!west) return;
    int corner = 0;
    if (north && x > 0) {
      corner = row_.above[x - 1] - (temporal ? row_.above_previous[x - 1] : 0);
    }
    const __m512i corners = _mm512_set1_epi16(static_cast<short>(corner));
    const __m512i last_columns = _mm512_inserti64x4(_mm512_set1_epi16(15), _mm256_set1_epi16(31),
                                                    1);
    for (std::size_t i = 0; i < value.size(); ++i) {
      const __m512i left = temporal ? _mm512_sub_epi16(left_[i], left_previous_[i]) : left_[i];
      const __m512i edge = _mm512_permutexvar_epi16(last_columns, left);
      value[i] = _mm512_add_epi16(value[i], _mm512_sub_epi16(edge, corners));
    }
  }

  const BlockRansRow<std::uint16_t>& row_;
  const __m512i mask_;
  Rows left_ = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  Rows left_previous_ = left_;
};

}  // namespace

bool DecodeBlockRansRowWideAvx512(const BlockRansRow<std::uint16_t>& row, BlockRansStream& stream) {
  BlockRansLanes lanes(stream);
  Reconstruction blocks(row);
  for (std::uint32_t block = 0; block < row.blocks; ++block) {
    Rows residuals = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    const std::uint8_t code = row.codes[block];
    if (const std::uint32_t chosen = code >> 3; chosen > 0) {
      if (!ReadResiduals(row.classes[chosen - 1], lanes, stream, residuals)) return false;
    }
    blocks.Block(code, std::size_t{block} * kBlockColumns, residuals);
  }
  lanes.Store(stream);
  return true;
}

}  // namespace forebay::compress
