// Starts programs by fork and exec, because posix_spawn cannot ask the kernel for a signal at the
// death of the parent. A pipe that is closed by exec tells the parent whether exec has worked.
#include "client/cli/launch/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/unique_fd.h"

namespace forebay::cli {
namespace {

// Runs in the child; returns only if the program cannot be executed.
void Execute(const ChildOptions& options, char* const* arguments, pid_t parent) {
  if (options.group == ChildOptions::Group::kOwn) setpgid(0, 0);
  if (options.group == ChildOptions::Group::kOwnSession) setsid();
  prctl(PR_SET_PDEATHSIG, options.signal_when_orphaned);
  // The parent may have died before the line above; then the signal never comes.
  if (getppid() != parent) _exit(EXIT_FAILURE);
  if (options.inherited_fd >= 0) fcntl(options.inherited_fd, F_SETFD, 0);
  if (options.output_fd >= 0) {
    dup2(options.output_fd, STDOUT_FILENO);
    dup2(options.output_fd, STDERR_FILENO);
  }
  for (const auto& [name, value] : options.variables) setenv(name.c_str(), value.c_str(), 1);
  for (const std::string& name : options.removed_variables) unsetenv(name.c_str());
  // A blocked signal would stay blocked in the program, which does not expect that.
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  execvp(arguments[0], arguments);
}

}  // namespace

Result<ChildProcess> ChildProcess::Start(const ChildOptions& options) {
  std::vector<std::string> words = options.words;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Error::FromErrno(errno, "pipe");
  const UniqueFd outcome(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Error::FromErrno(errno, "starting '" + words.front() + "'");
  if (pid == 0) {
    Execute(options, arguments.data(), parent);
    const int why = errno;
    static_cast<void>(!write(theirs.get(), &why, sizeof(why)));
    _exit(EXIT_FAILURE);
  }
  theirs.Reset();
  int why = 0;
  ssize_t got = 0;
  while ((got = read(outcome.get(), &why, sizeof(why))) < 0 && errno == EINTR) {
  }
  if (got == sizeof(why)) {
    waitpid(pid, nullptr, 0);
    return Error::FromErrno(why, "starting '" + words.front() + "'");
  }
  return ChildProcess(pid, options.group != ChildOptions::Group::kOfThisProcess);
}

void ChildProcess::Reap() {
  int status = 0;
  if (code_ || waitpid(pid_, &status, WNOHANG) != pid_) return;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Larger codes than that of the last signal are of programs that exit with a negative number.
bool ChildProcess::WasEndedBySignal() const {
  const int signal = code_.value_or(0) - 128;
  return signal > 0 && signal <= SIGRTMAX;
}

std::string ChildProcess::HowItEnded() const {
  const int code = code_.value_or(0);
  return WasEndedBySignal() ? fmt::format("signal {}", code - 128)
                            : fmt::format("exit code {}", code);
}

void ChildProcess::Signal(int number) const {
  // Until Reap has seen its end the number of the process is not given to another one.
  if (runs()) kill(leads_group_ ? -pid_ : pid_, number);
}

void ChildProcess::KillRest() const {
  // A group keeps its number as long as it has a member. If this one has none left, another group
  // can have its number only after all other numbers were given away.
  if (!runs() && leads_group_) kill(-pid_, SIGKILL);
}

}  // namespace forebay::cli
