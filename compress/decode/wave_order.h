// Frames in wave order, for kernels that hold a step's 64 lanes in registers: what lane j does in
// step s lies at 64 s + j. A neighbour is then what an earlier step held, moved by a lane for
// each row that it lies higher. Raster rows become wave order and back again in tiles.
//
// Kernels are compiled for processors that may not be there. What they share is inline or in
// a .cc file of no special flags, so that no function of theirs stands in for a common one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/frame_output.h"
#include "compress/decode/predictor_run.h"
#include "compress/decode/scratch_arena.h"
#include "compress/decode/wave_frame.h"
#include "compress/decode/wave_plan.h"
#include "compress/format/padded_frame.h"
#include "compress/format/plane_shape.h"
#include "compress/format/wave_predict.h"
#include "proto/contract/result.h"

namespace forebay::compress {

inline constexpr std::size_t kSumMargin = 32;  // columns on both sides of a row of sums
// A step of the displaced previous frame: the row above lane 0, the lanes' rows, the row below
// lane 63. It begins this many steps before step 0.
inline constexpr std::size_t kMovedStride = 80;
inline constexpr std::ptrdiff_t kMovedMargin = 4;

// Everything that decoding a chunk holds besides its plan. T is uint8_t or uint16_t. Samples of
// two bytes are kept less half their range, as signed numbers, wherever they lie in here.
template <typename T>
struct WaveMemory {
  std::array<PaddedFrame<T>, 3> ring;  // frame t lies in ring[t % 3]
  std::span<WaveSum<T>> sums;          // of one band of 64 rows: raster, kSumMargin around
  std::size_t sums_stride = 0;
  std::span<WaveSum<T>> wave_sums;     // [steps][64], lanes in the order that the kernel likes
  std::span<T> pixels;                 // [period + steps][64]
  std::array<std::span<std::uint8_t>, 2> sizes;  // [period + steps + 2][64]
  std::span<std::uint64_t> fresh;      // [steps + 1]: filters that enter lanes 0, b, 2b ...
  // Of learned chunks: as sizes; [steps][kMovedStride]; [steps][64]; a row of pixels.
  std::array<std::span<std::uint8_t>, 2> errors;
  std::span<std::uint8_t> moved, before, line;
};

// A frame under decode.
template <typename T>
struct WaveOrderFrame {
  const PlaneShape& shape;
  const WavePlan& plan;
  std::span<const WaveBlock> blocks;
  WaveMemory<T>& memory;
  const PaddedFrame<T>& current;
  const PaddedFrame<T>* previous = nullptr;  // null in an intra frame
  const PaddedFrame<T>* earlier = nullptr;   // null in the first two
  const std::uint8_t* previous_sizes = nullptr;
  std::uint8_t* sizes = nullptr;
  // Of learned chunks. Errors are kept whether there is a net for this frame or not.
  const PredictorNet* net = nullptr;
  PredictorRun run = nullptr;
  const std::uint8_t* previous_errors = nullptr;  // null in an intra frame
  std::uint8_t* errors = nullptr;
};

// What a kernel does for a frame, in this order.
template <typename T>
struct WaveOrderKernel {
  // Of an inter frame: `previous` and `earlier` into wave_sums.
  void (*sum_temporal)(const WaveOrderFrame<T>& frame);
  // All steps: pixels and sizes.
  void (*run_lanes)(const WaveOrderFrame<T>& frame, WaveStream& stream);
  // Pixels into `current`; up to 15 pixels on either side of a row may be overwritten.
  void (*to_raster)(const WaveOrderFrame<T>& frame);
};

// A step's lanes in memory.
struct LanesAtEnd {
  alignas(64) std::array<std::uint32_t, kWaveLanes> states;
  alignas(64) std::array<std::uint16_t, kWaveLanes> symbols;
  alignas(64) std::array<std::uint8_t, kWaveLanes> contexts;
};

// Moves states and decodes symbols, zero outside `lanes`, one lane after the other: for kernels
// whose loads might reach beyond the words.
void DecodeLanesAtEnd(std::span<const WaveEntry> table, std::uint32_t bits, std::uint64_t lanes,
                      WaveStream& stream, LanesAtEnd& at);

// Takes what DecodeWaveOrder will.
template <typename T>
void CountWaveOrder(const PlaneShape& shape, ScratchArena& arena);

// As DecodeWave, behind its plan; `run` is of a learned one's predictor. Equals the scalar decoder
// bit for bit.
template <typename T>
Status DecodeWaveOrder(const PlaneShape& shape, const WavePlan& plan, std::uint32_t frames_wanted,
                       const WaveOrderKernel<T>& kernel, PredictorRun run,
                       const FrameOutput& out, ScratchArena& arena);

extern template void CountWaveOrder<std::uint8_t>(const PlaneShape&, ScratchArena&);
extern template void CountWaveOrder<std::uint16_t>(const PlaneShape&, ScratchArena&);
extern template Status DecodeWaveOrder<std::uint8_t>(const PlaneShape&, const WavePlan&,
                                                     std::uint32_t,
                                                     const WaveOrderKernel<std::uint8_t>&,
                                                     PredictorRun,
                                                     const FrameOutput&, ScratchArena&);
extern template Status DecodeWaveOrder<std::uint16_t>(const PlaneShape&, const WavePlan&,
                                                      std::uint32_t,
                                                      const WaveOrderKernel<std::uint16_t>&,
                                                      PredictorRun,
                                                      const FrameOutput&, ScratchArena&);

}  // namespace forebay::compress
