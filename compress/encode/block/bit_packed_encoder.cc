// Encodes bit-packed planes (docs/pack_planes.md): each block of 16 x 4 samples takes the predictor
// whose residuals need the fewest bits, and its residuals are stored as that many bit planes. The
// block bytes and the planes are put behind LZ4 where that saves enough. Called by plane_encoder.cc
// for profile fast.
#include "compress/encode/block/bit_packed_encoder.h"

#include <lz4.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "compress/encode/block/block_frame.h"
#include "compress/format/plane/block_format.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

using Residuals = std::array<std::uint16_t, kBlockSamples>;

// Bits that residuals modulo 2^bits need as signed numbers.
std::uint32_t WidthOf(const Residuals& residuals, std::uint32_t bits) {
  // The top bit of a residual of `bits` bits is its sign.
  const std::uint32_t sign = 1U << (bits - 1);
  std::uint32_t all = 0;
  for (std::uint16_t residual : residuals) {
    // A number and its complement need the same width, the sign bit besides.
    const std::uint32_t flip = (residual & sign) != 0 ? (1U << bits) - 1 : 0;
    all |= residual ^ flip;
  }
  bool zero = true;
  for (std::uint16_t residual : residuals) zero = zero && residual == 0;
  return zero ? 0 : static_cast<std::uint32_t>(std::bit_width(all)) + 1;
}

// Residuals modulo 2^bits of a block; `previous` is null for a predictor that is not temporal.
Residuals Difference(const std::uint16_t* block, std::size_t stride, const std::uint16_t* previous,
                     SpatialPredictor spatial, std::uint32_t mask) {
  Residuals residuals;
  for (std::uint32_t y = 0; y < kBlockRows; ++y) {
    for (std::uint32_t x = 0; x < kBlockColumns; ++x) {
      const std::size_t at = y * stride + x;
      // A temporal block predicts the differences between two frames, so every neighbour is taken
      // less the same pixel of the previous frame, as the decoder does (DecodeBitPackedRow).
      const auto seen = [&](std::size_t back) {
        return static_cast<std::uint32_t>(*(block + at - back)) -
               (previous != nullptr ? *(previous + at - back) : 0U);
      };
      std::uint32_t value = seen(0);
      if (spatial == SpatialPredictor::kWest) value -= seen(1);
      if (spatial == SpatialPredictor::kNorth) value -= seen(stride);
      if (spatial == SpatialPredictor::kGradient) {
        value -= seen(1) + seen(stride) - seen(stride + 1);
      }
      residuals[y * kBlockColumns + x] = static_cast<std::uint16_t>(value & mask);
    }
  }
  return residuals;
}

struct BitPackedStreams {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint64_t> planes;
};

void EncodeBlock(const std::uint16_t* block, std::size_t stride, const std::uint16_t* previous,
                 std::uint32_t bits, BitPackedStreams& out) {
  const std::uint32_t mask = (1U << bits) - 1;
  // Wider than any residual, so that the first predictor that is tried is taken.
  std::uint32_t best_width = bits + 1;
  std::uint8_t best_code = 0;
  Residuals best;
  // Temporal predictors come first. Of two predictors with equal widths the temporal one is cheaper
  // to undo.
  for (const bool temporal : {true, false}) {
    if (temporal && previous == nullptr) continue;
    for (std::uint8_t spatial = 0; spatial < 4; ++spatial) {
      const Residuals residuals = Difference(block, stride, temporal ? previous : nullptr,
                                             static_cast<SpatialPredictor>(spatial), mask);
      const std::uint32_t width = WidthOf(residuals, bits);
      if (width >= best_width) continue;
      best_width = width;
      best_code =
          static_cast<std::uint8_t>(width << 3 | (temporal ? kTemporalPredictor : 0) | spatial);
      best = residuals;
      // No other predictor can be better than one that leaves nothing.
      if (width == 0) break;
    }
    if (best_width == 0) break;
  }
  out.codes.push_back(best_code);
  // Residuals become unsigned by a bias of half their range; then plane k holds bit k of each.
  const std::uint32_t bias = best_width > 0 ? 1U << (best_width - 1) : 0;
  for (std::uint32_t plane = 0; plane < best_width; ++plane) {
    std::uint64_t word = 0;
    for (std::uint32_t i = 0; i < kBlockSamples; ++i) {
      // Sums beyond `best_width` bits lose their upper bits here, as the decoder's subtraction
      // expects.
      word |= std::uint64_t{(best[i] + bias) >> plane & 1} << i;
    }
    out.planes.push_back(word);
  }
}

BitPackedStreams EncodeFrames(const PlaneShape& shape, std::span<const std::byte> samples) {
  const std::uint32_t block_rows = CountBlocks(shape.rows, kBlockRows);
  const std::uint32_t block_columns = CountBlocks(shape.columns, kBlockColumns);
  BitPackedStreams out;
  // A list of one or none: frames are large, and only the one before is needed.
  std::vector<BlockFrame> previous;
  for (std::uint32_t t = 0; t < shape.frames; ++t) {
    BlockFrame current(shape, samples, t);
    for (std::uint32_t row = 0; row < block_rows; ++row) {
      for (std::uint32_t column = 0; column < block_columns; ++column) {
        EncodeBlock(current.Block(row, column), current.stride(),
                    previous.empty() ? nullptr : previous[0].Block(row, column), shape.bits, out);
      }
    }
    previous.clear();
    previous.push_back(std::move(current));
  }
  return out;
}

// One LZ4 block.
std::vector<std::byte> Compress(std::span<const std::byte> plain) {
  const int bound = LZ4_compressBound(static_cast<int>(plain.size()));
  std::vector<std::byte> compressed(static_cast<std::size_t>(bound));
  const int bytes = LZ4_compress_default(reinterpret_cast<const char*>(plain.data()),
                                         reinterpret_cast<char*>(compressed.data()),
                                         static_cast<int>(plain.size()), bound);
  FOREBAY_CHECK(bytes > 0);
  compressed.resize(static_cast<std::size_t>(bytes));
  return compressed;
}

}  // namespace

std::vector<std::byte> EncodeBitPacked(const PlaneShape& shape,
                                       std::span<const std::byte> samples) {
  FOREBAY_CHECK(shape.frames > 0 && shape.rows > 0 && shape.columns > 0);
  FOREBAY_CHECK(shape.bits >= 1 && shape.bits <= 16 && samples.size() == shape.bytes());
  const BitPackedStreams streams = EncodeFrames(shape, samples);
  ByteWriter planes;
  for (std::uint64_t plane : streams.planes) planes.Le(plane);
  const std::span<const std::byte> plain_codes = std::as_bytes(std::span(streams.codes));
  // Neighbouring blocks often have the same byte, which LZ4 codes in few bytes.
  const std::vector<std::byte> codes = Compress(plain_codes);
  const std::vector<std::byte> compressed = Compress(planes.bytes());
  const bool small_codes = codes.size() < plain_codes.size();
  // Planes rarely repeat themselves, and LZ4 takes time to undo: it must save an eighth.
  const bool small_planes = compressed.size() < planes.size() - planes.size() / 8;
  const std::span<const std::byte> section = small_codes ? std::span(codes) : plain_codes;
  ByteWriter writer;
  writer.Le(static_cast<std::uint8_t>((small_codes ? kBitPackedCompressedCodes : 0) |
                                      (small_planes ? kBitPackedCompressedPlanes : 0)));
  writer.Le(static_cast<std::uint32_t>(section.size()));
  writer.Bytes(section);
  writer.Bytes(small_planes ? std::span<const std::byte>(compressed) : planes.bytes());
  return writer.Release();
}

}  // namespace forebay::compress
