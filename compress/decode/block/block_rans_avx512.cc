// The AVX-512 kernel of block-rANS blocks, for samples of up to 8 bits: a block's 4 rows of 16
// bytes in one register. A step of the 64 lanes gives the residuals, and prefix sums undo the
// spatial predictors, since all arithmetic is modulo 256.
#include <immintrin.h>

#include <cstring>

#include "compress/decode/block/block_rans_lanes_avx512.h"

namespace forebay::compress {
namespace {

__m128i Load16(const std::uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

__m512i LoadRows(const std::uint8_t* from, std::size_t stride) {
  __m512i rows = _mm512_castsi128_si512(Load16(from));
  rows = _mm512_inserti32x4(rows, Load16(from + stride), 1);
  rows = _mm512_inserti32x4(rows, Load16(from + 2 * stride), 2);
  return _mm512_inserti32x4(rows, Load16(from + 3 * stride), 3);
}

void StoreRows(__m512i rows, std::uint8_t* to, std::size_t stride) {
  const auto line = [&](std::size_t y) { return reinterpret_cast<__m128i*>(to + y * stride); };
  _mm_storeu_si128(line(0), _mm512_castsi512_si128(rows));
  _mm_storeu_si128(line(1), _mm512_extracti32x4_epi32(rows, 1));
  _mm_storeu_si128(line(2), _mm512_extracti32x4_epi32(rows, 2));
  _mm_storeu_si128(line(3), _mm512_extracti32x4_epi32(rows, 3));
}

// Prefix sums along each row of 16 bytes, in four shifts and additions.
__m512i SumAlong(__m512i rows) {
  rows = _mm512_add_epi8(rows, _mm512_bslli_epi128(rows, 1));
  rows = _mm512_add_epi8(rows, _mm512_bslli_epi128(rows, 2));
  rows = _mm512_add_epi8(rows, _mm512_bslli_epi128(rows, 4));
  return _mm512_add_epi8(rows, _mm512_bslli_epi128(rows, 8));
}

// Prefix sums down the 4 rows: shifts by one row and by two.
__m512i SumDown(__m512i rows) {
  const __m512i zero = _mm512_setzero_si512();
  rows = _mm512_add_epi8(rows, _mm512_alignr_epi64(rows, zero, 6));
  return _mm512_add_epi8(rows, _mm512_alignr_epi64(rows, zero, 4));
}

// The residuals of a block of class `table`: tokens, then low bits, then escapes, which replace the
// residuals of their lanes. False if a section ends early.
bool ReadResiduals(const BlockRansClass& table, BlockRansLanes& lanes, BlockRansStream& stream,
                   __m512i& residuals) {
  __mmask64 escapes = 0;
  // A step may read up to 64 bytes beyond the words, where the escapes and the states lie. The last
  // line of this function finds that out.
  residuals = lanes.Step(table, escapes);
  if (table.shift > 0) {
    // Compared once for all planes of the block, before any of them is read.
    if (stream.planes_end - stream.planes < table.shift * 8) return false;
    for (std::uint32_t plane = 0; plane < table.shift; ++plane, stream.planes += 8) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, stream.planes, sizeof(bits));
      residuals = _mm512_mask_add_epi8(residuals, bits, residuals,
                                       _mm512_set1_epi8(static_cast<char>(1U << plane)));
    }
  }
  if (escapes != 0) {
    // The load may read beyond the section, where the states lie (BlockRansStream).
    const std::ptrdiff_t count = _mm_popcnt_u64(escapes);
    if (stream.escapes_end - stream.escapes < count) return false;
    residuals =
        _mm512_mask_expand_epi8(residuals, escapes, _mm512_loadu_si512(stream.escapes));
    stream.escapes += count;
  }
  return lanes.next() <= stream.bytes_end;
}

// Undoes the predictors of one block after the other. Keeps the last block, whose last column lies
// west of the next block.
class Reconstruction {
 public:
  explicit Reconstruction(const BlockRansRow<std::uint8_t>& row)
      : row_(row), mask_(_mm512_set1_epi8(static_cast<char>(row.mask))) {}

  void Block(std::uint8_t code, std::size_t x, __m512i value) {
    const bool temporal = (code & kTemporalPredictor) != 0 && row_.previous != nullptr;
    const __m512i previous = row_.previous != nullptr ? LoadRows(row_.previous + x, row_.stride)
                                                      : _mm512_setzero_si512();
    const auto spatial = static_cast<SpatialPredictor>(code & 3);
    if (spatial != SpatialPredictor::kNone) value = UndoSpatial(spatial, temporal, x, value);
    if (temporal) value = _mm512_add_epi8(value, previous);
    value = _mm512_and_si512(value, mask_);
    StoreRows(value, row_.samples + x, row_.stride);
    left_ = value;
    left_previous_ = previous;
  }

 private:
  // With the gradient predictor, sample = left edge + upper edge - corner + prefix sum over both
  // axes. Both edges contain the corner sample, so it is subtracted once. Sums modulo 256 lose
  // nothing.
  __m512i UndoSpatial(SpatialPredictor spatial, bool temporal, std::size_t x, __m512i value) const {
    const bool west = spatial != SpatialPredictor::kNorth;
    const bool north = spatial != SpatialPredictor::kWest;
    if (west) value = SumAlong(value);
    if (north) {
      __m128i above = Load16(row_.above + x);
      if (temporal) above = _mm_sub_epi8(above, Load16(row_.above_previous + x));
      value = _mm512_add_epi8(SumDown(value), _mm512_broadcast_i32x4(above));
    }
    if (!west) return value;
    const __m512i left = temporal ? _mm512_sub_epi8(left_, left_previous_) : left_;
    value = _mm512_add_epi8(value, _mm512_shuffle_epi8(left, _mm512_set1_epi8(15)));
    if (!north || x == 0) return value;
    const int corner = row_.above[x - 1] - (temporal ? row_.above_previous[x - 1] : 0);
    return _mm512_sub_epi8(value, _mm512_set1_epi8(static_cast<char>(corner)));
  }

  const BlockRansRow<std::uint8_t>& row_;
  const __m512i mask_;
  __m512i left_ = _mm512_setzero_si512();
  __m512i left_previous_ = _mm512_setzero_si512();
};

}  // namespace

bool DecodeBlockRansRowAvx512(const BlockRansRow<std::uint8_t>& row, BlockRansStream& stream) {
  BlockRansLanes lanes(stream);
  Reconstruction blocks(row);
  for (std::uint32_t block = 0; block < row.blocks; ++block) {
    __m512i residuals = _mm512_setzero_si512();
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
