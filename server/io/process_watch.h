// ProcessWatch: tells whether a process has ended, also after its number has gone to another one.
#pragma once

#include <sys/types.h>

#include <memory>

#include "proto/contract/unique_fd.h"

namespace forebay::io {

// Thread-safe. Takes one descriptor.
class ProcessWatch {
 public:
  // Begins to watch the process that has this number now. Null if the kernel cannot watch it:
  // `pid` is 0 (the process is in another pid namespace), the process has ended and was waited for,
  // or there is no descriptor left.
  static std::unique_ptr<ProcessWatch> Of(pid_t pid);

  // Whether the process has ended, with all its threads.
  bool HasEnded() const;

 private:
  explicit ProcessWatch(UniqueFd fd) : fd_(std::move(fd)) {}

  const UniqueFd fd_;
};

}  // namespace forebay::io
