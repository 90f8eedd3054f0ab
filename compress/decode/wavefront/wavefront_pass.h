// Decodes a frame step by step, for kernels that hold the 64 lanes of a step in registers. The
// class Lanes implements the operations of one instruction set and sample width
// (wavefront_lanes_avx512.h has those that AVX-512 kernels share):
//
//   Sample, Bytes, Pixels, Symbols  a sample in memory; 64 bytes, samples, decoded symbols
//   kSplitsEdges                    Select and Clear cost enough to have steps without them
//   Lanes(frame, stream), Finish()  takes over the stream's states; gives them back
//   Select(lanes, a, b)             of Pixels: b in `lanes`, else a;  Clear(lanes, a) of Bytes
//   Shift(a, first), ShiftBytes     lane j takes what lane j - 1 has, lane 0 takes `first`
//   Enter(choice, fresh)            as Shift; the first lanes of block rows take new filters
//   Predict(sums, choice, taps)     sums: the step's, or null;  Join(value, symbols): the pixels
//   Contexts(energy), Decode(lanes, contexts), SizeOf(symbols)
//   NearEnd(), DecodeAtEnd          Decode might read beyond the words; its stand-in
// and, where samples are bytes, what wavefront_learned.h says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "compress/decode/wavefront/wavefront_learned.h"
#include "compress/decode/wavefront/wavefront_order.h"
#include "compress/format/plane/wavefront_format.h"

namespace forebay::compress {

// Tells for each step which lanes are at the edges or inside of their rows. Lane j is where lane j
// - 1 was two steps before.
class LaneMasks {
 public:
  LaneMasks(std::uint32_t rows, std::uint32_t columns)
      : columns_(columns), period_(WavefrontPeriod(columns)), bands_(WavefrontBands(rows)) {
    const std::uint32_t last_rows = rows - (bands_ - 1) * kWavefrontLanes;
    last_rows_ =
        last_rows == kWavefrontLanes ? ~std::uint64_t{0} : (std::uint64_t{1} << last_rows) - 1;
  }

  struct Step {
    std::uint64_t active = 0, first = 0, second = 0, last = 0, last_band = 0;
  };

  // Call once a step, from step 0 on.
  [[gnu::always_inline]] const Step& Next() {
    Step& step = parity_[step_ & 1];
    const bool in_frame = band_ < bands_;
    step.last_band = step.last_band << 1 | static_cast<std::uint64_t>(band_ + 1 >= bands_);
    raw_[step_ & 1] = raw_[step_ & 1] << 1 |
                      static_cast<std::uint64_t>(in_frame && column_ < columns_);
    step.first = step.first << 1 | static_cast<std::uint64_t>(column_ == 0);
    step.second = step.second << 1 | static_cast<std::uint64_t>(column_ == 1);
    step.last = step.last << 1 | static_cast<std::uint64_t>(column_ == columns_ - 1);
    step.active = raw_[step_ & 1] & ~(step.last_band & ~last_rows_);
    ++step_;
    if (++column_ == period_) {
      column_ = 0;
      ++band_;
    }
    return step;
  }

 private:
  std::uint32_t columns_, period_, bands_;
  std::uint64_t last_rows_;
  std::uint32_t step_ = 0, column_ = 0, band_ = 0;
  std::array<Step, 2> parity_;
  std::array<std::uint64_t, 2> raw_{};
};

// What a plane in wavefront order held in earlier steps, which are the neighbours of each lane.
// "east" lies north-east of a lane; its values in older steps lie north and north-west.
template <typename V>
struct LaneHistory {
  V own1, own2;             // steps s - 1 and s - 2
  V east1, east2, east3;    // a row higher, of steps s - 1, s - 2, s - 3
  V upper1, upper2;         // two rows higher, of steps s - 1 and s - 2

  explicit LaneHistory(V all)
      : own1(all), own2(all), east1(all), east2(all), east3(all), upper1(all), upper2(all) {}

  [[gnu::always_inline]] void Advance(V own, V east, V upper) {
    own2 = own1;
    own1 = own;
    east3 = east2;
    east2 = east1;
    east1 = east;
    upper2 = upper1;
    upper1 = upper;
  }
};

// One frame's pass over all steps.
template <typename Lanes>
class WavefrontPass {
 public:
  using Sample = typename Lanes::Sample;

  explicit WavefrontPass(const WavefrontOrderFrame<Sample>& frame) : frame_(frame) {}

  void Run(WavefrontStream& stream) {
    if constexpr (sizeof(Sample) == 1) {
      if (frame_.errors != nullptr) {
        if (frame_.previous != nullptr) {
          RunAs<true, true>(stream);
        } else {
          RunAs<false, true>(stream);
        }
        return;
      }
    }
    if (frame_.previous != nullptr) {
      RunAs<true, false>(stream);
    } else {
      RunAs<false, false>(stream);
    }
  }

 private:
  using Bytes = typename Lanes::Bytes;
  using Pixels = typename Lanes::Pixels;

  struct Past {
    LaneHistory<Pixels> pixel;
    LaneHistory<Bytes> size;
    Bytes choice1, choice2;  // filters of steps s - 1 and s - 2
    LaneHistory<Bytes> error;  // of learned chunks
  };

  // Lane 0's upper neighbours were lanes 63 and 62, a period and less than 128 steps ago; both
  // planes begin a period before step 0.
  template <typename T>
  static const T* FirstEast(const T* plane) {
    return plane + 127 * kWavefrontLanes + 63;
  }
  template <typename T>
  static const T* FirstUpper(const T* plane) {
    return plane + 125 * kWavefrontLanes + 62;
  }

  // kEdges: some lane is at its row's first, second or last column.
  template <bool kEdges>
  [[gnu::always_inline]] inline static std::array<Pixels, kIntraTapCount> Taps(
      const LaneMasks::Step& at, const LaneHistory<Pixels>& past, Pixels east, Pixels upper) {
    const Pixels north = past.east1;
    const Pixels north2 = past.upper1;
    // Inside a row all neighbours are where the history has them. At the edges, pixels outside of
    // the frame are replaced as CurrentNeighbours says.
    if constexpr (!kEdges) {
      return {past.own1, past.own2, north, past.east2, east, north2, past.east3, past.upper2,
              upper};
    }
    const Pixels west = Lanes::Select(at.first, past.own1, north);
    const Pixels north_west = Lanes::Select(at.first, past.east2, north);
    return {west, Lanes::Select(at.first | at.second, past.own2, west), north, north_west,
            Lanes::Select(at.last, east, north), north2,
            Lanes::Select(at.first | at.second, past.east3, north_west),
            Lanes::Select(at.first, past.upper2, north2), Lanes::Select(at.last, upper, north2)};
  }

  // `previous`: sizes of this step in the previous frame, in inter frames.
  template <bool kInter, bool kEdges>
  [[gnu::always_inline]] inline static Bytes Energy(const std::uint8_t* previous,
                                                    const LaneMasks::Step& at,
                                                    const LaneHistory<Bytes>& past, Bytes east) {
    const auto within = [](std::uint64_t outside, Bytes sizes) {
      return kEdges ? Lanes::Clear(outside, sizes) : sizes;
    };
    Bytes energy = within(at.first | at.second, past.own2);
    const auto add = [&](Bytes sizes) { energy = Lanes::Add(energy, sizes); };
    if constexpr (kInter) {
      const Bytes here = Lanes::Load(previous);
      add(Lanes::Add(here, here));
      add(within(at.first, Lanes::Load(previous - kWavefrontLanes)));
      add(within(at.last, Lanes::Load(previous + kWavefrontLanes)));
    }
    add(Lanes::Add(past.east1, past.east1));
    add(within(at.first, past.east2));
    add(past.upper1);
    add(within(at.last, east));
    // Sizes that are known earliest are added first; west, which the previous step decodes, is
    // last.
    const Bytes west = within(at.first, past.own1);
    add(Lanes::Add(west, west));
    return energy;
  }

  // What a pixel is coded with, before a predictor's correction and behind it.
  struct Expected {
    Pixels plain, value;
    Bytes energy, signs;  // signs: where symbols are of the other sign
  };

  // Of a step whose frame a predictor corrects. `errors` is what lies north-east of each lane.
  template <bool kInter>
  [[gnu::always_inline]] inline void Correct(
      std::uint32_t step, const LaneMasks::Step& at, const Lanes& lanes, Bytes choice,
      const std::array<Pixels, kIntraTapCount>& taps, const LaneHistory<Bytes>& past,
      Bytes error_east, std::size_t now, LearnedStep<Lanes>& learned, Expected& expected) {
    const std::array<Bytes, kErrorTapCount> errors = {
        Lanes::Clear(at.first, past.own1),  Lanes::Clear(at.first | at.second, past.own2),
        past.east1,                         Lanes::Clear(at.first, past.east2),
        Lanes::Clear(at.last, error_east),  past.upper1};
    learned.Run(step, at.first, at.last, expected.plain, taps, errors,
                kInter ? frame_.previous_errors + now : nullptr);
    const std::uint64_t corrected = lanes.Learned(choice);
    expected.value = Lanes::Select(corrected, expected.plain,
                                   lanes.Correct(expected.plain, learned.corrections()));
    expected.energy = learned.energies();
    expected.signs = Lanes::Clear(~corrected, learned.signs());
  }

  template <bool kInter, bool kEdges, bool kLearned>
  [[gnu::always_inline]] inline void Step(std::uint32_t step, const LaneMasks::Step& at,
                                          Lanes& lanes, LearnedStep<Lanes>* learned,
                                          Past& past) {
    const std::size_t before = std::size_t{step} * kWavefrontLanes;
    const std::size_t now =
        before + std::size_t{WavefrontPeriod(frame_.shape.columns)} * kWavefrontLanes;
    Sample* const pixels = frame_.memory.pixels.data();
    std::uint8_t* const sizes = frame_.sizes;
    const Bytes choice = lanes.Enter(past.choice2, frame_.memory.fresh.data()[step]);
    const Pixels east = lanes.Shift(past.pixel.own1, FirstEast(pixels)[before]);
    const Pixels upper = lanes.Shift(past.pixel.east2, FirstUpper(pixels)[before]);
    const Bytes size_east = lanes.ShiftBytes(past.size.own1, FirstEast(sizes)[before]);
    const Bytes size_upper = lanes.ShiftBytes(past.size.east2, FirstUpper(sizes)[before]);
    const auto* const sums = kInter ? frame_.memory.ordered_sums.data() + before : nullptr;
    Expected expected;
    expected.plain = expected.value =
        lanes.Predict(sums, choice, Taps<kEdges>(at, past.pixel, east, upper));
    expected.energy =
        Energy<kInter, kEdges>(frame_.previous_sizes + now, at, past.size, size_east);
    Bytes error_east, error_upper;
    if constexpr (kLearned) {
      error_east = lanes.ShiftBytes(past.error.own1, FirstEast(frame_.errors)[before]);
      error_upper = lanes.ShiftBytes(past.error.east2, FirstUpper(frame_.errors)[before]);
      expected.signs = Lanes::Zero();
      if (learned != nullptr) {
        Correct<kInter>(step, at, lanes, choice,
                        Taps<true>(at, past.pixel, east, upper), past.error, error_east, now,
                        *learned, expected);
      }
    }
    // Lanes outside the frame and those in skipped blocks take nothing from the stream.
    const std::uint64_t coded = at.active & ~Lanes::Skipped(choice);
    const Bytes contexts = lanes.Contexts(expected.energy);
    const auto symbols =
        lanes.NearEnd() ? lanes.DecodeAtEnd(coded, contexts) : lanes.Decode(coded, contexts);
    Pixels decoded;
    if constexpr (kLearned) {
      decoded = lanes.Join(expected.value, Lanes::Mirror(expected.signs, symbols));
    } else {
      decoded = lanes.Join(expected.value, symbols);
    }
    if constexpr (kLearned) {
      const Bytes own = Lanes::Clear(~at.active, Lanes::ErrorOf(decoded, expected.plain));
      Lanes::Store(frame_.errors + now, own);
      past.error.Advance(own, error_east, error_upper);
    }
    const Bytes own_size = lanes.SizeOf(symbols);
    // Lanes 62 and 63 hold the rows above until they begin.
    Lanes::StorePixels(pixels + now, at.active, decoded);
    Lanes::Store(sizes + now, own_size);
    past.choice2 = past.choice1;
    past.choice1 = choice;
    past.pixel.Advance(decoded, east, upper);
    past.size.Advance(own_size, size_east, size_upper);
  }

  template <bool kInter, bool kLearned>
  void RunAs(WavefrontStream& stream) {
    std::optional<LearnedStep<Lanes>> corrector;
    if constexpr (kLearned) {
      if (frame_.net != nullptr) corrector.emplace(frame_);
    }
    LearnedStep<Lanes>* const learned = corrector.has_value() ? &*corrector : nullptr;
    const Sample* const pixels = frame_.memory.pixels.data();
    LaneMasks masks(frame_.shape.rows, frame_.shape.columns);
    Lanes lanes(frame_, stream);
    Past past{.pixel = LaneHistory<Pixels>(Lanes::AllPixels(0)),
              .size = LaneHistory<Bytes>(Lanes::Zero()),
              .choice1 = Lanes::Zero(),
              .choice2 = Lanes::Zero(),
              .error = LaneHistory<Bytes>(Lanes::Zero())};
    past.pixel.east1 = Lanes::AllPixels(*(FirstEast(pixels) - kWavefrontLanes));
    past.pixel.upper1 = Lanes::AllPixels(*(FirstUpper(pixels) - kWavefrontLanes));
    const std::uint32_t steps = WavefrontSteps(frame_.shape.rows, frame_.shape.columns);
    for (std::uint32_t step = 0; step < steps; ++step) {
      const LaneMasks::Step& at = masks.Next();
      if (!Lanes::kSplitsEdges || (at.first | at.second | at.last) != 0) {
        Step<kInter, true, kLearned>(step, at, lanes, learned, past);
      } else {
        Step<kInter, false, kLearned>(step, at, lanes, learned, past);
      }
    }
    lanes.Finish();
  }

  const WavefrontOrderFrame<Sample>& frame_;
};

}  // namespace forebay::compress
