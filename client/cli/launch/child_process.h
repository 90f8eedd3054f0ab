// ChildProcess: a program that this process starts and waits for. The kernel sends it a signal when
// this process dies, in whatever way, so that it is not left behind.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::cli {

struct ChildOptions {
  std::vector<std::string> words;  // the program, found on $PATH, and its arguments
  int signal_when_orphaned = 0;
  // Signals that are sent to the process group of this process, as by Ctrl-C, then do not reach it.
  enum class Group : unsigned char { kOfThisProcess, kOwn, kOwnSession };
  Group group = Group::kOfThisProcess;
  std::vector<std::pair<std::string, std::string>> variables = {};  // set in its environment
  std::vector<std::string> removed_variables = {};                  // taken out of it
  int inherited_fd = -1;  // a descriptor that it gets; all others of this process are close-on-exec
  int output_fd = -1;     // in place of standard output and standard error
};

// Not thread-safe. The child goes on if this object is destroyed.
class ChildProcess {
 public:
  // The process must have one thread, because it forks. Errors: why the program cannot be executed,
  // with its errno.
  static Result<ChildProcess> Start(const ChildOptions& options);

  pid_t pid() const { return pid_; }
  // Looks whether it has ended, without waiting.
  void Reap();
  // The exit status, or 128 + the signal that ended it, as shells say; nullopt while it runs.
  std::optional<int> code() const { return code_; }
  bool runs() const { return !code_.has_value(); }
  // Whether a signal ended it, or a program that it waited for: shells and launchers then exit with
  // 128 + the signal. To be called, as HowItEnded, once it has ended.
  bool WasEndedBySignal() const;
  // "exit code 3" or "signal 9".
  std::string HowItEnded() const;
  // To it, or to its whole process group if it has one of its own. Does nothing once it has ended.
  void Signal(int number) const;
  // Sends SIGKILL to what it has started and left behind, if it had a process group of its own. To
  // be called right after Reap has seen its end.
  void KillRest() const;

 private:
  ChildProcess(pid_t pid, bool leads_group) : pid_(pid), leads_group_(leads_group) {}

  pid_t pid_;
  bool leads_group_;
  std::optional<int> code_;
};

}  // namespace forebay::cli
