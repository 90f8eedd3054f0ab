// StopSteps: what a daemon that stops waits for, step by step. If the end takes long, the last line
// of the log says which step took longest, and that of the watchdog (end_in_time.h) which one was
// not over.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "server/io/clock.h"

namespace forebay::daemon {

// One thread calls Begin and Longest; any thread calls now, also when the clock has gone.
class StopSteps {
 public:
  explicit StopSteps(const io::Clock& clock) : clock_(clock) {}  // borrowed

  // The daemon waits for `what`, a literal, from now until the next call.
  void Begin(const char* what);
  // Returns what the daemon waits for now; an empty text before the first call of Begin.
  const char* now() const { return now_; }
  // Returns, for a line of the log, the step that has taken longest so far, if that is a second or
  // more, for example " (the longest wait, 4.9 s, for the scrubber)". Else empty.
  std::string Longest() const;

 private:
  const io::Clock& clock_;
  std::atomic<const char*> now_ = "";
  std::int64_t began_ns_ = 0;
  const char* longest_ = "";
  std::int64_t longest_ns_ = 0;
};

}  // namespace forebay::daemon
