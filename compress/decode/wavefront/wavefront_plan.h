// The side information of a wavefront-coded chunk: filters, thresholds, symbol tables and block
// maps, parsed and checked. docs/pack_planes.md has the format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/scratch_arena.h"
#include "compress/format/plane/plane_shape.h"
#include "compress/format/plane/predictor.h"
#include "compress/format/plane/wavefront_format.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// A decoding table entry: what slot `s` of a context means.
//   bits 0..7 symbol, 8..19 frequency (1..2048), 20..30 s minus the symbol's first slot
using WavefrontEntry = std::uint32_t;
inline constexpr std::uint32_t WavefrontSymbol(WavefrontEntry entry) {
  return entry & 0xFF;
}
inline constexpr std::uint32_t WavefrontFrequency(WavefrontEntry entry) {
  return entry >> 8 & 0xFFF;
}
inline constexpr std::uint32_t WavefrontBias(WavefrontEntry entry) {
  return entry >> 20;
}

// One chunk's parameters and the memory they lie in.
struct WavefrontPlan {
  WavefrontParameters parameters;
  std::uint32_t block_rows = 0, block_columns = 0;  // blocks of a frame
  std::span<WavefrontEntry> intra_table,
      inter_table;                   // kWavefrontContexts x kWavefrontProbabilityScale
  std::span<WavefrontBlock> blocks;  // [frames_wanted][block_rows][block_columns]
  std::span<std::uint32_t> states;   // kWavefrontLanes
  std::span<const std::byte> words;                 // of 16 bits, little-endian
  // Of intra and inter frames; null where filters are not corrected.
  std::array<const PredictorNet*, 2> nets = {nullptr, nullptr};

  bool learned() const { return nets[0] != nullptr || nets[1] != nullptr; }
};

// Parses `body`, which begins behind the plane body's kind byte. Takes its memory from `arena`;
// a counting arena and an empty body count for the worst case. `predictor` may be null and is
// borrowed. Errors: kDataLoss.
Result<WavefrontPlan> ReadWavefrontPlan(const PlaneShape& shape, std::span<const std::byte> body,
                                        std::uint32_t frames_wanted, ScratchArena& arena,
                                        const Predictor* predictor = nullptr);

// Takes what ReadWavefrontPlan would, at most.
void CountWavefrontPlan(const PlaneShape& shape, ScratchArena& arena);

}  // namespace forebay::compress
