// Chooses the bit patterns that mean "no value here", fills their places with what neighbours
// predict, and codes the places as run lengths. Candidates are the declared fill value, the
// commonest NaN or infinity, and, where asked, an extreme value that is frequent and far from all
// others. Called by coded_chunk_encoder.cc.
#include "compress/encode/chunk/mask_encoder.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "compress/encode/chunk/bound_checker.h"
#include "compress/format/chunk/chunk_header.h"
#include "compress/format/chunk/element_code.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kNonFiniteMin = 8;        // fewer are escapes, or codes like others
constexpr std::size_t kNonFiniteKinds = 64;     // patterns counted
constexpr std::uint64_t kOutlierShareMin = 256;  // one element in so many
constexpr std::uint64_t kOutlierGap = 8;         // of the others' range

// An element as an integer whose order is that of the values.
std::uint64_t CodeOf(const ChunkShape& shape, std::uint64_t bits) {
  const CodeOrder order = OrderOf(shape.dtype);
  switch (shape.element_bytes()) {
    case 1: return CodeOfElement(order, static_cast<std::uint8_t>(bits));
    case 2: return CodeOfElement(order, static_cast<std::uint16_t>(bits));
    case 4: return CodeOfElement(order, static_cast<std::uint32_t>(bits));
    default: return CodeOfElement(order, bits);
  }
}

// The bits of the commonest NaN or infinity that is not the fill value; nothing where it is rare.
// Counts at most kNonFiniteKinds patterns, so that random payloads of NaNs cost no memory.
std::optional<std::uint64_t> CommonestNonFinite(const ChunkShape& shape,
                                                std::span<const std::uint64_t> bits) {
  if (OrderOf(shape.dtype) != CodeOrder::kFloat) return std::nullopt;
  std::map<std::uint64_t, std::size_t> counts;
  const std::uint64_t exponent = shape.dtype == Dtype::kF16    ? 0x7C00
                                 : shape.dtype == Dtype::kBf16 ? 0x7F80
                                 : shape.dtype == Dtype::kF32  ? 0x7F80'0000
                                                               : 0x7FF0'0000'0000'0000;
  for (const std::uint64_t pattern : bits) {
    // All bits of the exponent are set in infinities and NaNs, and in nothing else.
    if ((pattern & exponent) != exponent || pattern == shape.fill_bits) continue;
    if (counts.size() < kNonFiniteKinds || counts.contains(pattern)) ++counts[pattern];
  }
  std::optional<std::uint64_t> commonest;
  std::size_t most = kNonFiniteMin - 1;
  for (const auto& [pattern, count] : counts) {
    if (count > most) commonest = pattern, most = count;
  }
  return commonest;
}

// The lowest or the highest element, if it is frequent and far from all others: a fill value that
// the schema does not declare, such as -9999. One pass finds the two lowest and the two highest
// codes.
std::optional<std::uint64_t> Outlier(const ChunkShape& shape, std::span<const std::uint64_t> bits,
                                     std::span<const std::uint64_t> excluded) {
  std::uint64_t low = UINT64_MAX, next_low = UINT64_MAX, high = 0, next_high = 0;
  std::uint64_t low_bits = 0, high_bits = 0;
  for (const std::uint64_t pattern : bits) {
    if (std::find(excluded.begin(), excluded.end(), pattern) != excluded.end()) continue;
    const std::uint64_t code = CodeOf(shape, pattern);
    // A new extreme pushes the old one to second place; elements equal to an extreme change
    // nothing.
    if (code < low) next_low = low, low = code, low_bits = pattern;
    else if (code != low) next_low = std::min(next_low, code);
    if (code > high || (code == 0 && high == 0)) next_high = high, high = code, high_bits = pattern;
    else if (code != high) next_high = std::max(next_high, code);
  }
  // With fewer than three different values nothing lies between the extremes that they could be far
  // from.
  if (low >= high || next_low >= high || next_high <= low) return std::nullopt;
  // A rare outlier costs less as a value of its own than as a mask of the whole chunk.
  const auto frequent = [&](std::uint64_t pattern) {
    const auto count = std::count(bits.begin(), bits.end(), pattern);
    return static_cast<std::uint64_t>(count) * kOutlierShareMin >= bits.size();
  };
  if (next_low - low > (high - next_low) / kOutlierGap && frequent(low_bits)) return low_bits;
  if (high - next_high > (next_high - low) / kOutlierGap && frequent(high_bits)) return high_bits;
  return std::nullopt;
}

// Run lengths of the mask, or of its difference to itself `period` elements before; `period` 0
// means the mask alone.
std::vector<std::byte> RunsOf(std::span<const std::uint8_t> mask, std::size_t period) {
  ByteWriter writer;
  std::uint8_t value = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const std::uint8_t before = period > 0 && i >= period ? mask[i - period] : 0;
    if ((mask[i] ^ before) == value) continue;
    writer.Varint(i - begin);
    begin = i;
    value ^= 1;
  }
  // The last run is written even where it is all of the mask: runs must add up to all elements.
  writer.Varint(mask.size() - begin);
  return writer.Release();
}

}  // namespace

std::vector<std::uint64_t> MaskPatterns(const ChunkShape& shape,
                                        std::span<const std::uint64_t> bits, HoleSearch search) {
  std::vector<std::uint64_t> patterns;
  if (search == HoleSearch::kNone) return patterns;
  if (shape.fill_bits.has_value() &&
      std::find(bits.begin(), bits.end(), *shape.fill_bits) != bits.end()) {
    patterns.push_back(*shape.fill_bits);
  }
  if (const auto commonest = CommonestNonFinite(shape, bits)) patterns.push_back(*commonest);
  if (search == HoleSearch::kOutliers && patterns.size() < kMasksMax &&
      shape.element_bytes() > 1) {
    if (const auto outlier = Outlier(shape, bits, patterns)) patterns.push_back(*outlier);
  }
  return patterns;
}

void FillHoles(const ChunkGeometry& geometry, std::span<const std::uint8_t> holes,
               std::span<std::uint64_t> codes) {
  // Neighbours in the elements' order: channels of a pixel lie side by side, or planes apart.
  const std::size_t left =
      geometry.channels > 1 && geometry.inner_extent == 1 ? geometry.channels : 1;
  const std::size_t row = geometry.columns * left;
  // Holes before any value take the first code that is no hole, or 0 if all are holes.
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (holes[i] == 0) {
      first = codes[i];
      break;
    }
  }
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (holes[i] == 0) continue;
    // Left, else above, else the first code: each has been filled before it is copied from.
    if (i % row >= left) codes[i] = codes[i - left];
    else codes[i] = i >= row ? codes[i - row] : first;
  }
}

EncodedRuns EncodeRuns(std::span<const std::uint8_t> mask, std::size_t period) {
  EncodedRuns runs = {.bytes = RunsOf(mask, 0)};
  if (period == 0 || period >= mask.size()) return runs;
  std::vector<std::byte> temporal = RunsOf(mask, period);
  if (temporal.size() < runs.bytes.size()) runs = {.bytes = std::move(temporal), .temporal = true};
  return runs;
}

std::vector<std::byte> EncodePlaces(std::span<const std::uint8_t> flags) {
  ByteWriter writer;
  std::size_t next = 0;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == 0) continue;
    writer.Varint(i - next);
    next = i + 1;
  }
  return writer.Release();
}

}  // namespace forebay::compress
