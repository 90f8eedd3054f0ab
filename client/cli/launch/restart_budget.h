// RestartBudget: how often `forebay launch` may start the daemon or the command again, and after
// which pause.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace forebay::cli {

// Not thread-safe. Has no clock of its own.
class RestartBudget {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `limit` restarts in all, of the daemon and of the command together.
  explicit RestartBudget(std::uint32_t limit) : limit_(limit) {}

  struct Restart {
    std::uint32_t number = 0;  // from 1
    // To be waited before the restart: 0.1 s, twice as long for each further one, 30 s at most. It
    // is 0.1 s again if nothing was restarted for a minute.
    std::chrono::milliseconds pause{};
  };
  // Takes one of the restarts. Nullopt: none is left.
  std::optional<Restart> Take(Time now);

  std::uint32_t limit() const { return limit_; }

 private:
  const std::uint32_t limit_;
  std::uint32_t taken_ = 0;
  std::chrono::milliseconds pause_{};  // the last one
  Time restarted_at_{};                // the end of that pause
};

}  // namespace forebay::cli
