// The AVX2 kernel of block-rANS blocks, for samples of 9 to 16 bits: each of a block's 4 rows in
// one register. Otherwise as block_rans_avx2.cc, modulo 2^16.
#include <immintrin.h>

#include <array>
#include <bit>
#include <cstring>

#include "compress/decode/block/block_rans_lanes_avx2.h"

namespace forebay::compress {
namespace {

using Rows = std::array<__m256i, kBlockRows>;

__m256i Load32(const std::uint16_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

Rows Zeros() {
  Rows rows;
  rows.fill(_mm256_setzero_si256());
  return rows;
}

// Running sums along a row of 16.
__m256i SumAlong(__m256i row) {
  row = _mm256_add_epi16(row, _mm256_bslli_epi128(row, 2));
  row = _mm256_add_epi16(row, _mm256_bslli_epi128(row, 4));
  row = _mm256_add_epi16(row, _mm256_bslli_epi128(row, 8));
  // The first eight's sum is added to the other eight.
  const __m256i half = _mm256_shuffle_epi8(row, _mm256_set1_epi16(0x0F0E));
  return _mm256_add_epi16(row, _mm256_permute2x128_si256(half, half, 0x08));
}

// A row's last sample, everywhere.
__m256i LastColumn(__m256i row) {
  const __m256i last = _mm256_shuffle_epi8(row, _mm256_set1_epi16(0x0F0E));
  // The last sample of each half was copied through its half; the upper half's goes to both.
  return _mm256_permute2x128_si256(last, last, 0x11);
}

// Adds 2^plane to the samples whose bit is set: 16 bits of the word for each row.
void AddPlane(std::uint64_t bits, std::uint32_t plane, Rows& residuals) {
  const __m256i places = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048,
                                           4096, 8192, 16384, -32768);
  const __m256i one = _mm256_set1_epi16(static_cast<short>(1U << plane));
  for (__m256i& row : residuals) {
    const __m256i here = _mm256_set1_epi16(static_cast<short>(bits & 0xFFFF));
    const __m256i set = _mm256_cmpeq_epi16(_mm256_and_si256(here, places), places);
    row = _mm256_add_epi16(row, _mm256_and_si256(set, one));
    bits >>= 16;
  }
}

// Escapes are rare: they go through memory, one by one.
void ReplaceEscapes(std::uint64_t escapes, BlockRansStream& stream, Rows& residuals) {
  alignas(32) std::array<std::uint16_t, kBlockRansLanes> words;
  std::memcpy(words.data(), residuals.data(), sizeof(words));
  for (; escapes != 0; escapes &= escapes - 1) {
    std::memcpy(&words[static_cast<std::size_t>(std::countr_zero(escapes))], stream.escapes,
                sizeof(std::uint16_t));
    stream.escapes += sizeof(std::uint16_t);
  }
  std::memcpy(residuals.data(), words.data(), sizeof(words));
}

// The residuals of a block of class `table`: tokens shifted, then low bits, then escapes, which
// replace the residuals of their lanes. False if a section ends early.
bool ReadResiduals(const BlockRansClass& table, BlockRansLanesAvx2& lanes, BlockRansStream& stream,
                   Rows& residuals) {
  std::uint64_t escapes = 0;
  // A step may read up to 64 bytes beyond the words, where the escapes and the states lie. The last
  // line of this function finds that out.
  const BlockRansHalves tokens = lanes.Step(table, escapes);
  const __m128i shift = _mm_cvtsi32_si128(table.shift);
  const auto widen = [&](__m128i row) {
    return _mm256_sll_epi16(_mm256_cvtepi8_epi16(row), shift);
  };
  residuals = {widen(_mm256_castsi256_si128(tokens.low)),
               widen(_mm256_extracti128_si256(tokens.low, 1)),
               widen(_mm256_castsi256_si128(tokens.high)),
               widen(_mm256_extracti128_si256(tokens.high, 1))};
  if (table.shift > 0) {
    // Compared once for all planes of the block, before any of them is read.
    if (stream.planes_end - stream.planes < table.shift * 8) return false;
    for (std::uint32_t plane = 0; plane < table.shift; ++plane, stream.planes += 8) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, stream.planes, sizeof(bits));
      AddPlane(bits, plane, residuals);
    }
  }
  if (escapes != 0) {
    // An escape has two bytes here.
    if (stream.escapes_end - stream.escapes < 2 * std::popcount(escapes)) return false;
    ReplaceEscapes(escapes, stream, residuals);
  }
  return lanes.next() <= stream.bytes_end;
}

// Undoes the predictors of one block after the other. Keeps the last block, whose last column lies
// west of the next block.
class Reconstruction {
 public:
  explicit Reconstruction(const BlockRansRow<std::uint16_t>& row)
      : row_(row), mask_(_mm256_set1_epi16(static_cast<short>(row.mask))) {}

  void Block(std::uint8_t code, std::size_t x, Rows value) {
    const bool temporal = (code & kTemporalPredictor) != 0 && row_.previous != nullptr;
    Rows previous = Zeros();
    for (std::size_t y = 0; row_.previous != nullptr && y < previous.size(); ++y) {
      previous[y] = Load32(row_.previous + y * row_.stride + x);
    }
    const auto spatial = static_cast<SpatialPredictor>(code & 3);
    if (spatial != SpatialPredictor::kNone) UndoSpatial(spatial, temporal, x, value);
    for (std::size_t y = 0; y < value.size(); ++y) {
      if (temporal) value[y] = _mm256_add_epi16(value[y], previous[y]);
      value[y] = _mm256_and_si256(value[y], mask_);
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(row_.samples + y * row_.stride + x), value[y]);
    }
    left_ = value;
    left_previous_ = previous;
  }

 private:
  // Left edge + upper edge - corner + prefix sums, as in the kernels of 8 bits. Sums modulo 2^16
  // lose nothing.
  void UndoSpatial(SpatialPredictor spatial, bool temporal, std::size_t x, Rows& value) const {
    const bool west = spatial != SpatialPredictor::kNorth;
    const bool north = spatial != SpatialPredictor::kWest;
    __m256i above = _mm256_setzero_si256();
    int corner = 0;
    if (north) {
      above = Load32(row_.above + x);
      if (temporal) above = _mm256_sub_epi16(above, Load32(row_.above_previous + x));
      if (west && x > 0) {
        corner = row_.above[x - 1] - (temporal ? row_.above_previous[x - 1] : 0);
      }
    }
    const __m256i corners = _mm256_set1_epi16(static_cast<short>(corner));
    for (std::size_t y = 0; y < value.size(); ++y) {
      if (west) value[y] = SumAlong(value[y]);
      // `above` becomes the row's sum so far, which the next row begins with.
      if (north) value[y] = above = _mm256_add_epi16(value[y], above);
      if (!west) continue;
      const __m256i left =
          temporal ? _mm256_sub_epi16(left_[y], left_previous_[y]) : left_[y];
      value[y] = _mm256_add_epi16(value[y], _mm256_sub_epi16(LastColumn(left), corners));
    }
  }

  const BlockRansRow<std::uint16_t>& row_;
  const __m256i mask_;
  Rows left_ = Zeros();
  Rows left_previous_ = left_;
};

}  // namespace

bool DecodeBlockRansRowWideAvx2(const BlockRansRow<std::uint16_t>& row, BlockRansStream& stream) {
  BlockRansLanesAvx2 lanes(stream);
  Reconstruction blocks(row);
  for (std::uint32_t block = 0; block < row.blocks; ++block) {
    Rows residuals = Zeros();
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
