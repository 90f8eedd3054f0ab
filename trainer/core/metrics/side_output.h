// SideOutput: what a run writes beside its checkpoints (metrics, trace, summary). Losing some of it
// is worth a warning and no training.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "proto/contract/result.h"

namespace forebay::train {

// Counts failures and says each once. One for a rank and run; not thread-safe.
class SideOutput {
 public:
  // `rank` stands in the warnings of all but rank 0. `print` outlives it.
  SideOutput(std::uint32_t rank, const std::function<void(const std::string&)>& print)
      : rank_(rank), print_(print) {}

  void Note(const Status& written);
  std::uint64_t failures() const { return failures_; }

  // Whether the disk is at fault, which may come and go; a path that cannot be is a mistake, and
  // worth an error before training begins.
  static bool IsOfTheDisk(const Error& error);

 private:
  std::uint32_t rank_;
  const std::function<void(const std::string&)>& print_;
  std::uint64_t failures_ = 0;
  std::set<std::string> said_;
};

}  // namespace forebay::train
