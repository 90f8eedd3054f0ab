// Gathers training examples: pixels of all planes, chosen at random with a fixed seed until about
// `rows_max` are taken, with the inputs that the encoder's own code computes (LearnedView).
#include "compress/train/training_rows.h"

#include "compress/encode/wavefront/learned_view.h"
#include "proto/contract/mix64.h"

namespace forebay::compress {
namespace {

std::array<std::size_t, 2> CountPixels(std::span<const PlaneStack> stacks) {
  std::array<std::size_t, 2> pixels{};
  for (const PlaneStack& stack : stacks) {
    pixels[0] += stack.shape.frame_samples();
    // All frames but a stack's first have an earlier frame to look at.
    pixels[1] += stack.shape.frame_samples() * (stack.shape.frames - 1);
  }
  return pixels;
}

}  // namespace

std::array<TrainingRows, 2> GatherRows(std::span<const PlaneStack> stacks, std::size_t rows_max,
                                       std::uint64_t seed) {
  std::array<TrainingRows, 2> gathered;
  gathered[0].inputs = kIntraInputs;
  gathered[1].inputs = kInterInputs;
  // A pixel is taken where a number below 2^32 is below its kind's share.
  const std::array<std::size_t, 2> pixels = CountPixels(stacks);
  std::array<std::uint64_t, 2> share{};
  for (std::size_t kind = 0; kind < 2; ++kind) {
    constexpr std::uint64_t kAll = std::uint64_t{1} << 32;
    share[kind] = pixels[kind] <= rows_max ? kAll : rows_max * kAll / pixels[kind];
  }
  for (const PlaneStack& stack : stacks) {
    const PlaneShape& shape = stack.shape;
    // The errors to be learned are those that the encoder's chosen filters leave, so it chooses
    // first.
    const auto work = ChooseWavefront<std::uint8_t>(shape, stack.samples, {});
    const LearnedView view(work);
    for (std::uint32_t frame = 0; frame < shape.frames; ++frame) {
      const std::size_t kind = frame > 0 ? 1 : 0;
      TrainingRows& rows = gathered[kind];
      for (std::uint32_t row = 0; row < shape.rows; ++row) {
        for (std::uint32_t column = 0; column < shape.columns; ++column) {
          // One draw for each pixel, taken or not, so that the choice depends on the seed and the
          // shapes only.
          if (NextWord64(seed) >> 32 >= share[kind]) continue;
          const std::size_t at = rows.values.size();
          rows.values.resize(at + rows.inputs);
          view.SetInputs(frame, row, column, 1, &rows.values[at]);
          rows.errors.push_back(view.Error(frame, row, column));
        }
      }
    }
  }
  return gathered;
}

}  // namespace forebay::compress
