// The pauses grow, so that a daemon or a command that fails at once each time does not use up all
// restarts while the cause, such as a file system that is away, lasts for some seconds.
#include "client/cli/launch/restart_budget.h"

#include <algorithm>

namespace forebay::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause(100);
constexpr milliseconds kPauseMax(30'000);
// A daemon or command that has run for this long has not failed at once: the pause before its next
// restart is the shortest one again.
constexpr milliseconds kCalm(60'000);

}  // namespace

std::optional<RestartBudget::Restart> RestartBudget::Take(Time now) {
  if (taken_ == limit_) return std::nullopt;
  const bool is_in_row = taken_ > 0 && now - restarted_at_ < kCalm;
  pause_ = is_in_row ? std::min(2 * pause_, kPauseMax) : kFirstPause;
  restarted_at_ = now + pause_;
  return Restart{.number = ++taken_, .pause = pause_};
}

}  // namespace forebay::cli
