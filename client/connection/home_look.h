// HomeLook: looks in the background whether the daemon of this node is back, while a stream reads
// from another node. A daemon that hangs takes seconds to be given up, which no batch waits for.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "client/connection/daemon_connection.h"
#include "client/connection/interrupt.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::internal {

// One thread calls Poll; Cancel is thread-safe. Each look has a thread, which has ended when the
// destructor returns.
class HomeLook {
 public:
  using Found = Result<std::shared_ptr<const DaemonConnection>>;
  // Connects to the daemon of this node, or says why it cannot. Must end soon once the interrupt is
  // raised.
  using Ask = std::function<Found(Interrupt&)>;

  // The first look begins a period from now, and each later one a period after the one before.
  HomeLook(std::chrono::milliseconds period, Ask ask);
  ~HomeLook() { Cancel(); }

  // Never waits. What a look has found that has ended since the last call; none: no look has, and
  // the next one begins if its time has come. If the process may have no more threads, that look is
  // left out.
  std::optional<Found> Poll();
  // Ends the look that is under way. No further one begins.
  void Cancel() { interrupt_.Raise(); }

 private:
  void Run();

  const std::chrono::milliseconds period_;
  const Ask ask_;
  Interrupt interrupt_;
  Deadline next_;  // used only by Poll
  Mutex mutex_;
  bool is_looking_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::optional<Found> found_ FOREBAY_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: everything above is there while it runs
};

}  // namespace forebay::internal
