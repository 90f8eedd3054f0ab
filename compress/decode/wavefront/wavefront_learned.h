// What a learned predictor adds to a step of wavefront_pass.h: gathers its inputs from registers
// and planes in wavefront order, and runs the network. Besides the operations of WavefrontPass,
// Lanes has
//
//   LoadAny(from)                 64 bytes at any address;  Invert(a): 128 added to each
//   Difference(a, b)              of pixels: a - b saturated, plus 128
//   ErrorOf(pixels, values)       a - b within -127 .. 127;  Absolute(errors)
//   Learned(choice)               lanes whose filter is corrected
//   Correct(values, corrections)  within the samples' range;  Mirror(signs, symbols)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/decode/learned/predictor_run.h"
#include "compress/decode/wavefront/wavefront_order.h"
#include "compress/format/plane/learned_inputs.h"

namespace forebay::compress {

template <typename Lanes>
class LearnedStep {
 public:
  using Bytes = typename Lanes::Bytes;

  explicit LearnedStep(const WavefrontOrderFrame<std::uint8_t>& frame)
      : net_(*frame.net),
        run_(frame.run),
        displaced_(frame.memory.displaced.data()),
        before_(frame.memory.before.data()) {}

  // Runs the network for a step. `taps` and `errors` are the neighbours, with the rules of the
  // frame's edges applied, errors in the order of kCurrentTaps. `previous` points to the previous
  // frame's errors of this step; null in an intra frame.
  [[gnu::always_inline]] void Run(std::uint32_t step, std::uint64_t first, std::uint64_t last,
                                  Bytes value, const std::array<Bytes, kIntraTapCount>& taps,
                                  const std::array<Bytes, kErrorTapCount>& errors,
                                  const std::uint8_t* previous) {
    std::size_t row = 0;
    const auto put = [&](Bytes bytes) { Lanes::Store(batch_.inputs[row++].data(), bytes); };
    for (const Bytes& tap : taps) put(Lanes::Difference(tap, value));
    for (const Bytes& error : errors) put(Lanes::Invert(error));
    for (const Bytes& error : errors) put(Lanes::Invert(Lanes::Absolute(error)));
    if (previous != nullptr) {
      std::array<Bytes, kDisplacedTapCount> displaced;
      for (std::size_t i = 0; i < kDisplacedTapCount; ++i) displaced[i] = LoadDisplaced(step, i);
      for (std::size_t i = 0; i < kDisplacedTapCount; ++i) {
        // A row's end pixel stands for pixels beyond it: at the edge that is the middle tap.
        const std::size_t middle = kMiddleOf[i];
        const std::int8_t column = kPreviousTaps[i].column;
        const std::uint64_t edge = column < 0 ? first : column > 0 ? last : 0;
        put(Lanes::Difference(Lanes::Select(edge, displaced[i], displaced[middle]), value));
      }
      put(Lanes::Difference(Lanes::LoadAny(before_ + std::size_t{step} * kWavefrontLanes), value));
      const Bytes here = Lanes::LoadAny(previous);
      const Bytes west = Lanes::Clear(first, Lanes::LoadAny(previous - kWavefrontLanes));
      const Bytes east = Lanes::Clear(last, Lanes::LoadAny(previous + kWavefrontLanes));
      put(Lanes::Invert(Lanes::Absolute(here)));
      put(Lanes::Invert(Lanes::Absolute(west)));
      put(Lanes::Invert(Lanes::Absolute(east)));
      put(Lanes::Invert(here));
    }
    run_(net_, batch_);
  }

  Bytes corrections() const { return Lanes::Load(batch_.corrections.data()); }
  Bytes energies() const { return Lanes::Load(batch_.energies.data()); }
  Bytes signs() const { return Lanes::Load(batch_.mirrored.data()); }

 private:
  // For each of the first kPreviousTaps, the tap of the same row in the pixel's own column.
  static constexpr std::array<std::size_t, kDisplacedTapCount> kMiddleOf = {0, 2, 2, 2, 0,
                                                                            0, 7, 7, 7};

  Bytes LoadDisplaced(std::uint32_t step, std::size_t tap) const {
    const TapOffset& offset = kPreviousTaps[tap];
    const std::ptrdiff_t at = std::ptrdiff_t{step} + kDisplacedMargin + offset.column +
                              std::ptrdiff_t{kWavefrontLag} * offset.row;
    return Lanes::LoadAny(displaced_ + at * static_cast<std::ptrdiff_t>(kDisplacedStride) + 1 +
                          offset.row);
  }

  const PredictorNet& net_;
  const PredictorRun run_;
  const std::uint8_t* const displaced_;
  const std::uint8_t* const before_;
  PredictorBatch batch_;
};

}  // namespace forebay::compress
