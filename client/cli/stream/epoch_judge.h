// EpochJudge: whether each position of an epoch was consumed exactly once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/contract/order_steps.h"

namespace forebay::cli {

// The first few findings say where to look; a run with a wrong order would have millions.
inline constexpr std::size_t kFindingsMax = 8;

// One consumed batch: positions [first, first + count) of an epoch.
struct LoggedBatch {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

struct EpochVerdict {
  std::uint64_t epoch = 0;
  std::uint64_t expected = 0;    // positions that the order hands out
  std::uint64_t consumed = 0;    // distinct ones that were
  std::uint64_t missing = 0;
  std::uint64_t duplicates = 0;  // positions consumed again
  std::uint64_t unfinished = 0;  // at the end of the last epoch: not consumed yet
  std::vector<std::string> findings;  // the first few, in words
};

// Collects the batches of one epoch that count, then judges. Not thread-safe.
class EpochJudge {
 public:
  // `plan` is borrowed.
  EpochJudge(std::uint64_t epoch, const StepPlan& plan);

  void Add(const LoggedBatch& batch) { slices_.push_back({batch.first, batch.count}); }

  // The step from which on gaps are unfinished work and not a loss, if this is the last epoch that
  // was begun: ranks of a stopped run do not end at the same step. It lies behind the last step
  // that is whole. Where the last positions were consumed, the run was not stopped before them.
  std::uint64_t OpenStep();

  // From `open_step` on, what is not there is unfinished. Call it last.
  EpochVerdict Judge(std::uint64_t open_step);

 private:
  void Sort();
  void AddGap(const StepSlice& gap, std::uint64_t open_step);
  void Note(std::string finding);

  const StepPlan& plan_;
  std::uint64_t end_ = 0;
  std::vector<StepSlice> slices_;
  EpochVerdict verdict_;
};

}  // namespace forebay::cli
