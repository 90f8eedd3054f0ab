// The AVX2 kernel of block-rANS blocks, for samples of up to 8 bits: a block's 4 rows of 16 bytes
// in two registers, two rows in each. A step of the 64 lanes gives the residuals, and prefix sums
// undo the spatial predictors, since all arithmetic is modulo 256.
#include <immintrin.h>

#include <bit>
#include <cstring>

#include "compress/decode/block/block_rans_lanes_avx2.h"

namespace forebay::compress {
namespace {

__m128i Load16(const std::uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// Rows 0 and 1, rows 2 and 3.
BlockRansHalves LoadRows(const std::uint8_t* from, std::size_t stride) {
  const auto two = [&](const std::uint8_t* at) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(Load16(at)), Load16(at + stride), 1);
  };
  return {two(from), two(from + 2 * stride)};
}

void StoreRows(const BlockRansHalves& rows, std::uint8_t* to, std::size_t stride) {
  const auto two = [&](std::uint8_t* at, __m256i pair) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm256_castsi256_si128(pair));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at + stride), _mm256_extracti128_si256(pair, 1));
  };
  two(to, rows.low);
  two(to + 2 * stride, rows.high);
}

// Prefix sums along each row of 16 bytes, in four shifts and additions.
__m256i SumAlong(__m256i rows) {
  rows = _mm256_add_epi8(rows, _mm256_bslli_epi128(rows, 1));
  rows = _mm256_add_epi8(rows, _mm256_bslli_epi128(rows, 2));
  rows = _mm256_add_epi8(rows, _mm256_bslli_epi128(rows, 4));
  return _mm256_add_epi8(rows, _mm256_bslli_epi128(rows, 8));
}

// Prefix sums down the 4 rows: within each register, then the lower one of the upper sums.
BlockRansHalves SumDown(const BlockRansHalves& rows) {
  const auto add_upper = [](__m256i two) {
    return _mm256_add_epi8(two, _mm256_permute2x128_si256(two, two, 0x08));
  };
  const __m256i first = add_upper(rows.low);
  return {first, _mm256_add_epi8(add_upper(rows.high),
                                 _mm256_permute2x128_si256(first, first, 0x11))};
}

// A plane has a bit for each lane: copy each byte to its 8 lanes, test one bit in each, and keep
// 2^plane where it is set.
__m256i PlaneBytes(std::uint32_t bits, std::uint32_t plane) {
  const __m256i bytes = _mm256_shuffle_epi8(
      _mm256_set1_epi32(static_cast<int>(bits)),
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i places = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, places), places);
  return _mm256_and_si256(set, _mm256_set1_epi8(static_cast<char>(1U << plane)));
}

// The residuals of a block of class `table`: tokens, then low bits, then escapes, which replace the
// residuals of their lanes. False if a section ends early.
bool ReadResiduals(const BlockRansClass& table, BlockRansLanesAvx2& lanes, BlockRansStream& stream,
                   BlockRansHalves& residuals) {
  std::uint64_t escapes = 0;
  // A step may read up to 64 bytes beyond the words, where the escapes and the states lie. The last
  // line of this function finds that out.
  residuals = lanes.Step(table, escapes);
  if (table.shift > 0) {
    // Compared once for all planes of the block, before any of them is read.
    if (stream.planes_end - stream.planes < table.shift * 8) return false;
    for (std::uint32_t plane = 0; plane < table.shift; ++plane, stream.planes += 8) {
      std::array<std::uint32_t, 2> bits;
      std::memcpy(bits.data(), stream.planes, sizeof(bits));
      residuals.low = _mm256_add_epi8(residuals.low, PlaneBytes(bits[0], plane));
      residuals.high = _mm256_add_epi8(residuals.high, PlaneBytes(bits[1], plane));
    }
  }
  if (escapes != 0) {
    if (stream.escapes_end - stream.escapes < std::popcount(escapes)) return false;
    // Escapes are rare, so they go through memory, one by one. AVX2 has no instruction that expands
    // bytes.
    alignas(32) std::array<std::uint8_t, kBlockRansLanes> bytes;
    BlockRansLanesAvx2::StoreBytes(residuals, bytes.data());
    for (; escapes != 0; escapes &= escapes - 1) {
      bytes[static_cast<std::size_t>(std::countr_zero(escapes))] =
          std::to_integer<std::uint8_t>(*stream.escapes++);
    }
    residuals = BlockRansLanesAvx2::Load(bytes.data());
  }
  return lanes.next() <= stream.bytes_end;
}

// Undoes the predictors of one block after the other. Keeps the last block, whose last column lies
// west of the next block.
class Reconstruction {
 public:
  explicit Reconstruction(const BlockRansRow<std::uint8_t>& row)
      : row_(row), mask_(_mm256_set1_epi8(static_cast<char>(row.mask))) {}

  void Block(std::uint8_t code, std::size_t x, BlockRansHalves value) {
    const bool temporal = (code & kTemporalPredictor) != 0 && row_.previous != nullptr;
    BlockRansHalves previous = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    // Kept for the next block even if this one is not temporal.
    if (row_.previous != nullptr) previous = LoadRows(row_.previous + x, row_.stride);
    const auto spatial = static_cast<SpatialPredictor>(code & 3);
    if (spatial != SpatialPredictor::kNone) UndoSpatial(spatial, temporal, x, value);
    if (temporal) {
      value.low = _mm256_add_epi8(value.low, previous.low);
      value.high = _mm256_add_epi8(value.high, previous.high);
    }
    value.low = _mm256_and_si256(value.low, mask_);
    value.high = _mm256_and_si256(value.high, mask_);
    StoreRows(value, row_.samples + x, row_.stride);
    left_ = value;
    left_previous_ = previous;
  }

 private:
  // With the gradient predictor, sample = left edge + upper edge - corner + prefix sum over both
  // axes. Both edges contain the corner sample, so it is subtracted once. Sums modulo 256 lose
  // nothing.
  void UndoSpatial(SpatialPredictor spatial, bool temporal, std::size_t x,
                   BlockRansHalves& value) const {
    const bool west = spatial != SpatialPredictor::kNorth;
    const bool north = spatial != SpatialPredictor::kWest;
    if (west) value = {SumAlong(value.low), SumAlong(value.high)};
    if (north) {
      __m128i above = Load16(row_.above + x);
      if (temporal) above = _mm_sub_epi8(above, Load16(row_.above_previous + x));
      value = SumDown(value);
      value.low = _mm256_add_epi8(value.low, _mm256_broadcastsi128_si256(above));
      value.high = _mm256_add_epi8(value.high, _mm256_broadcastsi128_si256(above));
    }
    if (!west) return;
    int corner = 0;
    if (north && x > 0) {
      corner = row_.above[x - 1] - (temporal ? row_.above_previous[x - 1] : 0);
    }
    const __m256i corners = _mm256_set1_epi8(static_cast<char>(corner));
    const auto add_edge = [&](__m256i left, __m256i before, __m256i& rows) {
      if (temporal) left = _mm256_sub_epi8(left, before);
      const __m256i edge = _mm256_shuffle_epi8(left, _mm256_set1_epi8(15));
      rows = _mm256_add_epi8(rows, _mm256_sub_epi8(edge, corners));
    };
    add_edge(left_.low, left_previous_.low, value.low);
    add_edge(left_.high, left_previous_.high, value.high);
  }

  const BlockRansRow<std::uint8_t>& row_;
  const __m256i mask_;
  BlockRansHalves left_ = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  BlockRansHalves left_previous_ = left_;
};

}  // namespace

bool DecodeBlockRansRowAvx2(const BlockRansRow<std::uint8_t>& row, BlockRansStream& stream) {
  BlockRansLanesAvx2 lanes(stream);
  Reconstruction blocks(row);
  for (std::uint32_t block = 0; block < row.blocks; ++block) {
    BlockRansHalves residuals = {_mm256_setzero_si256(), _mm256_setzero_si256()};
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
