// Watchdog: a thread on each rank that sends heartbeats and checks those of other ranks. It ends
// the job when a process has died or is stopped, or when its host is lost.
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

// Rank 0 receives the heartbeats of all ranks, and each rank receives those of rank 0, over TCP
// connections of their own. A rank that sends heartbeats but makes no progress counts as alive:
// this is reported, and the job ends by the timeout of the ranks that wait for it. A rank that
// cannot reach rank 0 is not watched, which is printed.
class Watchdog {
 public:
  // Starts the thread; in a job of one rank there is nothing to watch. Collective. `communicator`
  // outlives the watchdog.
  static Result<std::unique_ptr<Watchdog>> Start(Communicator& communicator,
                                                 WatchdogOptions options);
  // Tells the other ranks that this one has done its work. All ranks call it behind a barrier.
  ~Watchdog();

 private:
  class Thread;
  explicit Watchdog(std::unique_ptr<Thread> thread);

  std::unique_ptr<Thread> thread_;
};

}  // namespace forebay::train
