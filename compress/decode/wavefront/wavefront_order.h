// Frames in wavefront order, for kernels that hold a step's 64 lanes in registers: what lane j does
// in step s lies at 64 s + j. A neighbour is then what an earlier step held, displaced by a lane
// for each row that it lies higher. Raster rows become wavefront order and back again in tiles.
//
// Kernels are compiled for processors that may not be there. What they share is inline or in
// a .cc file of no special flags, so that no function of theirs stands in for a common one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/frame_output.h"
#include "compress/decode/learned/predictor_run.h"
#include "compress/decode/scratch_arena.h"
#include "compress/decode/wavefront/wavefront_frame.h"
#include "compress/decode/wavefront/wavefront_plan.h"
#include "compress/format/plane/padded_frame.h"
#include "compress/format/plane/plane_shape.h"
#include "compress/format/plane/wavefront_predict.h"
#include "proto/contract/result.h"

namespace forebay::compress {

inline constexpr std::size_t kSumMargin = 32;  // columns on both sides of a row of sums
// A step of the displaced previous frame: the row above lane 0, the lanes' rows, the row below
// lane 63. It begins this many steps before step 0.
inline constexpr std::size_t kDisplacedStride = 80;
inline constexpr std::ptrdiff_t kDisplacedMargin = 4;

// Everything that decoding a chunk holds besides its plan. T is uint8_t or uint16_t. Samples of
// two bytes are kept less half their range, as signed numbers, wherever they lie in here.
template <typename T>
struct WavefrontMemory {
  std::array<PaddedFrame<T>, 3> ring;  // frame t lies in ring[t % 3]
  std::span<WavefrontSum<T>> sums;     // of one band of 64 rows: raster, kSumMargin around
  std::size_t sums_stride = 0;
  std::span<WavefrontSum<T>> ordered_sums;  // [steps][64], lanes in the kernel's own order
  std::span<T> pixels;                 // [period + steps][64]
  std::array<std::span<std::uint8_t>, 2> sizes;  // [period + steps + 2][64]
  std::span<std::uint64_t> fresh;      // [steps + 1]: filters that enter lanes 0, b, 2b ...
  // Of learned chunks: as sizes; [steps][kDisplacedStride]; [steps][64]; a row of pixels.
  std::array<std::span<std::uint8_t>, 2> errors;
  std::span<std::uint8_t> displaced, before, line;
};

// A frame under decode.
template <typename T>
struct WavefrontOrderFrame {
  const PlaneShape& shape;
  const WavefrontPlan& plan;
  std::span<const WavefrontBlock> blocks;
  WavefrontMemory<T>& memory;
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
struct WavefrontOrderKernel {
  // Of an inter frame: `previous` and `earlier` into ordered_sums.
  void (*sum_temporal)(const WavefrontOrderFrame<T>& frame);
  // All steps: pixels and sizes.
  void (*run_lanes)(const WavefrontOrderFrame<T>& frame, WavefrontStream& stream);
  // Pixels into `current`; up to 15 pixels on either side of a row may be overwritten.
  void (*to_raster)(const WavefrontOrderFrame<T>& frame);
};

// The kernels, for samples of up to 8 bits and (`Wide`) of 9 to 16 bits. A step's 64 samples take
// one register of AVX-512 or two of AVX2, and twice as many where samples are wide.
extern const WavefrontOrderKernel<std::uint8_t> kWavefrontAvx512, kWavefrontAvx2;
extern const WavefrontOrderKernel<std::uint16_t> kWavefrontWideAvx512, kWavefrontWideAvx2;

// A step's lanes in memory.
struct LanesAtEnd {
  alignas(64) std::array<std::uint32_t, kWavefrontLanes> states;
  alignas(64) std::array<std::uint16_t, kWavefrontLanes> symbols;
  alignas(64) std::array<std::uint8_t, kWavefrontLanes> contexts;
};

// Moves states and decodes symbols, zero outside `lanes`, one lane after the other: for kernels
// whose loads might reach beyond the words.
void DecodeLanesAtEnd(std::span<const WavefrontEntry> table, std::uint32_t bits,
                      std::uint64_t lanes, WavefrontStream& stream, LanesAtEnd& at);

// Takes what DecodeWavefrontOrder will.
template <typename T>
void CountWavefrontOrder(const PlaneShape& shape, ScratchArena& arena);

// As DecodeWavefront, behind its plan; `run` is of a learned one's predictor. Equals the scalar
// decoder bit for bit.
template <typename T>
Status DecodeWavefrontOrder(const PlaneShape& shape, const WavefrontPlan& plan,
                            std::uint32_t frames_wanted, const WavefrontOrderKernel<T>& kernel,
                            PredictorRun run, const FrameOutput& out, ScratchArena& arena);

extern template void CountWavefrontOrder<std::uint8_t>(const PlaneShape&, ScratchArena&);
extern template void CountWavefrontOrder<std::uint16_t>(const PlaneShape&, ScratchArena&);
extern template Status DecodeWavefrontOrder<std::uint8_t>(const PlaneShape&, const WavefrontPlan&,
                                                          std::uint32_t,
                                                          const WavefrontOrderKernel<std::uint8_t>&,
                                                          PredictorRun, const FrameOutput&,
                                                          ScratchArena&);
extern template Status DecodeWavefrontOrder<std::uint16_t>(
    const PlaneShape&, const WavefrontPlan&, std::uint32_t,
    const WavefrontOrderKernel<std::uint16_t>&, PredictorRun, const FrameOutput&, ScratchArena&);

}  // namespace forebay::compress
