// What forebayd's main thread does from READY to the end.
#pragma once

#include "server/daemon/daemon.h"

namespace forebay::daemon {

struct ServeOptions {
  // Non-blocking; gives whole signalfd_siginfo records. Borrowed.
  int signal_fd = -1;
  // Between two rounds of housekeeping; -1: only when the daemon itself has something to say.
  int tick_ms = 1000;
};

// Blocks until a signal asks for the end, and returns its number, or until the daemon does
// (Daemon::Tick), and returns 0. Neither waits for the next round of housekeeping. Leaves the
// daemon as it is: Stop is the caller's. Where it cannot wait, it calls Daemon::Fail.
int ServeUntilAsked(Daemon& daemon, const ServeOptions& options);

}  // namespace forebay::daemon
