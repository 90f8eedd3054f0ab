// ProcessWatch: tells whether a process has ended, also after its number has gone to another one.
#pragma once

#include <sys/types.h>

#include <memory>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::io {

// Thread-safe. Takes one descriptor.
class ProcessWatch {
 public:
  // Begins to watch the process that has this number now. kNotFound: there is none in the pid
  // namespace of this process. kUnavailable, with the reason: the kernel cannot watch it, or there
  // is no descriptor left.
  static Result<std::unique_ptr<ProcessWatch>> Of(pid_t pid);

  // Whether the process has ended, with all its threads.
  bool HasEnded() const;

 private:
  explicit ProcessWatch(UniqueFd fd) : fd_(std::move(fd)) {}

  const UniqueFd fd_;
};

}  // namespace forebay::io
