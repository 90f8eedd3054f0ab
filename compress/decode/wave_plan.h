// The side information of a wave-coded chunk: filters, thresholds, symbol tables and block maps,
// parsed and checked. docs/pack_planes.md has the format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/scratch_arena.h"
#include "compress/format/plane_shape.h"
#include "compress/format/predictor.h"
#include "compress/format/wave_format.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// A decoding table entry: what slot `s` of a context means.
//   bits 0..7 symbol, 8..19 frequency (1..2048), 20..30 s minus the symbol's first slot
using WaveEntry = std::uint32_t;
inline constexpr std::uint32_t WaveSymbol(WaveEntry entry) { return entry & 0xFF; }
inline constexpr std::uint32_t WaveFrequency(WaveEntry entry) { return entry >> 8 & 0xFFF; }
inline constexpr std::uint32_t WaveBias(WaveEntry entry) { return entry >> 20; }

// One chunk's parameters and the memory they lie in.
struct WavePlan {
  WaveParameters parameters;
  std::uint32_t block_rows = 0, block_columns = 0;  // blocks of a frame
  std::span<WaveEntry> intra_table, inter_table;    // kWaveContexts x kWaveProbabilityScale
  std::span<WaveBlock> blocks;                      // [frames_wanted][block_rows][block_columns]
  std::span<std::uint32_t> states;                  // kWaveLanes
  std::span<const std::byte> words;                 // of 16 bits, little-endian
  // Of intra and inter frames; null where filters are not corrected.
  std::array<const PredictorNet*, 2> nets = {nullptr, nullptr};

  bool learned() const { return nets[0] != nullptr || nets[1] != nullptr; }
};

// Parses `body`, which begins behind the plane body's kind byte. Takes its memory from `arena`;
// a counting arena and an empty body count for the worst case. `predictor` may be null and is
// borrowed. Errors: kDataLoss.
Result<WavePlan> ReadWavePlan(const PlaneShape& shape, std::span<const std::byte> body,
                              std::uint32_t frames_wanted, ScratchArena& arena,
                              const Predictor* predictor = nullptr);

// Takes what ReadWavePlan would, at most.
void CountWavePlan(const PlaneShape& shape, ScratchArena& arena);

}  // namespace forebay::compress
