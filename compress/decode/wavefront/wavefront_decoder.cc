// Decodes wavefront-coded planes (docs/pack_planes.md): reads the plan (wavefront_plan.h), then
// decodes with the kernel of the instruction set (wavefront_order.h), or, without one, with the
// scalar decoder in this file. That keeps three frames in a ring, since a frame is predicted from
// the two before it, and sums up what these contribute before it decodes the frame. Called by
// plane_decoder.cc.
#include "compress/decode/wavefront/wavefront_decoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "compress/decode/isa.h"
#include "compress/decode/scratch_arena.h"
#include "compress/decode/wavefront/wavefront_frame.h"
#include "compress/decode/wavefront/wavefront_order.h"
#include "compress/decode/wavefront/wavefront_plan.h"
#include "compress/format/damaged.h"
#include "compress/format/plane/padded_frame.h"
#include "compress/format/plane/wavefront_predict.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

// The memory of the scalar decoder besides the plan.
template <typename T>
struct WavefrontFrames {
  std::array<PaddedFrame<T>, 3> ring;  // frame t lies in ring[t % 3]
  std::span<WavefrontSum<T>> temporal;
  std::array<std::span<std::uint8_t>, 2> sizes;
  // Of learned chunks.
  std::array<std::span<std::int8_t>, 2> errors;
  std::span<std::uint8_t> displaced, before;

  void Take(const PlaneShape& shape, ScratchArena& arena) {
    for (PaddedFrame<T>& frame : ring) {
      const std::size_t samples = PaddedFrame<T>::Samples(shape.rows, shape.columns);
      const auto memory = arena.Take<T>(samples);
      if (!memory.empty()) frame = PaddedFrame<T>::Over(memory.data(), shape.rows, shape.columns);
    }
    temporal = arena.Take<WavefrontSum<T>>(shape.frame_samples());
    for (auto& plane : sizes) plane = arena.Take<std::uint8_t>(shape.frame_samples());
    // Learned predictors correct samples of up to 8 bits only.
    if (sizeof(T) > 1) return;
    for (auto& plane : errors) plane = arena.Take<std::int8_t>(shape.frame_samples());
    displaced = arena.Take<std::uint8_t>(shape.frame_samples());
    before = arena.Take<std::uint8_t>(shape.frame_samples());
  }
};

template <typename T>
PaddedFrame<const T> Const(const PaddedFrame<T>& frame) {
  return {frame.origin, frame.rows, frame.columns, frame.stride};
}

// The two rows above a frame: the previous frame's first row, or a constant.
template <typename T>
void SetRowsAbove(const PaddedFrame<T>& current, const PaddedFrame<T>* previous, T top) {
  // Both rows are the same, so that taps two rows up need no rule of their own.
  for (std::int32_t row : {-1, -2}) {
    if (previous != nullptr) {
      std::copy_n(previous->Row(0), current.columns, current.Row(row));
    } else {
      std::fill_n(current.Row(row), current.columns, top);
    }
  }
}

// Adds up what earlier frames contribute to every prediction of a frame, block by block.
template <typename T>
void PredictTemporal(const WavefrontPlan& plan, std::span<const WavefrontBlock> blocks,
                     const PaddedFrame<const T>& previous, const PaddedFrame<const T>* earlier,
                     std::int32_t middle, std::span<WavefrontSum<T>> sums) {
  // This part depends on frames that are already decoded, so it needs no wavefront and is summed up
  // front; the current frame's taps are added pixel by pixel.
  std::ranges::fill(sums, WavefrontSum<T>{0});
  const std::uint32_t size = 1U << plan.parameters.block_log2;
  for (std::uint32_t row = 0; row < previous.rows; ++row) {
    const WavefrontBlock* block =
        &blocks[std::size_t{row >> plan.parameters.block_log2} * plan.block_columns];
    for (std::uint32_t column = 0; column < previous.columns; column += size, ++block) {
      AddTemporalTaps<T>(plan.parameters.inter.filters[block->filter & 0x0F], *block, previous,
                         earlier, static_cast<std::int32_t>(row),
                         static_cast<std::int32_t>(column),
                         std::min(size, previous.columns - column), middle,
                         &sums[std::size_t{row} * previous.columns + column]);
    }
  }
}

// Prepares the inputs of a learned predictor that do not come from the current frame: displaced
// earlier frames and their errors.
void PrepareLearned(const WavefrontPlan& plan, std::uint32_t t,
                    std::span<const WavefrontBlock> blocks,
                    const PaddedFrame<const std::uint8_t>& previous,
                    const PaddedFrame<const std::uint8_t>& earlier,
                    WavefrontFrames<std::uint8_t>& frames, WavefrontFrameJob<std::uint8_t>& job) {
  const PaddedFrame<std::uint8_t>& current = job.current;
  job.net = plan.nets[t > 0 ? 1 : 0];
  // Two planes in turn: this frame's errors are the next one's inputs.
  job.errors = frames.errors[t % 2].data();
  job.learned = {.rows = current.rows, .columns = current.columns, .errors = job.errors};
  if (t == 0) return;
  job.learned.displaced = frames.displaced.data();
  job.learned.before = frames.before.data();
  job.learned.previous_errors = frames.errors[(t - 1) % 2].data();
  const std::uint32_t log2 = plan.parameters.block_log2;
  for (std::uint32_t row = 0; row < current.rows; ++row) {
    const auto y = static_cast<std::int32_t>(row);
    const WavefrontBlock* const line = &blocks[std::size_t{row >> log2} * plan.block_columns];
    const std::size_t at = std::size_t{row} * current.columns;
    DisplaceRow(previous, line, log2, 1, y, &frames.displaced[at]);
    DisplaceRow(t > 1 ? earlier : previous, line, log2, t > 1 ? 2 : 1, y, &frames.before[at]);
  }
}

template <typename T>
Status DecodeFrames(const PlaneShape& shape, const WavefrontPlan& plan, std::uint32_t frames_wanted,
                    const FrameOutput& out, ScratchArena& arena) {
  WavefrontFrames<T> frames;
  frames.Take(shape, arena);
  WavefrontStream stream{.states = plan.states,
                         .next = plan.words.data(),
                         .end = plan.words.data() + plan.words.size()};
  const std::int32_t middle = 1 << (shape.bits - 1);
  const std::size_t frame_blocks = std::size_t{plan.block_rows} * plan.block_columns;
  for (std::uint32_t t = 0; t < frames_wanted; ++t) {
    const PaddedFrame<T>& current = frames.ring[t % 3];
    // Frames are decoded in order from the first, even if only a later one is wanted, because each
    // is predicted from the two before it.
    const PaddedFrame<T>* previous = t > 0 ? &frames.ring[(t - 1) % 3] : nullptr;
    SetRowsAbove<T>(current, previous, static_cast<T>(plan.parameters.top));
    const std::span<const WavefrontBlock> blocks =
        plan.blocks.subspan(t * frame_blocks, frame_blocks);
    WavefrontFrameJob<T> job{.parameters = &plan.parameters,
                             .group = t > 0 ? &plan.parameters.inter : &plan.parameters.intra,
                             .table = t > 0 ? plan.inter_table : plan.intra_table,
                             .blocks = blocks,
                             .block_columns = plan.block_columns,
                             .bits = shape.bits,
                             .current = current};
    // t + 1 and t - 2 are the same place in a ring of three.
    const PaddedFrame<const T> earlier = Const(frames.ring[(t + 1) % 3]);
    if (t > 0) {
      PredictTemporal<T>(plan, blocks, Const(*previous), t > 1 ? &earlier : nullptr, middle,
                         frames.temporal);
      job.temporal = frames.temporal.data();
    }
    if constexpr (sizeof(T) == 1) {
      if (plan.learned()) {
        // t + 2 and t - 1 are the same place in the ring. In frame 0 neither place is read.
        PrepareLearned(plan, t, blocks, Const(frames.ring[(t + 2) % 3]), earlier, frames, job);
      }
    }
    DecodeWavefrontFrame(job, t > 0 ? frames.sizes[(t - 1) % 2].data() : nullptr,
                         frames.sizes[t % 2].data(), stream);
    // The next frames' displaced blocks may reach beyond the edges.
    current.Extend();
    const std::size_t row_bytes = shape.columns * sizeof(T);
    const std::span<std::byte> place = out.At(t, shape.rows * row_bytes);
    for (std::uint32_t row = 0; !place.empty() && row < shape.rows; ++row) {
      std::memcpy(place.data() + row * row_bytes, current.Row(static_cast<std::int32_t>(row)),
                  row_bytes);
    }
  }
  // Whether words ran out is asked once, at the end: a lane that finds none takes zeros and notes
  // it (`overrun`). Decoding zeros does no harm, and the frame is thrown away.
  if (stream.overrun || (frames_wanted == shape.frames && !stream.AtEnd())) {
    return Damaged("wavefront-coded planes", "the rANS words do not end with the last frame");
  }
  return {};
}

// The kernel for samples of type T and this instruction set; null for the scalar decoder.
template <typename T>
const WavefrontOrderKernel<T>* Vectors(Isa isa) {
#ifdef FOREBAY_X86_KERNELS
  if (isa == Isa::kAvx512) {
    if constexpr (sizeof(T) == 1) {
      return &kWavefrontAvx512;
    } else {
      return &kWavefrontWideAvx512;
    }
  }
  if (isa == Isa::kAvx2) {
    if constexpr (sizeof(T) == 1) {
      return &kWavefrontAvx2;
    } else {
      return &kWavefrontWideAvx2;
    }
  }
#endif
  static_cast<void>(isa);
  return nullptr;
}

// Scratch memory for the kernels of every instruction set, so that machines agree which packs need
// too much memory.
template <typename T>
std::size_t WavefrontMemoryBytes(const PlaneShape& shape) {
  ScratchArena scalar;
  CountWavefrontPlan(shape, scalar);
  ScratchArena vectors = scalar;
  // Both ways have the plan's memory in common, and then each has its own.
  WavefrontFrames<T>().Take(shape, scalar);
  CountWavefrontOrder<T>(shape, vectors);
  return std::max(scalar.bytes(), vectors.bytes());
}

template <typename T>
Status Decode(const PlaneShape& shape, const WavefrontPlan& plan, std::uint32_t frames_wanted,
              Isa isa, const FrameOutput& out, ScratchArena& arena) {
  const WavefrontOrderKernel<T>* const vectors = Vectors<T>(isa);
  return vectors != nullptr ? DecodeWavefrontOrder<T>(shape, plan, frames_wanted, *vectors,
                                                      PredictorRunOf(isa), out, arena)
                            : DecodeFrames<T>(shape, plan, frames_wanted, out, arena);
}

}  // namespace

std::size_t WavefrontScratchBytes(const PlaneShape& shape) {
  return shape.bits <= 8 ? WavefrontMemoryBytes<std::uint8_t>(shape)
                         : WavefrontMemoryBytes<std::uint16_t>(shape);
}

Status DecodeWavefront(const PlaneShape& shape, std::span<const std::byte> body,
                       std::uint32_t frames_wanted, Isa isa, const FrameOutput& out,
                       std::span<std::byte> scratch, const Predictor* predictor) {
  // DecodePlanes has refused such a body, so this is an error of the program.
  FOREBAY_CHECK(predictor == nullptr || shape.bits <= 8);
  ScratchArena arena(scratch);
  FOREBAY_ASSIGN(const WavefrontPlan plan,
                 ReadWavefrontPlan(shape, body, frames_wanted, arena, predictor));
  return shape.bits <= 8
             ? Decode<std::uint8_t>(shape, plan, frames_wanted, isa, out, arena)
             : Decode<std::uint16_t>(shape, plan, frames_wanted, isa, out, arena);
}

}  // namespace forebay::compress
