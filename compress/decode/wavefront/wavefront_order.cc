// Drives the kernels of wavefront planes (wavefront_order.h): takes their memory, prepares what a
// frame needs from the one before (rows above, filters that enter lanes, displaced frames for
// learned predictors), runs the kernel and copies the frame out. Kernels share this file, which is
// compiled without special instructions.
#include "compress/decode/wavefront/wavefront_order.h"

#include <algorithm>
#include <cstring>

#include "compress/format/damaged.h"
#include "compress/format/plane/learned_inputs.h"

namespace forebay::compress {
namespace {

// Steps behind the last one that are read: the one east of it, and the one after that, which
// pipelined kernels prepare for.
constexpr std::ptrdiff_t kStepsBehind = 2;

// Takes all memory of a chunk. With one frame, as in all narrow chunks, nothing of a previous frame
// is needed: its two planes of sizes are one, and what only inter frames read is left out.
template <typename T>
WavefrontMemory<T> TakeMemory(const PlaneShape& shape, ScratchArena& arena) {
  const bool inter = shape.frames > 1;
  const auto take_pair = [&](std::size_t bytes, std::array<std::span<std::uint8_t>, 2>& pair) {
    pair[0] = arena.Take<std::uint8_t>(bytes);
    pair[1] = inter ? arena.Take<std::uint8_t>(bytes) : pair[0];
  };
  WavefrontMemory<T> memory;
  // Loads of a register may begin at a frame's last sample.
  const std::size_t samples = PaddedFrame<T>::Samples(shape.rows, shape.columns) + 64;
  // One frame is enough for an intra chunk: the ring's other places stay empty and are never read.
  for (PaddedFrame<T>& frame : memory.ring) {
    if (!inter && &frame != memory.ring.data()) break;
    const auto taken = arena.Take<T>(samples);
    if (!taken.empty()) frame = PaddedFrame<T>::Over(taken.data(), shape.rows, shape.columns);
  }
  const std::size_t steps = WavefrontSteps(shape.rows, shape.columns);
  const std::size_t with_above = steps + WavefrontPeriod(shape.columns);
  // Margins on both sides, because tiles that turn rows into steps read up to 8 columns beyond a
  // row, and rounded so that rows begin alike.
  memory.sums_stride = (shape.columns + 2 * kSumMargin + 31) / 32 * 32;
  if (inter) {
    memory.sums =
        arena.Take<WavefrontSum<T>>(memory.sums_stride * (kWavefrontLanes + 1) + kSumMargin);
    memory.ordered_sums = arena.Take<WavefrontSum<T>>((steps + 8) * kWavefrontLanes);
  }
  // The pixels have one period more than the frame has steps, for the rows above it, and 16 steps
  // more for the last tile.
  memory.pixels = arena.Take<T>((with_above + 16) * kWavefrontLanes);
  take_pair((with_above + kStepsBehind) * kWavefrontLanes, memory.sizes);
  memory.fresh = arena.Take<std::uint64_t>(steps + 1);
  if (sizeof(T) > 1) return memory;
  take_pair((with_above + kStepsBehind) * kWavefrontLanes, memory.errors);
  if (!inter) return memory;
  memory.displaced = arena.Take<std::uint8_t>((steps + 8) * kDisplacedStride);
  memory.before = arena.Take<std::uint8_t>(steps * kWavefrontLanes);
  memory.line = arena.Take<std::uint8_t>(shape.columns);
  return memory;
}

// Puts the two rows above the frame where lanes 63 and 62 of an earlier band would have left them.
// So the first band needs no code of its own.
template <typename T>
void SetRowsAbove(const PlaneShape& shape, const T* above, T top, std::span<T> pixels) {
  // Row -1's column c belongs to step c + 126 - period of lane 63; row -2's to c + 124 - period
  // of lane 62. `pixels` begins at step -period.
  for (std::uint32_t column = 0; column < shape.columns; ++column) {
    const T value = above != nullptr ? above[column] : top;
    pixels[(std::size_t{column} + 126) * kWavefrontLanes + 63] = value;
    pixels[(std::size_t{column} + 124) * kWavefrontLanes + 62] = value;
  }
}

// Notes for each step which filters enter which groups of lanes. The first lanes of block rows lie
// 2 * size steps apart; in the middle of a band, where every row has columns, the same filters
// enter for `size` steps, so a whole word is filled at once.
void SetFresh(const PlaneShape& shape, const WavefrontPlan& plan,
              std::span<const WavefrontBlock> blocks, std::span<std::uint64_t> fresh) {
  const std::uint32_t log2 = plan.parameters.block_log2;
  const std::uint32_t size = 1U << log2;
  const std::uint32_t period = WavefrontPeriod(shape.columns);
  const std::uint32_t groups = kWavefrontLanes >> log2;
  // Where the first lane of a group is outside its row, filter 0 enters. Lanes outside their rows
  // compute something that is not used.
  std::ranges::fill(fresh, 0);
  for (std::uint32_t band = 0; band < WavefrontBands(shape.rows); ++band) {
    std::uint64_t* const steps = fresh.data() + std::size_t{band} * period;
    const std::uint32_t rows =
        std::min(groups, (shape.rows - band * kWavefrontLanes + size - 1) >> log2);
    const WavefrontBlock* const top =
        blocks.data() + (std::size_t{band} * kWavefrontLanes >> log2) * plan.block_columns;
    const auto enter = [&](std::uint32_t group, std::uint32_t begin, std::uint32_t end) {
      auto* const bytes = reinterpret_cast<std::uint8_t*>(steps + kWavefrontLag * size * group);
      const WavefrontBlock* const line = top + std::size_t{group} * plan.block_columns;
      for (std::uint32_t column = begin; column < end; ++column) {
        bytes[std::size_t{column} * 8 + group] = line[column >> log2].filter;
      }
    };
    const std::uint32_t last_begin = kWavefrontLag * (groups - 1);  // in blocks
    const std::uint32_t whole = shape.columns >> log2;
    const std::uint32_t middle = std::min(last_begin, whole);
    for (std::uint32_t group = 0; group < rows; ++group) {
      const std::uint32_t late = kWavefrontLag * group;
      enter(group, 0, std::min((middle - std::min(middle, late)) << log2, shape.columns));
      enter(group, (whole - std::min(whole, late)) << log2, shape.columns);
    }
    for (std::uint32_t block = middle; block < whole; ++block) {
      std::uint64_t word = 0;
      for (std::uint32_t group = 0; group < rows; ++group) {
        const WavefrontBlock& from = top[std::size_t{group} * plan.block_columns + block -
                                         std::size_t{kWavefrontLag} * group];
        word |= std::uint64_t{from.filter} << (8 * group);
      }
      std::fill_n(steps + (std::size_t{block} << log2), size, word);
    }
  }
}

// Writes a row of pixels in wavefront order: one pixel a step, steps `stride` bytes apart.
void ScatterRow(std::span<const std::uint8_t> line, std::size_t stride, std::uint8_t* to) {
  for (const std::uint8_t pixel : line) {
    *to = pixel;
    to += stride;
  }
}

// Prepares the displaced earlier frames that a learned predictor looks at, in wavefront order. The
// row above the first lane and the row below the last one belong to a band, too.
void SetDisplaced(const WavefrontOrderFrame<std::uint8_t>& frame) {
  const WavefrontMemory<std::uint8_t>& memory = frame.memory;
  const auto view = [](const PaddedFrame<std::uint8_t>& source) {
    return PaddedFrame<const std::uint8_t>{source.origin, source.rows, source.columns,
                                           source.stride};
  };
  const bool two = frame.earlier != nullptr;
  const PaddedFrame<const std::uint8_t> previous = view(*frame.previous);
  const PaddedFrame<const std::uint8_t> before = two ? view(*frame.earlier) : previous;
  const std::uint32_t log2 = frame.plan.parameters.block_log2;
  const std::size_t period = WavefrontPeriod(frame.shape.columns);
  const auto last = static_cast<std::int32_t>(frame.shape.rows) - 1;
  for (std::uint32_t band = 0; band < WavefrontBands(frame.shape.rows); ++band) {
    for (std::int32_t lane = -1; lane <= static_cast<std::int32_t>(kWavefrontLanes); ++lane) {
      const std::int32_t wanted = static_cast<std::int32_t>(band * kWavefrontLanes) + lane;
      // The row below the last one is needed as a neighbour, and repeats the last one.
      if (wanted > last + 1) break;
      const std::int32_t row = std::clamp(wanted, 0, last);
      const WavefrontBlock* const line =
          &frame.blocks[static_cast<std::size_t>(row >> log2) * frame.plan.block_columns];
      const std::ptrdiff_t step =
          static_cast<std::ptrdiff_t>(band * period) + std::ptrdiff_t{kWavefrontLag} * lane;
      DisplaceRow(previous, line, log2, 1, row, memory.line.data());
      ScatterRow(memory.line, kDisplacedStride,
                 memory.displaced.data() +
                     (step + kDisplacedMargin) * static_cast<std::ptrdiff_t>(kDisplacedStride) +
                     lane + 1);
      // The frame before the previous one is looked at in the pixel's own place only, so it needs
      // no rows above and below.
      if (row != wanted || lane < 0 || lane == static_cast<std::int32_t>(kWavefrontLanes)) continue;
      DisplaceRow(before, line, log2, two ? 2 : 1, row, memory.line.data());
      ScatterRow(memory.line, kWavefrontLanes,
                 memory.before.data() + step * std::ptrdiff_t{kWavefrontLanes} + lane);
    }
  }
}

// Clears what kernels read beyond a frame: sizes above its first band and behind its last step.
void ClearAround(std::size_t above_bytes, std::array<std::span<std::uint8_t>, 2>& planes) {
  for (auto& plane : planes) {
    std::fill_n(plane.begin(), above_bytes, std::uint8_t{0});
    std::fill_n(plane.end() - kStepsBehind * kWavefrontLanes, kStepsBehind * kWavefrontLanes,
                std::uint8_t{0});
  }
}

// Copies a frame to the caller's memory. Wide kernels keep samples less half their range, as signed
// numbers; `offset` is added back.
template <typename T>
void CopyOut(const PaddedFrame<T>& frame, std::uint32_t offset, std::byte* out) {
  const std::size_t row_bytes = frame.columns * sizeof(T);
  for (std::uint32_t row = 0; row < frame.rows; ++row, out += row_bytes) {
    const T* const line = frame.Row(static_cast<std::int32_t>(row));
    if constexpr (sizeof(T) == 1) {
      std::memcpy(out, line, row_bytes);
    } else {
      for (std::uint32_t column = 0; column < frame.columns; ++column) {
        const auto value = static_cast<T>(line[column] + offset);
        std::memcpy(out + column * sizeof(T), &value, sizeof(T));
      }
    }
  }
}

}  // namespace

void DecodeLanesAtEnd(std::span<const WavefrontEntry> table, std::uint32_t bits,
                      std::uint64_t lanes, WavefrontStream& stream, LanesAtEnd& at) {
  at.symbols.fill(0);
  for (std::uint32_t lane = 0; lane < kWavefrontLanes; ++lane) {
    // Lanes without a pixel take no word and keep symbol 0.
    if ((lanes >> lane & 1) == 0) continue;
    const std::size_t first = std::size_t{at.contexts[lane]} * kWavefrontProbabilityScale;
    at.symbols[lane] = static_cast<std::uint16_t>(DecodeWavefrontSymbol(
        table.subspan(first, kWavefrontProbabilityScale), bits, at.states[lane], stream));
  }
}

template <typename T>
void CountWavefrontOrder(const PlaneShape& shape, ScratchArena& arena) {
  TakeMemory<T>(shape, arena);
}

template <typename T>
Status DecodeWavefrontOrder(const PlaneShape& shape, const WavefrontPlan& plan,
                            std::uint32_t frames_wanted, const WavefrontOrderKernel<T>& kernel,
                            PredictorRun run, const FrameOutput& out, ScratchArena& arena) {
  WavefrontMemory<T> memory = TakeMemory<T>(shape, arena);
  const std::size_t above_bytes = std::size_t{WavefrontPeriod(shape.columns)} * kWavefrontLanes;
  ClearAround(above_bytes, memory.sizes);
  if (plan.learned()) ClearAround(above_bytes, memory.errors);
  // States and words go on from frame to frame, so whether they end well is asked once, at the end.
  WavefrontStream stream{.states = plan.states,
                         .next = plan.words.data(),
                         .end = plan.words.data() + plan.words.size()};
  const std::uint32_t offset = sizeof(T) == 1 ? 0 : 1U << (shape.bits - 1);
  const std::size_t frame_blocks = std::size_t{plan.block_rows} * plan.block_columns;
  for (std::uint32_t t = 0; t < frames_wanted; ++t) {
    WavefrontOrderFrame<T> frame{.shape = shape,
                                 .plan = plan,
                                 .blocks = plan.blocks.subspan(t * frame_blocks, frame_blocks),
                                 .memory = memory,
                                 .current = memory.ring[t % 3],
                                 .previous = t > 0 ? &memory.ring[(t - 1) % 3] : nullptr,
                                 .earlier = t > 1 ? &memory.ring[(t + 1) % 3] : nullptr,
                                 .previous_sizes = memory.sizes[(t + 1) % 2].data(),
                                 .sizes = memory.sizes[t % 2].data()};
    SetRowsAbove<T>(shape, t > 0 ? frame.previous->Row(0) : nullptr,
                    static_cast<T>(plan.parameters.top - offset), memory.pixels);
    SetFresh(shape, plan, frame.blocks, memory.fresh);
    if (t > 0) kernel.sum_temporal(frame);
    if constexpr (sizeof(T) == 1) {
      if (plan.learned()) {
        frame.net = plan.nets[t > 0 ? 1 : 0];
        frame.run = run;
        frame.errors = memory.errors[t % 2].data();
        if (t > 0) frame.previous_errors = memory.errors[(t - 1) % 2].data();
        if (t > 0 && frame.net != nullptr) SetDisplaced(frame);
      }
    }
    kernel.run_lanes(frame, stream);
    kernel.to_raster(frame);
    const std::span<std::byte> place = out.At(t, shape.frame_samples() * sizeof(T));
    if (!place.empty()) CopyOut(frame.current, offset, place.data());
    // Displaced blocks of the next frame may reach beyond the edges.
    if (t + 1 < frames_wanted) frame.current.Extend();
  }
  // Words are left over where fewer frames are wanted. Then the checksums of samples must find
  // damage.
  if (stream.overrun || (frames_wanted == shape.frames && !stream.AtEnd())) {
    return Damaged("wavefront-coded planes", "the rANS words do not end with the last frame");
  }
  return {};
}

template void CountWavefrontOrder<std::uint8_t>(const PlaneShape&, ScratchArena&);
template void CountWavefrontOrder<std::uint16_t>(const PlaneShape&, ScratchArena&);
template Status DecodeWavefrontOrder<std::uint8_t>(const PlaneShape&, const WavefrontPlan&,
                                                   std::uint32_t,
                                                   const WavefrontOrderKernel<std::uint8_t>&,
                                                   PredictorRun, const FrameOutput&, ScratchArena&);
template Status DecodeWavefrontOrder<std::uint16_t>(const PlaneShape&, const WavefrontPlan&,
                                                    std::uint32_t,
                                                    const WavefrontOrderKernel<std::uint16_t>&,
                                                    PredictorRun, const FrameOutput&,
                                                    ScratchArena&);

}  // namespace forebay::compress
