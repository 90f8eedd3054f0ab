// The main thread sleeps in poll on two descriptors: the signals, and the daemon's own wake-up for
// a drain or a failure. Everything else that it does is housekeeping at an interval.
#include "server/daemon/serve_loop.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

namespace forebay::daemon {

int ServeUntilAsked(Daemon& daemon, const ServeOptions& options) {
  pollfd polled[] = {{options.signal_fd, POLLIN, 0}, {daemon.wake_fd(), POLLIN, 0}};
  for (;;) {
    // If poll fails for good, the loop must not go on: it would spin.
    if (poll(polled, std::size(polled), options.tick_ms) < 0 && errno != EINTR) {
      daemon.Fail(Error::FromErrno(errno, "poll of the main thread's signals"));
    }
    signalfd_siginfo info{};
    if (read(options.signal_fd, &info, sizeof(info)) == sizeof(info)) {
      return static_cast<int>(info.ssi_signo);
    }
    // After each event and at least once per tick_ms: a drain and a failure arrive through wake_fd.
    if (daemon.Tick()) return 0;
  }
}

}  // namespace forebay::daemon
