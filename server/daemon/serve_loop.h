// The loop of forebayd's main thread, from READY to the end: it runs Daemon::Tick once a second and
// waits for signals. A function of its own, so that tests drive it without a process.
#pragma once

#include "server/daemon/daemon.h"

namespace forebay::daemon {

struct ServeOptions {
  // A non-blocking signalfd, or a pipe that gives whole signalfd_siginfo records. Borrowed.
  int signal_fd = -1;
  // Interval between two calls of Daemon::Tick; -1: Tick is called only when wake_fd is readable.
  int tick_ms = 1000;
};

// Blocks until a signal arrives, and returns its number, or until Daemon::Tick returns true, and
// returns 0. Both wake the loop at once, without waiting for the next interval. Does not stop the
// daemon; the caller does. If poll fails, calls Daemon::Fail, which makes Tick return true.
int ServeUntilAsked(Daemon& daemon, const ServeOptions& options);

}  // namespace forebay::daemon
