// DaemonProcess: a real forebayd, started, watched and ended by a test.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace forebay::integration {

inline constexpr std::chrono::seconds kPatience(60);  // until a test gives up

// Looks again until `met`, or the patience ends. Other processes make it true, and need the core
// that looking without a pause would take from them.
template <typename Condition>
bool Eventually(const Condition& met) {
  constexpr int kBetweenLooksMs = 1;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!met()) {
    if (std::chrono::steady_clock::now() > end) return false;
    poll(nullptr, 0, kBetweenLooksMs);
  }
  return true;
}

// Killed on destruction where it still runs.
class DaemonProcess {
 public:
  // Starts forebayd with these arguments, and --ready-fd. Its stderr is appended to `log_path`.
  // `network` is a descriptor of the network namespace that it runs in (NetworkRig); -1: this
  // process's. A daemon with a namespace of its own is killed when the calling thread ends.
  DaemonProcess(const std::vector<std::string>& arguments, std::string log_path,
                int network = -1);
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;
  ~DaemonProcess();

  // The line that --ready-fd got; empty where the daemon ended without one.
  const std::string& ready_line();
  pid_t pid() const { return pid_; }
  void Signal(int number) const;
  // The exit code, or minus the signal that ended it; nullopt where the patience ended first.
  std::optional<int> Wait();
  // SIGKILL, and gone when this returns.
  void Kill();
  bool running();

  // A line of /proc/PID/status, in KiB ("VmHWM").
  std::uint64_t StatusKib(const std::string& key) const;
  // Of all its threads so far: time on a core, and how often they were given one.
  struct CpuUse {
    std::uint64_t run_ns = 0;
    std::uint64_t turns = 0;
  };
  CpuUse TotalCpuUse() const;
  std::uint64_t OpenFdCount() const;

 private:
  bool Reap(bool block);

  pid_t pid_ = -1;
  int ready_fd_ = -1;
  std::optional<std::string> ready_line_;
  std::optional<int> outcome_;
};

// forebayd as a command that ends by itself, with what it wrote to stdout and to stderr. Its files
// lie in `folder` meanwhile. The exit code is minus the signal that ended it.
struct CommandEnd {
  int exit_code = 0;
  std::string output;
  std::string errors;
};
CommandEnd RunForebayd(const std::vector<std::string>& arguments, const std::string& folder);

// A file's text; empty where there is none.
std::string ReadText(const std::string& path);

}  // namespace forebay::integration
