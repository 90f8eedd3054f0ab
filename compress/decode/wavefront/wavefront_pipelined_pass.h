// The pass of wavefront_pass.h, software-pipelined: while a step's symbols are searched, most of
// the next step's prediction is summed. A search depends on the previous search, the sums hardly
// depend on it, and a processor does not reorder instructions over that distance by itself. Besides
// the operations of WavefrontPass, Lanes has
//
//   Begin(sums, choice), AddTap(tap, pixels, sums), End(sums, west, north)   Predict in parts
//   Look(contexts), Take(lanes, contexts, found)                          Decode in parts
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/decode/wavefront/wavefront_order.h"
#include "compress/decode/wavefront/wavefront_pass.h"
#include "compress/format/plane/wavefront_format.h"

namespace forebay::compress {

// One frame's pass over all steps, without a learned predictor.
template <typename Lanes>
class WavefrontPipelinedPass {
 public:
  using Sample = typename Lanes::Sample;

  explicit WavefrontPipelinedPass(const WavefrontOrderFrame<Sample>& frame)
      : frame_(frame), period_(WavefrontPeriod(frame.shape.columns)) {}

  void Run(WavefrontStream& stream) {
    if (frame_.previous != nullptr) {
      RunAs<true>(stream);
    } else {
      RunAs<false>(stream);
    }
  }

 private:
  using Bytes = typename Lanes::Bytes;
  using Pixels = typename Lanes::Pixels;
  using Sums = typename Lanes::Sums;

  // What step s finds: of the steps before it, and its own sums without west and north-east.
  struct Past {
    Pixels own1, east1, east2, upper0, upper1;  // of steps s - 1, s - 1, s - 2, s, s - 1
    Bytes size1, size_east1, size_east2;        // of steps s - 1, s - 1, s - 2
    Bytes choice1;                              // of step s - 1
    Sums sums;
    Bytes energy;
  };

  // Neighbours of a step that are known a step before it, in the order of kCurrentTaps.
  struct Known {
    Pixels west2, north, north_west, north2, north_west2, upper_west, upper_east;
    Bytes size_west2, size_north, size_north_west, size_north2;
  };

  static bool HasEdges(const LaneMasks::Step& at) {
    return (at.first | at.second | at.last) != 0;
  }

  // Begins a step's sums.
  template <bool kInter>
  [[gnu::always_inline]] inline void Prepare(std::uint32_t step, const LaneMasks::Step& at,
                                             const Lanes& lanes, Bytes choice, Known known,
                                             Past& past) const {
    const std::size_t here = std::size_t{step} * kWavefrontLanes;
    if (HasEdges(at)) {
      // In columns 0 and 1 west-west is west, which End adds.
      known.west2 = Lanes::Clear(at.first | at.second, known.west2);
      known.north_west = Lanes::Select(at.first, known.north_west, known.north);
      known.north_west2 =
          Lanes::Select(at.first | at.second, known.north_west2, known.north_west);
      known.upper_west = Lanes::Select(at.first, known.upper_west, known.north2);
      known.upper_east = Lanes::Select(at.last, known.upper_east, known.north2);
      known.size_west2 = Lanes::Clear(at.first | at.second, known.size_west2);
      known.size_north_west = Lanes::Clear(at.first, known.size_north_west);
    }
    past.sums = lanes.Begin(kInter ? frame_.memory.ordered_sums.data() + here : nullptr, choice);
    lanes.AddTap(8, known.upper_east, past.sums);
    lanes.AddTap(7, known.upper_west, past.sums);
    lanes.AddTap(6, known.north_west2, past.sums);
    lanes.AddTap(5, known.north2, past.sums);
    lanes.AddTap(3, known.north_west, past.sums);
    lanes.AddTap(2, known.north, past.sums);
    lanes.AddTap(1, known.west2, past.sums);
    past.energy = Lanes::Add(known.size_west2, known.size_north2);
    const auto add = [&](Bytes sizes) { past.energy = Lanes::Add(past.energy, sizes); };
    add(Lanes::Add(known.size_north, known.size_north));
    add(known.size_north_west);
    if constexpr (kInter) {
      const std::uint8_t* const previous =
          frame_.previous_sizes + here + std::size_t{period_} * kWavefrontLanes;
      const Bytes middle = Lanes::Load(previous);
      add(Lanes::Add(middle, middle));
      add(Lanes::Clear(at.first, Lanes::Load(previous - kWavefrontLanes)));
      add(Lanes::Clear(at.last, Lanes::Load(previous + kWavefrontLanes)));
    }
  }

  // A step, and the preparation of the next one.
  template <bool kInter>
  [[gnu::always_inline]] inline void Step(std::uint32_t step, const LaneMasks::Step& at,
                                          const LaneMasks::Step& next, Lanes& lanes,
                                          Past& past) {
    const std::size_t before = std::size_t{step} * kWavefrontLanes;
    const std::size_t now = before + std::size_t{period_} * kWavefrontLanes;
    Sample* const pixels = frame_.memory.pixels.data();
    std::uint8_t* const sizes = frame_.sizes;
    const bool edges = HasEdges(at);
    const Bytes size_east = lanes.ShiftBytes(past.size1, FirstEast(sizes)[before]);
    Bytes size_west = past.size1;
    Bytes size_beside = size_east;
    if (edges) {
      size_west = Lanes::Clear(at.first, size_west);
      size_beside = Lanes::Clear(at.last, size_beside);
    }
    const Bytes energy = Lanes::Add(Lanes::Add(past.energy, size_beside),
                                    Lanes::Add(size_west, size_west));
    const Bytes contexts = lanes.Contexts(energy);
    const std::uint64_t coded = at.active & ~Lanes::Skipped(past.sums.choice);
    typename Lanes::Found found = {};
    if (coded != 0) found = lanes.Look(contexts);

    const Pixels east = lanes.Shift(past.own1, FirstEast(pixels)[before]);
    const Sums begun = past.sums;
    const Bytes choice = lanes.Enter(past.choice1, frame_.memory.fresh.data()[step + 1]);
    const Pixels upper = lanes.Shift(past.east1, FirstUpper(pixels)[before + kWavefrontLanes]);
    const Known known = {
        .west2 = past.own1,
        .north = east,
        .north_west = past.east1,
        .north2 = past.upper0,
        .north_west2 = past.east2,
        .upper_west = past.upper1,
        .upper_east = upper,
        .size_west2 = past.size1,
        .size_north = size_east,
        .size_north_west = past.size_east1,
        .size_north2 = lanes.ShiftBytes(past.size_east2, FirstUpper(sizes)[before])};
    Prepare<kInter>(step + 1, next, lanes, choice, known, past);
    const Pixels value = Finish(at, edges, lanes, east, begun, past);

    typename Lanes::Symbols symbols = {};
    if (coded != 0) {
      symbols = lanes.NearEnd() ? lanes.DecodeAtEnd(coded, contexts)
                                : lanes.Take(coded, contexts, found);
    }
    const Pixels decoded = lanes.Join(value, symbols);
    const Bytes own_size = lanes.SizeOf(symbols);
    // Lanes 62 and 63 hold the rows above until they begin.
    Lanes::StorePixels(pixels + now, at.active, decoded);
    Lanes::Store(sizes + now, own_size);
    past.choice1 = begun.choice;
    past.upper1 = past.upper0;
    past.upper0 = upper;
    past.east2 = past.east1;
    past.east1 = east;
    past.own1 = decoded;
    past.size_east2 = past.size_east1;
    past.size_east1 = size_east;
    past.size1 = own_size;
  }

  // What a step's pixels are predicted to be, now that west and north-east are known.
  [[gnu::always_inline]] inline static Pixels Finish(const LaneMasks::Step& at, bool edges,
                                                     const Lanes& lanes, Pixels east, Sums sums,
                                                     const Past& past) {
    Pixels west = past.own1;
    const Pixels north = past.east1;
    if (edges) {
      west = Lanes::Select(at.first, west, north);
      east = Lanes::Select(at.last, east, north);
      lanes.AddTap(1, Lanes::Clear(~(at.first | at.second), west), sums);
    }
    lanes.AddTap(4, east, sums);
    lanes.AddTap(0, west, sums);
    return lanes.End(sums, west, north);
  }

  template <bool kInter>
  void RunAs(WavefrontStream& stream) {
    const Sample* const pixels = frame_.memory.pixels.data();
    LaneMasks masks(frame_.shape.rows, frame_.shape.columns);
    Lanes lanes(frame_, stream);
    const Pixels none = Lanes::AllPixels(0);
    const Bytes zero = Lanes::Zero();
    Past past{.own1 = none,
              .east1 = Lanes::AllPixels(*(FirstEast(pixels) - kWavefrontLanes)),
              .east2 = none,
              .upper0 = lanes.Shift(none, *FirstUpper(pixels)),
              .upper1 = Lanes::AllPixels(*(FirstUpper(pixels) - kWavefrontLanes)),
              .size1 = zero,
              .size_east1 = zero,
              .size_east2 = zero,
              .choice1 = zero,
              .sums = {},
              .energy = zero};
    LaneMasks::Step at = masks.Next();
    Prepare<kInter>(0, at, lanes, lanes.Enter(zero, frame_.memory.fresh.data()[0]),
                    {.west2 = none,
                     .north = past.east1,
                     .north_west = none,
                     .north2 = past.upper1,
                     .north_west2 = none,
                     .upper_west = none,
                     .upper_east = past.upper0,
                     .size_west2 = zero,
                     .size_north = zero,
                     .size_north_west = zero,
                     .size_north2 = zero},
                    past);
    const std::uint32_t steps = WavefrontSteps(frame_.shape.rows, frame_.shape.columns);
    for (std::uint32_t step = 0; step < steps; ++step) {
      const LaneMasks::Step next = masks.Next();
      Step<kInter>(step, at, next, lanes, past);
      at = next;
    }
    lanes.Finish();
  }

  // Lane 0's upper neighbours, as in WavefrontPass.
  template <typename T>
  static const T* FirstEast(const T* plane) {
    return plane + 127 * kWavefrontLanes + 63;
  }
  template <typename T>
  static const T* FirstUpper(const T* plane) {
    return plane + 125 * kWavefrontLanes + 62;
  }

  const WavefrontOrderFrame<Sample>& frame_;
  const std::uint32_t period_;
};

}  // namespace forebay::compress
