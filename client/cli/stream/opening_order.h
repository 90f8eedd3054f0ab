// In which order the openings of a stream came, and which batches the later ones took back
// (docs/delivery_log.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace forebay::cli {

// Epoch and step. Behind the last step of an epoch comes step 0 of the next one.
using StepKey = std::pair<std::uint64_t, std::uint64_t>;

// What is known of an opening beside its batches.
struct OpeningPlace {
  std::size_t log = 0;  // the number of the file that it is in
  std::uint64_t ranks = 0;
  std::uint64_t rank = 0;  // below `ranks`
  StepKey first;    // where it begins
  StepKey reached;  // the step behind its last batch, or `first`
  std::uint64_t opened_unix_ns = 0;
};

// Returns the indices of `openings` in the order of time. The openings of one log must be next to
// each other, as they are in the file; that order is kept. An opening that goes on from a token
// comes after those that delivered what lies before it. Clocks decide only between openings that
// both may be next.
std::vector<std::size_t> InOrderOfTime(std::span<const OpeningPlace> openings);

// From which step on the batches of an opening were taken back.
struct TakenBack {
  StepKey from;
  // As `from`, as far as clocks have nothing to do with it.
  StepKey from_surely;
};

// One for each of `openings`, which are in the order of time. An opening takes back what its own
// rank had consumed from its first step on, and what other numbers of ranks had.
std::vector<TakenBack> FindTakenBack(std::span<const OpeningPlace> openings);

}  // namespace forebay::cli
