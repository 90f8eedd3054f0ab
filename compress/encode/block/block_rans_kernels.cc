// Inner loops of the block-rANS encoder, written so that compilers turn them into vector code for
// each of several processors (for_processors.h). They use integers, or floats whose bits are exact,
// so that every version gives the same numbers.
#include "compress/encode/block/block_rans_kernels.h"

#include <bit>
#include <cstdlib>
#include <cstring>

#include "compress/encode/for_processors.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kLine = kBlockColumns;
// What a compiler keeps in registers, where it would keep an array in memory.
using CostVector [[gnu::vector_size(sizeof(BlockRansCostLine))]] = std::uint16_t;

}  // namespace

FOREBAY_FOR_PROCESSORS
void BlockRansPredict(const std::uint16_t* block, const std::uint16_t* previous, std::size_t stride,
                      std::uint32_t bits, BlockRansCandidates& candidates) {
  const unsigned unused = 16 - bits;
  // Four spatial predictors of the samples, then of their differences to the previous frame.
  for (std::size_t temporal = 0; temporal < 2; ++temporal) {
    // Row 0 lies above the block, column 0 left of it.
    std::array<std::array<std::uint16_t, kLine + 1>, kBlockRows + 1> seen;
    for (std::size_t y = 0; y <= kBlockRows; ++y) {
      // BlockFrame has a row above and a column to the left of every block, so this stays in its
      // memory.
      const std::uint16_t* const here = block + y * stride - stride - 1;
      const std::uint16_t* const before = previous + y * stride - stride - 1;
      for (std::size_t x = 0; x <= kLine; ++x) {
        seen[y][x] = static_cast<std::uint16_t>(here[x] - (temporal != 0 ? before[x] : 0));
      }
    }
    BlockRansResiduals* const out = &candidates[temporal * 4];
    for (std::size_t y = 0; y < kBlockRows; ++y) {
      const std::uint16_t* const here = &seen[y + 1][1];
      const std::uint16_t* const above = &seen[y][1];
      for (std::size_t x = 0; x < kLine; ++x) {
        const std::uint32_t value = here[x];
        const std::uint32_t west = *(here + x - 1), north = above[x];
        const std::uint32_t corner = *(above + x - 1);
        const auto signed_value = [&](std::uint32_t residual) {
          // Sign extension from `bits` bits: residuals are modulo 2^bits.
          return static_cast<std::int16_t>(
              static_cast<std::int16_t>(residual << unused) >> unused);
        };
        out[0][y * kLine + x] = signed_value(value);
        out[1][y * kLine + x] = signed_value(value - west);
        out[2][y * kLine + x] = signed_value(value - north);
        out[3][y * kLine + x] = signed_value(value - west - north + corner);
      }
    }
  }
}

FOREBAY_FOR_PROCESSORS
std::uint32_t BlockRansSize(const BlockRansResiduals& residuals) {
  // The exponent and first digits of a float are its logarithm.
  std::uint32_t sum = 0;
  for (const std::int16_t residual : residuals) {
    const auto size = static_cast<float>(std::abs(std::int32_t{residual}) * 3 + 1);
    sum += (std::bit_cast<std::uint32_t>(size) - std::bit_cast<std::uint32_t>(1.0F)) >> 15;
  }
  return sum;
}

std::size_t BlockRansBucket(std::int32_t residual) {
  if (residual >= -128 && residual <= 127) return static_cast<std::uint8_t>(residual);
  // Four buckets to an octave beyond the bytes; negative residuals follow the positive ones.
  const auto size = static_cast<std::uint32_t>(std::abs(residual));
  const auto octave = static_cast<std::uint32_t>(std::bit_width(size)) - 8;
  return 256 + (residual < 0 ? 64U : 0U) + octave * 4 + (size >> (octave + 5) & 3);
}

FOREBAY_FOR_PROCESSORS
void BlockRansBlockCosts(const BlockRansResiduals& residuals, bool wide,
                         const BlockRansCosts& costs, BlockRansCostLine& sums) {
  // A vector holds the sums of all classes; a residual adds one line of the cost table.
  CostVector total{};
  for (const std::int16_t residual : residuals) {
    const std::size_t bucket =
        wide ? BlockRansBucket(residual) : static_cast<std::uint8_t>(residual);
    CostVector line;
    std::memcpy(&line, costs[bucket].data(), sizeof(line));
    total += line;
  }
  std::memcpy(sums.data(), &total, sizeof(total));
}

}  // namespace forebay::compress
