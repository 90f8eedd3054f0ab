#include "server/daemon/serve_loop.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <iterator>

namespace forebay::daemon {

int ServeUntilAsked(Daemon& daemon, const ServeOptions& options) {
  pollfd polled[] = {{options.signal_fd, POLLIN, 0}, {daemon.wake_fd(), POLLIN, 0}};
  for (;;) {
    poll(polled, std::size(polled), options.tick_ms);
    signalfd_siginfo info{};
    if (read(options.signal_fd, &info, sizeof(info)) == sizeof(info)) {
      return static_cast<int>(info.ssi_signo);
    }
    if (daemon.Tick()) return 0;
  }
}

}  // namespace forebay::daemon
