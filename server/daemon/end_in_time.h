// EndInTime: watchdog of the end of forebayd. Ends the process if the daemon does not stop in time,
// so that a scheduler never has to kill it, and says what it has waited for.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/contract/thread_annotations.h"
#include "server/daemon/stop_steps.h"

namespace forebay::daemon {

struct EndInTimeParts {
  std::chrono::milliseconds patience;
  std::shared_ptr<const StopSteps> steps;
  // Describes calls that the GFS does not answer; empty if there are none. Not called after
  // HasStopped.
  std::function<std::string()> gfs_calls;
  // Files that Daemon::Stop removes, and their directories if they are empty then. They are removed
  // if it does not return.
  std::vector<std::string> paths;
};

// The process ends with the exit code that the end would have had: 0 if only the GFS does not
// answer, 1 if Daemon::Stop has not returned for another reason, and else the code of HasStopped.
// The SSD tier is then in the state that a SIGKILL leaves, which it recovers from.
class EndInTime {
 public:
  // Watches from here to its destruction.
  explicit EndInTime(EndInTimeParts parts);

  // Daemon::Stop has returned true, and the daemon is about to be destroyed. `exit_code` is that of
  // a process that ends in time.
  void HasStopped(int exit_code);

 private:
  void Watch(const std::stop_token& stop);
  void RemoveFiles() const;

  const EndInTimeParts parts_;
  Mutex mutex_;
  StoppableCondVar gone_;
  bool has_stopped_ FOREBAY_GUARDED_BY(mutex_) = false;
  int exit_code_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace forebay::daemon
