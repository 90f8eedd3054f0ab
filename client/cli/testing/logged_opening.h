// Writes what a rank's delivery log holds of one opening (docs/delivery_log.md), for tests of the
// audit: a stream's own log has the time of this machine.
#pragma once

#include <cstdint>
#include <string>

namespace forebay::cli {

// An epoch of the data set. Samples are in file order, so ids are positions.
inline constexpr std::uint64_t kLoggedBatch = 8;
inline constexpr std::uint64_t kLoggedSteps = 8;
inline constexpr std::uint64_t kLoggedSamples = kLoggedBatch * kLoggedSteps;

// A rank's stream that was opened at `first` and delivered its share of the steps before `end`.
struct LoggedStream {
  std::uint64_t ranks = 2;
  std::uint64_t rank = 0;
  std::uint64_t first = 0;  // counted over the epochs, as `end`
  std::uint64_t end = kLoggedSteps;
  std::uint64_t opened = 0;  // by the clock of its node
  std::uint64_t epochs = 1;
  bool names_end_of_epoch = false;  // a token at (e + 1, 0) says (e, last step + 1)
};

std::string LoggedHeader(const LoggedStream& stream);
// The line of the share of step `step`, which is counted over the epochs.
std::string LoggedBatchOf(const LoggedStream& stream, std::uint64_t step);

}  // namespace forebay::cli
