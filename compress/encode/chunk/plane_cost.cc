// Estimates what a stack of planes will take, for the choice of stages. Each row is predicted by
// the median edge detector (Weinberger et al., LOCO-I, 2000) or by the previous frame, whichever
// leaves less, and the residuals' zero-order entropy is the estimate. Large stacks are judged by
// every n-th row. Integers only, so that every machine chooses the same stages.
#include "compress/encode/chunk/plane_cost.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kPixelsJudged = std::size_t{1} << 17;
// Folded residuals below 64 have a symbol each; beyond, four to an octave and plain bits.
constexpr std::uint32_t kDirect = 64;
constexpr std::size_t kSymbols = kDirect + 4 * 27;

// A residual modulo 2^bits: small of either sign first.
std::uint32_t Fold(std::uint32_t residual, std::uint32_t bits) {
  const auto value = static_cast<std::int32_t>(residual << (32 - bits)) >> (32 - bits);
  return static_cast<std::uint32_t>(value) << 1 ^ static_cast<std::uint32_t>(value >> 31);
}

// log2, in sixteenths, for a fixed result everywhere.
std::uint32_t LogarithmSixteenths(std::uint32_t value) {
  const auto octave = static_cast<std::uint32_t>(std::bit_width(value)) - 1;
  const std::uint64_t mantissa = (static_cast<std::uint64_t>(value) << 32) >> octave;
  return octave * 16 + static_cast<std::uint32_t>((mantissa - (1ULL << 32)) >> 28);
}

// Counts folded residuals. Large ones are counted by their octave and the two bits below the
// leading one; the bits below those are taken as incompressible.
class Histogram {
 public:
  void Add(std::uint32_t folded) {
    ++total_;
    if (folded < kDirect) {
      ++counts_[folded];
      return;
    }
    const auto octave = static_cast<std::uint32_t>(std::bit_width(folded)) - 1;
    ++counts_[kDirect + 4 * (octave - 6) + (folded >> (octave - 2) & 3)];
    plain_bits_ += octave - 2;
  }

  // Entropy in bits, with 6 bits for each symbol that occurs, about what its frequency takes.
  std::uint64_t bits() const {
    std::uint64_t sixteenths = 0;
    std::uint64_t symbols = 0;
    for (const std::uint32_t count : counts_) {
      if (count == 0) continue;
      ++symbols;
      sixteenths += count * (LogarithmSixteenths(total_) - LogarithmSixteenths(count));
    }
    return sixteenths / 16 + plain_bits_ + 6 * symbols;
  }

 private:
  std::array<std::uint32_t, kSymbols> counts_{};
  std::uint32_t total_ = 0;
  std::uint64_t plain_bits_ = 0;
};

// The median edge detector: west + north - corner, kept between west and north.
std::uint32_t Median(std::uint32_t west, std::uint32_t north, std::uint32_t corner) {
  const std::uint32_t low = std::min(west, north), high = std::max(west, north);
  if (corner >= high) return low;
  return corner <= low ? high : west + north - corner;
}

// Adds a row, whatever predicts it best, to the histogram.
void AddRow(const std::uint32_t* row, const std::uint32_t* above, const std::uint32_t* before,
            std::uint32_t columns, std::uint32_t bits, Histogram& histogram) {
  std::array<std::uint64_t, 2> cost{};
  const auto residuals = [&](std::uint32_t i) {
    const std::uint32_t west = i > 0 ? row[i - 1] : above != nullptr ? above[i] : 0;
    const std::uint32_t north = above != nullptr ? above[i] : west;
    const std::uint32_t corner = above != nullptr && i > 0 ? above[i - 1] : north;
    const std::uint32_t spatial = Fold(row[i] - Median(west, north, corner), bits);
    const std::uint32_t temporal = before != nullptr ? Fold(row[i] - before[i], bits) : spatial;
    return std::array<std::uint32_t, 2>{spatial, temporal};
  };
  for (std::uint32_t i = 0; i < columns; ++i) {
    const auto both = residuals(i);
    for (std::size_t k = 0; k < 2; ++k) {
      cost[k] += static_cast<std::uint64_t>(std::bit_width(both[k]));
    }
  }
  const std::size_t best = cost[1] < cost[0] ? 1 : 0;
  for (std::uint32_t i = 0; i < columns; ++i) histogram.Add(residuals(i)[best]);
}

}  // namespace

std::size_t EstimatePlaneBytes(const PlaneShape& shape, std::uint32_t bits,
                               std::span<const std::uint32_t> codes) {
  FOREBAY_CHECK(codes.size() == shape.frames * shape.frame_samples());
  if (bits == 0 || codes.empty()) return 0;
  const std::size_t rows = std::size_t{shape.frames} * shape.rows;
  const std::size_t step = std::max<std::size_t>(1, codes.size() / kPixelsJudged);
  Histogram histogram;
  std::size_t judged = 0;
  // Every step-th row, with the true rows above and before it, so that predictions are those of a
  // full pass.
  for (std::size_t row = 0; row < rows; row += step) {
    const std::uint32_t* const here = codes.data() + row * shape.columns;
    const std::uint32_t* const above = row % shape.rows > 0 ? here - shape.columns : nullptr;
    const std::uint32_t* const before =
        row >= shape.rows ? here - shape.frame_samples() : nullptr;
    AddRow(here, above, before, shape.columns, bits, histogram);
    ++judged;
  }
  return static_cast<std::size_t>(histogram.bits() * rows / judged / 8);
}

}  // namespace forebay::compress
