// WallLimit: the time at which a batch system will end the job, with room for a last checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "proto/contract/result.h"
#include "trainer/core/config/train_config.h"

namespace forebay::train {

// Where clocks stand when the limit is made.
struct WallClocks {
  std::uint64_t now_ns = 0;           // monotonic, the one that is asked later
  std::uint64_t unix_s = 0;           // seconds since 1970
  std::string_view slurm_end_time = {};  // $SLURM_JOB_END_TIME, seconds since 1970; may be empty
};

class WallLimit {
 public:
  // The earlier of run.wall_minutes from now on and slurm_end_time, less run.wall_margin_s.
  // kInvalidArgument where run.wall_minutes leaves nothing to train, or slurm_end_time is no
  // number.
  static Result<WallLimit> Make(const RunConfig& run, const WallClocks& clocks);

  bool Reached(std::uint64_t now_ns) const { return end_ns_ && now_ns >= *end_ns_; }

 private:
  std::optional<std::uint64_t> end_ns_;
};

}  // namespace forebay::train
