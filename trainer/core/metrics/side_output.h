// SideOutput: failures of the files that a run writes besides its checkpoints (metrics, trace,
// summary). Losing some of them is worth a warning, and does not end the run.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "proto/contract/result.h"

namespace forebay::train {

// Counts failures and prints each different one once. There is one object for each rank and run.
// Not thread-safe.
class SideOutput {
 public:
  // `rank` stands in the warnings of all but rank 0. `print` outlives it.
  SideOutput(std::uint32_t rank, const std::function<void(const std::string&)>& print)
      : rank_(rank), print_(print) {}

  void Note(const Status& written);
  std::uint64_t failures() const { return failures_; }

  // Whether the error is about the state of the disk, which may change. Other errors, such as a
  // path that cannot exist, are mistakes of the user, and are reported before training begins.
  static bool IsOfTheDisk(const Error& error);

 private:
  std::uint32_t rank_;
  const std::function<void(const std::string&)>& print_;
  std::uint64_t failures_ = 0;
  std::set<std::string> said_;
};

}  // namespace forebay::train
