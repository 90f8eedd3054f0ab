// A pidfd refers to a process, not to its number. It becomes readable when the process ends.
#include "server/io/process_watch.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <system_error>
#include <utility>

namespace forebay::io {

Result<std::unique_ptr<ProcessWatch>> ProcessWatch::Of(pid_t pid) {
  if (pid <= 0) return Error(ErrorCode::kNotFound, "the process is in another pid namespace");
  // Not through <sys/pidfd.h>, which libraries older than glibc 2.36 lack.
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));
  if (!fd.valid()) {
    const int error = errno;
    return Error(error == ESRCH ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
                 "pidfd_open of process " + std::to_string(pid) + ": " +
                     std::generic_category().message(error));
  }
  return std::unique_ptr<ProcessWatch>(new ProcessWatch(std::move(fd)));
}

bool ProcessWatch::HasEnded() const {
  pollfd watched = {.fd = fd_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&watched, 1, /*timeout=*/0) > 0;
}

}  // namespace forebay::io
