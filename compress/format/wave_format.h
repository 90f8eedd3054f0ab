// The wave codec's constants and its parameters as both sides hold them (docs/pack_planes.md).
//
// A frame is decoded by 64 lanes at once. Lane j takes rows j, 64 + j, 128 + j ... and runs two
// columns behind lane j - 1, so that when a lane decodes a pixel, its neighbours to the left,
// above and above right are known: full causal contexts, and still 64 independent pixels a step.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace forebay::compress {

inline constexpr std::uint32_t kWaveLanes = 64;
inline constexpr std::uint32_t kWaveLag = 2;  // columns that a lane runs behind the one above
inline constexpr std::uint32_t kWaveFiltersMax = 16;  // of intra frames, and again of inter
inline constexpr std::uint32_t kWaveContexts = 16;    // of intra frames, and again of inter
inline constexpr std::uint32_t kWaveProbabilityBits = 11;
inline constexpr std::uint32_t kWaveProbabilityScale = 1U << kWaveProbabilityBits;
inline constexpr std::uint32_t kWaveStateMin = 1U << 16;  // a state lies in [2^16, 2^32)
inline constexpr int kWaveWeightBits = 7;  // a weight of 128 is one
inline constexpr int kWaveWeightMin = -256, kWaveWeightMax = 255;
inline constexpr int kWaveMotionMax = 16;  // pixels, each way
// Frames are extended by their edge pixels this far: twice the motion, and a tap's reach.
inline constexpr std::uint32_t kWaveMargin = 2 * kWaveMotionMax + 8;
inline constexpr std::uint32_t kWaveBlockLog2Min = 3, kWaveBlockLog2Max = 5;
// Tokens of samples of more than 8 bits: 0..15 are values; then four to an octave.
inline constexpr std::uint32_t kWaveDirectTokens = 16;

struct TapOffset {
  std::int8_t row, column;
};

// Neighbours in the frame being decoded, in the order of their weights.
inline constexpr std::array<TapOffset, 9> kCurrentTaps = {
    {{0, -1}, {0, -2}, {-1, 0}, {-1, -1}, {-1, 1}, {-2, 0}, {-1, -2}, {-2, -1}, {-2, 1}}};
// Neighbours in the previous frame, displaced by the block's motion.
inline constexpr std::array<TapOffset, 11> kPreviousTaps = {{{0, 0},
                                                             {-1, -1},
                                                             {-1, 0},
                                                             {-1, 1},
                                                             {0, -1},
                                                             {0, 1},
                                                             {1, -1},
                                                             {1, 0},
                                                             {1, 1},
                                                             {0, -2},
                                                             {0, 2}}};
// Neighbours in the frame before that, displaced by twice the motion.
inline constexpr std::array<TapOffset, 1> kEarlierTaps = {{{0, 0}}};

inline constexpr std::size_t kIntraTapCount = kCurrentTaps.size();
inline constexpr std::size_t kTemporalTapCount = kPreviousTaps.size() + kEarlierTaps.size();
inline constexpr std::size_t kInterTapCount = kIntraTapCount + kTemporalTapCount;

// A linear predictor: weights of the current frame's taps, the previous one's, the earlier's.
// With `clamped` its value is confined to the range of west and north (so that west + north -
// north-west becomes the median edge detector).
struct WaveFilter {
  std::array<std::int16_t, kInterTapCount> weights{};
  bool clamped = false;
  bool learned = false;  // the chunk's predictor corrects it
};

// What intra frames (the chunk's first) and inter frames (all others) have of their own.
struct WaveGroup {
  std::uint32_t filter_count = 0;
  std::array<WaveFilter, kWaveFiltersMax> filters;
  // A pixel's context is the number of thresholds that its energy reaches; ascending.
  std::array<std::uint8_t, kWaveContexts - 1> thresholds{};
};

// Bits that name one of a group's filters.
inline constexpr std::uint32_t WaveFilterBits(const WaveGroup& group) {
  return static_cast<std::uint32_t>(std::bit_width(group.filter_count - 1));
}

struct WaveParameters {
  std::uint32_t block_log2 = 4;
  std::uint32_t magnitude_shift = 0;
  std::uint32_t top = 0;  // what lies above the first row of the first frame
  WaveGroup intra, inter;
};

// A block's choice. Skipped blocks have residuals of zero.
struct WaveBlock {
  std::uint8_t filter = 0;  // with kWaveSkip
  std::int8_t motion_row = 0, motion_column = 0;

  bool operator==(const WaveBlock&) const = default;
};
inline constexpr std::uint8_t kWaveSkip = 0x80;

// Steps between a row and the next one of the same lane. A lane may start its next row only
// when the lane above it, the last one for lane 0, has passed that column.
inline constexpr std::uint32_t WavePeriod(std::uint32_t columns) {
  const std::uint32_t turn = kWaveLag * kWaveLanes + kWaveLag;
  return columns > turn ? columns : turn;
}

inline constexpr std::uint32_t WaveBands(std::uint32_t rows) {
  return (rows + kWaveLanes - 1) / kWaveLanes;
}

// Steps of one frame.
inline constexpr std::uint32_t WaveSteps(std::uint32_t rows, std::uint32_t columns) {
  return WaveBands(rows) * WavePeriod(columns) + kWaveLag * (kWaveLanes - 1);
}

}  // namespace forebay::compress
