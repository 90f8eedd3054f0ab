// SignalWatch: the signals that `forebay launch` passes on, and the ends of its children, as events
// that are waited for with a timeout.
#pragma once

#include <csignal>
#include <optional>

#include "proto/contract/unique_fd.h"

namespace forebay::cli {

// Blocks the signals in this thread, and so in those that it starts, until it is destroyed.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  struct Event {
    int signal = 0;  // 0: none; SIGCHLD: a child has ended
    // It came from the terminal, which sends it to all processes in the foreground.
    bool is_from_terminal = false;
  };
  // Waits for a signal, until `fd` is readable, or for `timeout_ms`. -1: no fd, no limit.
  Event Wait(int timeout_ms = -1, int fd = -1) const;

 private:
  sigset_t before_;
  UniqueFd fd_;
};

}  // namespace forebay::cli
