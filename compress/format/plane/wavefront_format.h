// The wavefront codec's constants and its parameters as both sides hold them (docs/pack_planes.md).
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

inline constexpr std::uint32_t kWavefrontLanes = 64;
inline constexpr std::uint32_t kWavefrontLag = 2;  // columns that a lane runs behind the one above
inline constexpr std::uint32_t kWavefrontFiltersMax = 16;  // of intra frames, and again of inter
inline constexpr std::uint32_t kWavefrontContexts = 16;    // of intra frames, and again of inter
inline constexpr std::uint32_t kWavefrontProbabilityBits = 11;
inline constexpr std::uint32_t kWavefrontProbabilityScale = 1U << kWavefrontProbabilityBits;
inline constexpr std::uint32_t kWavefrontStateMin = 1U << 16;  // a state lies in [2^16, 2^32)
inline constexpr int kWavefrontWeightBits = 7;                 // a weight of 128 is one
inline constexpr int kWavefrontWeightMin = -256, kWavefrontWeightMax = 255;
inline constexpr int kWavefrontMotionMax = 16;  // pixels, each way
// Frames are extended by their edge pixels this far: twice the motion, and a tap's reach.
inline constexpr std::uint32_t kWavefrontMargin = 2 * kWavefrontMotionMax + 8;
inline constexpr std::uint32_t kWavefrontBlockLog2Min = 3, kWavefrontBlockLog2Max = 5;
// Tokens of samples of more than 8 bits: 0..15 are values; then four to an octave.
inline constexpr std::uint32_t kWavefrontDirectTokens = 16;

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
struct WavefrontFilter {
  std::array<std::int16_t, kInterTapCount> weights{};
  bool clamped = false;
  bool learned = false;  // the chunk's predictor corrects it
};

// What intra frames (the chunk's first) and inter frames (all others) have of their own.
struct WavefrontGroup {
  std::uint32_t filter_count = 0;
  std::array<WavefrontFilter, kWavefrontFiltersMax> filters;
  // A pixel's context is the number of thresholds that its energy reaches; ascending.
  std::array<std::uint8_t, kWavefrontContexts - 1> thresholds{};
};

// Bits that name one of a group's filters.
inline constexpr std::uint32_t WavefrontFilterBits(const WavefrontGroup& group) {
  return static_cast<std::uint32_t>(std::bit_width(group.filter_count - 1));
}

struct WavefrontParameters {
  std::uint32_t block_log2 = 4;
  std::uint32_t magnitude_shift = 0;
  std::uint32_t top = 0;  // what lies above the first row of the first frame
  WavefrontGroup intra, inter;
};

// A block's choice. Skipped blocks have residuals of zero.
struct WavefrontBlock {
  std::uint8_t filter = 0;  // with kWavefrontSkip
  std::int8_t motion_row = 0, motion_column = 0;

  bool operator==(const WavefrontBlock&) const = default;
};
inline constexpr std::uint8_t kWavefrontSkip = 0x80;

// Steps between a row and the next one of the same lane. A lane may start its next row only
// when the lane above it, the last one for lane 0, has passed that column.
inline constexpr std::uint32_t WavefrontPeriod(std::uint32_t columns) {
  const std::uint32_t turn = kWavefrontLag * kWavefrontLanes + kWavefrontLag;
  return columns > turn ? columns : turn;
}

inline constexpr std::uint32_t WavefrontBands(std::uint32_t rows) {
  return (rows + kWavefrontLanes - 1) / kWavefrontLanes;
}

// Steps of one frame.
inline constexpr std::uint32_t WavefrontSteps(std::uint32_t rows, std::uint32_t columns) {
  return WavefrontBands(rows) * WavefrontPeriod(columns) + kWavefrontLag * (kWavefrontLanes - 1);
}

}  // namespace forebay::compress
