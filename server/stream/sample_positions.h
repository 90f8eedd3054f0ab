// Where an epoch of a stream has the samples of an extent or a chunk: the inverse of the order, for
// estimates of when they are needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/contract/order.h"
#include "server/catalog/selection.h"
#include "server/stream/stream_spec.h"

namespace forebay::stream {

// Consecutive samples that are selected have consecutive indexes in the selection: this range.
struct SelectedRange {
  std::uint64_t begin = 0, count = 0;
};
SelectedRange SelectedOf(const catalog::Selection& selection, std::uint64_t first,
                         std::uint32_t count);

inline constexpr std::size_t kPositionsMax = 64;
using Positions = std::array<std::uint64_t, kPositionsMax>;
// The positions of the selected ones of the samples [first, first + count), of which at most
// kPositionsMax are looked at, evenly spaced. Returns their number, which is 0 only if no sample is
// selected. Takes some microseconds.
std::size_t FindPositions(const catalog::Selection& selection, const Order& order,
                          std::uint64_t first, std::uint32_t count, Positions& positions);

// The number of samples in a window of the order, at most those of an epoch. Modes other than
// `block` have no window: 0.
std::uint64_t WindowSamples(const OrderShape& shape, std::uint64_t epoch_samples);

}  // namespace forebay::stream
