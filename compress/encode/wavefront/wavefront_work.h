// The state of encoding wavefront planes, which one step passes to the next (README.md has the
// steps).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/encode/wavefront/wavefront_encoder.h"
#include "compress/format/plane/padded_frame.h"
#include "compress/format/plane/predictor.h"
#include "compress/format/plane/wavefront_predict.h"

namespace forebay::compress {

// A chunk under encode. T is uint8_t or uint16_t.
template <typename T>
struct WavefrontWork {
  PlaneShape shape;
  WavefrontEffort effort;
  std::int32_t middle = 128;
  std::uint32_t motion_rows = 0, motion_columns = 0;  // 16 x 16 blocks of a frame
  std::uint32_t block_rows = 0, block_columns = 0;    // of 2^parameters.block_log2
  WavefrontParameters parameters;
  std::vector<std::vector<T>> memory;
  std::vector<PaddedFrame<const T>> frames;  // edges repeated
  std::vector<std::vector<T>> above;         // the row above each frame
  std::vector<WavefrontBlock> motion;        // [frames][motion_rows][motion_columns]
  std::vector<WavefrontBlock> blocks;        // [frames][block_rows][block_columns]
  std::vector<T> residuals;                  // modulo 2^bits, [frames][rows][columns]
  std::vector<std::uint8_t> contexts;        // likewise
  // If a predictor corrects blocks: the predictor, and the energy that it gives each pixel.
  // Residuals then have the sign in which they are coded.
  const Predictor* predictor = nullptr;
  std::vector<std::uint8_t> energies;

  const PaddedFrame<const T>* Previous(std::uint32_t frame) const {
    return frame > 0 ? &frames[frame - 1] : nullptr;
  }
  const PaddedFrame<const T>* Earlier(std::uint32_t frame) const {
    return frame > 1 ? &frames[frame - 2] : nullptr;
  }
};

inline constexpr std::uint32_t kMotionBlockLog2 = 4;

// Copies the frames, extends their edges, and chooses the row above the first frame.
template <typename T>
WavefrontWork<T> PrepareWavefrontWork(const PlaneShape& shape, std::span<const std::byte> samples,
                                      const WavefrontEffort& effort);

// Integer motion of each 16 x 16 block of all inter frames, into work.motion.
template <typename T>
void SearchMotion(WavefrontWork<T>& work);

// Filters, block size and each block's filter, into work.parameters and work.blocks.
template <typename T>
void ChooseFilters(WavefrontWork<T>& work);

// Residuals of all frames under the chosen filters; marks blocks without any as skipped.
template <typename T>
void ComputeResiduals(WavefrontWork<T>& work);

// Only marks the blocks whose residuals are all zero.
template <typename T>
void MarkSkippedBlocks(WavefrontWork<T>& work);

// Runs all steps above.
template <typename T>
WavefrontWork<T> ChooseWavefront(const PlaneShape& shape, std::span<const std::byte> samples,
                                 const WavefrontEffort& effort);

// Chooses the shift of magnitudes for the residuals, into work.parameters.
template <typename T>
void ChooseMagnitudeShift(WavefrontWork<T>& work);

// Models contexts, and writes side information and symbols of everything that was chosen.
template <typename T>
std::vector<std::byte> WriteWavefrontBody(WavefrontWork<T>& work);

}  // namespace forebay::compress
