// In which order the openings of a stream came (docs/delivery_log.md).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "client/cli/stream/token_reach.h"

namespace forebay::cli {

// Returns the indices of `openings` in the order of time. The openings of one log must be next to
// each other, as they are in the file; that order is kept. An opening that goes on from a token
// comes after those that delivered what lies before it, if the logs have them. Clocks decide only
// between openings that all may be next.
std::vector<std::size_t> InOrderOfTime(std::span<const OpeningPlace> openings);

// The order if logs may be missing: then tokens prove nothing about those that are there.
struct ClockOrder {
  std::vector<std::size_t> order;  // by files, then by clocks
  // Those that began behind what the openings before them had delivered. A log is missing that has
  // what they go on from, or the clock of their node is behind.
  std::vector<std::size_t> unexplained;
};
ClockOrder InOrderOfClocks(std::span<const OpeningPlace> openings);

}  // namespace forebay::cli
