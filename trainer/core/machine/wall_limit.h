// WallLimit: the time by which a run has to stop, so that a last checkpoint is written before the
// batch system ends the job.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "proto/contract/result.h"
#include "trainer/core/config/train_config.h"

namespace forebay::train {

// The readings of the clocks at the time at which the limit is made.
struct WallClocks {
  std::uint64_t now_ns = 0;           // monotonic, the one that is asked later
  std::uint64_t unix_s = 0;           // seconds since 1970
  std::string_view slurm_end_time = {};  // $SLURM_JOB_END_TIME, seconds since 1970; may be empty
};

class WallLimit {
 public:
  // The limit is the earlier one of run.wall_minutes from now on and slurm_end_time, minus
  // run.wall_margin_s. kInvalidArgument if run.wall_minutes leaves no time to train, or if
  // slurm_end_time is not a number.
  static Result<WallLimit> Make(const RunConfig& run, const WallClocks& clocks);

  bool Reached(std::uint64_t now_ns) const { return end_ns_ && now_ns >= *end_ns_; }

 private:
  std::optional<std::uint64_t> end_ns_;
};

}  // namespace forebay::train
