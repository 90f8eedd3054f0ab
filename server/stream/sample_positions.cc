// A selection is in ascending order, so the selected ones of consecutive samples have consecutive
// indexes, which a binary search finds.
#include "server/stream/sample_positions.h"

#include <algorithm>
#include <span>

namespace forebay::stream {
namespace {

// The number of selected samples below `sample`, which is also the index of the first one that is
// not below it.
std::uint64_t FirstIndexFrom(const catalog::Selection& selection, std::uint64_t sample) {
  std::uint64_t low = 0, high = selection.size();
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (selection.At(middle).value() < sample) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace

SelectedRange SelectedOf(const catalog::Selection& selection, std::uint64_t first,
                         std::uint32_t count) {
  const std::uint64_t begin = FirstIndexFrom(selection, first);
  return {.begin = begin, .count = FirstIndexFrom(selection, first + count) - begin};
}

std::size_t FindPositions(const catalog::Selection& selection, const Order& order,
                          std::uint64_t first, std::uint32_t count, Positions& positions) {
  const auto [begin, selected] = SelectedOf(selection, first, count);
  const std::size_t examined = std::min<std::uint64_t>(selected, kPositionsMax);
  // From the first to the last one, because the ends of an extent often lie in runs of the order
  // that have only a few samples in it.
  for (std::size_t i = 0; i < examined; ++i) {
    positions[i] = begin + (i == 0 ? 0 : i * (selected - 1) / (examined - 1));
  }
  order.Inverse(std::span(positions).first(examined));
  return examined;
}

std::uint64_t WindowSamples(const OrderShape& shape, std::uint64_t epoch_samples) {
  if (shape.block_samples == 0) return 0;
  // Compared by division, because both factors may be larger than the epoch.
  if (shape.window_runs > epoch_samples / shape.block_samples) return epoch_samples;
  return shape.block_samples * shape.window_runs;
}

}  // namespace forebay::stream
