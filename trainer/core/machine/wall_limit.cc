// The end of the job is known from the configuration, counted from the start of the process, or
// from Slurm's environment as a time of day. Both become a time of the monotonic clock when the
// limit is made, so that a change of the wall clock during the run does no harm.
#include "trainer/core/machine/wall_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace forebay::train {
namespace {

constexpr double kNsPerSecond = 1e9;
constexpr double kSecondsPerMinute = 60;

}  // namespace

Result<WallLimit> WallLimit::Make(const RunConfig& run, const WallClocks& clocks) {
  std::optional<double> left_s;
  if (run.wall_minutes > 0) {
    left_s = run.wall_minutes * kSecondsPerMinute;
    if (*left_s <= run.wall_margin_s) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("run.wall_minutes = {}: must be longer than run.wall_margin_s = {}",
                               run.wall_minutes, run.wall_margin_s));
    }
  }
  if (const std::string_view text = clocks.slurm_end_time; !text.empty()) {
    std::uint64_t end_s = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), end_s);
    if (error != std::errc() || end != text.data() + text.size()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("$SLURM_JOB_END_TIME = \"{}\": must be seconds since 1970", text));
    }
    // Of two limits the earlier one counts.
    const double slurm_s = static_cast<double>(end_s) - static_cast<double>(clocks.unix_s);
    left_s = std::min(left_s.value_or(slurm_s), slurm_s);
  }
  WallLimit limit;
  if (left_s) {
    // A job that begins within the margin stops after its first step.
    const double usable_s = std::max(*left_s - run.wall_margin_s, 0.0);
    limit.end_ns_ = clocks.now_ns + static_cast<std::uint64_t>(usable_s * kNsPerSecond);
  }
  return limit;
}

}  // namespace forebay::train
