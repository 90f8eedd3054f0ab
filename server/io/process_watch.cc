// A pidfd refers to a process, not to its number. It becomes readable when the process ends.
#include "server/io/process_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace forebay::io {

std::unique_ptr<ProcessWatch> ProcessWatch::Of(pid_t pid) {
  if (pid <= 0) return nullptr;
  // Not through <sys/pidfd.h>, which libraries older than glibc 2.36 lack.
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));
  if (!fd.valid()) return nullptr;
  return std::unique_ptr<ProcessWatch>(new ProcessWatch(std::move(fd)));
}

bool ProcessWatch::HasEnded() const {
  pollfd watched = {.fd = fd_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&watched, 1, /*timeout=*/0) > 0;
}

}  // namespace forebay::io
