// Watchdog: a thread per rank that sends heartbeats and misses those of others, so that a job
// ends when one of its processes has died, is stopped, or its host is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/watchdog/rank_watch.h"

namespace forebay::train {

struct WatchdogOptions {
  RankWatchOptions watch;
  // How long the launcher may take to end the job by itself where a rank's process has died: it
  // knows how.
  std::uint64_t launcher_ns = 1'000'000'000;
  // A line for people. Called from the watchdog's thread, as the next.
  std::function<void(const std::string& line)> print;
  // Ends this process, without MPI, which the main thread may be in: the launcher then ends the
  // others. Called once, after `print` was told which rank is lost.
  std::function<void()> end_job;
};

// Rank 0 hears of all ranks and they of it, over TCP connections of their own. A rank that beats
// and makes no progress is alive: its standing still is reported, and ends with the timeout of
// those who wait for it. A rank that rank 0 cannot be reached from is not watched, which is
// printed.
class Watchdog {
 public:
  // Collective. A job of one rank has nothing to watch. `communicator` outlives it.
  static Result<std::unique_ptr<Watchdog>> Start(Communicator& communicator,
                                                 WatchdogOptions options);
  // Tells the others that this rank has done its work. All ranks, behind a barrier.
  virtual ~Watchdog() = default;
};

}  // namespace forebay::train
