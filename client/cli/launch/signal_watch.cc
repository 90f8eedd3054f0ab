// Signals are read from a signalfd, so that they are handled in the order of the loop that reads
// them, and none interrupts it.
#include "client/cli/launch/signal_watch.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <iterator>

#include "proto/contract/check.h"

namespace forebay::cli {

SignalWatch::SignalWatch() {
  // Where a launcher ignores it, programs inherit that, and the kernel would keep no exit codes.
  std::signal(SIGCHLD, SIG_DFL);
  sigset_t watched;
  sigemptyset(&watched);
  // Those by which people and schedulers end a job, and those by which Slurm and others tell it
  // that its time is nearly over.
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
    sigaddset(&watched, number);
  }
  // The kernel keeps a blocked signal also if it is ignored, as below nohup.
  struct sigaction hangup{};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN) {
    sigdelset(&watched, SIGHUP);
  }
  pthread_sigmask(SIG_BLOCK, &watched, &before_);
  fd_ = UniqueFd(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  FOREBAY_CHECK(fd_.valid());
}

SignalWatch::~SignalWatch() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

SignalWatch::Event SignalWatch::Wait(int timeout_ms, int fd) const {
  pollfd polled[] = {{fd_.get(), POLLIN, 0}, {fd, POLLIN, 0}};  // a negative fd is ignored
  static_cast<void>(poll(polled, std::size(polled), timeout_ms));
  signalfd_siginfo info{};
  if (read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return {};
  return {.signal = static_cast<int>(info.ssi_signo),
          .is_from_terminal = info.ssi_code == SI_KERNEL};
}

}  // namespace forebay::cli
