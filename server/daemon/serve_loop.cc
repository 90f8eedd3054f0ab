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
    // Without poll this loop would turn as fast as it can.
    if (poll(polled, std::size(polled), options.tick_ms) < 0 && errno != EINTR) {
      daemon.Fail(Error::FromErrno(errno, "waiting for signals"));
    }
    signalfd_siginfo info{};
    if (read(options.signal_fd, &info, sizeof(info)) == sizeof(info)) {
      return static_cast<int>(info.ssi_signo);
    }
    if (daemon.Tick()) return 0;
  }
}

}  // namespace forebay::daemon
