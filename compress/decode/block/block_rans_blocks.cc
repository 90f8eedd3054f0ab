// The reference decoder of a row of block-rANS blocks (docs/pack_planes.md): a step of all lanes,
// low bits, escapes, then the predictor undone. It serves processors without AVX2, and every kernel
// must give its bits.
#include "compress/decode/block/block_rans_blocks.h"

#include <cstring>

namespace forebay::compress {
namespace {

using Residuals = std::array<std::uint32_t, kBlockRansLanes>;

// One step of all lanes: their symbols' residuals, without the planes.
void StepLanes(const BlockRansClass& table, BlockRansStream& stream, Residuals& residuals) {
  // A local pointer, which the compiler keeps in a register. It may pass the end by up to 64 bytes
  // in a step; ReadResiduals compares it afterwards.
  const std::byte* next = stream.bytes;
  for (std::uint32_t lane = 0; lane < kBlockRansLanes; ++lane) {
    const std::uint32_t entry = table.entries[stream.low[lane]];
    std::uint32_t state =
        (entry >> 8 & 0xFF) * stream.high[lane] + (entry & 0xFF);
    residuals[lane] = entry >> 16;
    // Arithmetic in place of a branch, because a processor cannot predict which lanes refill.
    const std::uint32_t refill = state < kBlockRansStateMin ? 1 : 0;
    state = state << (8 * refill) | (std::to_integer<std::uint32_t>(*next) & (0 - refill));
    next += refill;
    stream.low[lane] = static_cast<std::uint8_t>(state);
    stream.high[lane] = static_cast<std::uint8_t>(state >> 8);
  }
  stream.bytes = next;
}

// Adds the low bits, which lie in planes of one bit a lane. False where the section ends early.
bool AddPlanes(std::uint32_t planes, BlockRansStream& stream, Residuals& residuals) {
  if (stream.planes_end - stream.planes < static_cast<std::ptrdiff_t>(planes * 8)) return false;
  for (std::uint32_t plane = 0; plane < planes; ++plane, stream.planes += 8) {
    for (std::uint32_t i = 0; i < kBlockRansLanes; ++i) {
      residuals[i] +=
          (std::to_integer<std::uint32_t>(stream.planes[i / 8]) >> (i % 8) & 1) << plane;
    }
  }
  return true;
}

// Residuals of a block whose class is not 0.
template <typename T>
bool ReadResiduals(const BlockRansClass& table, BlockRansStream& stream, Residuals& residuals) {
  // Whether a lane escapes is said by the slot before the step, which the step overwrites.
  const std::array<std::uint8_t, kBlockRansLanes> slots = stream.low;
  StepLanes(table, stream, residuals);
  if (!AddPlanes(table.shift, stream, residuals)) return false;
  for (std::uint32_t lane = 0; lane < kBlockRansLanes; ++lane) {
    if (slots[lane] < table.escape_slots_at) continue;
    if (stream.escapes_end - stream.escapes < static_cast<std::ptrdiff_t>(sizeof(T))) return false;
    T value = 0;
    std::memcpy(&value, stream.escapes, sizeof(T));
    residuals[lane] = value;
    stream.escapes += sizeof(T);
  }
  return stream.bytes <= stream.bytes_end;
}

// Undoes the prediction of a block at column `x0`.
template <typename T>
void Reconstruct(const BlockRansRow<T>& row, std::uint8_t code, std::size_t x0,
                 const Residuals& residuals) {
  const bool temporal = (code & kTemporalPredictor) != 0 && row.previous != nullptr;
  const auto spatial = static_cast<SpatialPredictor>(code & 3);
  const bool west = spatial == SpatialPredictor::kWest || spatial == SpatialPredictor::kGradient;
  const bool north = spatial == SpatialPredictor::kNorth || spatial == SpatialPredictor::kGradient;
  for (std::uint32_t y = 0; y < kBlockRows; ++y) {
    T* const to = row.samples + y * row.stride + x0;
    const T* const before = temporal ? row.previous + y * row.stride + x0 : nullptr;
    const T* const above = y > 0 ? to - row.stride : row.above + x0;
    const T* const above_before =
        !temporal ? nullptr : y > 0 ? before - row.stride : row.above_previous + x0;
    std::array<std::uint32_t, kBlockColumns> values;
    for (std::uint32_t x = 0; x < kBlockColumns; ++x) {
      values[x] = residuals[y * kBlockColumns + x];
    }
    if (west) {
      // Along a row, residuals add up: begin with the sample to the left, less the other parts of
      // its prediction.
      std::uint32_t sum = 0;
      if (x0 > 0) {
        sum = *(to - 1) - (temporal ? std::uint32_t{*(before - 1)} : 0);
        if (north) sum -= *(above - 1) - (temporal ? std::uint32_t{*(above_before - 1)} : 0);
      }
      for (std::uint32_t& value : values) value = sum += value;
    }
    for (std::uint32_t x = 0; x < kBlockColumns; ++x) {
      std::uint32_t value = values[x];
      if (north) value += above[x] - (temporal ? std::uint32_t{above_before[x]} : 0);
      if (temporal) value += before[x];
      to[x] = static_cast<T>(value & row.mask);
    }
  }
}

}  // namespace

template <typename T>
bool DecodeBlockRansRow(const BlockRansRow<T>& row, BlockRansStream& stream) {
  for (std::uint32_t block = 0; block < row.blocks; ++block) {
    Residuals residuals{};
    const std::uint8_t code = row.codes[block];
    if (const std::uint32_t chosen = code >> 3; chosen > 0) {
      if (!ReadResiduals<T>(row.classes[chosen - 1], stream, residuals)) return false;
    }
    Reconstruct(row, code, std::size_t{block} * kBlockColumns, residuals);
  }
  return true;
}

template bool DecodeBlockRansRow(const BlockRansRow<std::uint8_t>&, BlockRansStream&);
template bool DecodeBlockRansRow(const BlockRansRow<std::uint16_t>&, BlockRansStream&);

}  // namespace forebay::compress
