// The child gets two descriptors: the log as its standard error, and a pipe for the READY line. It
// is made by fork and not by posix_spawn, because it enters a network namespace before it becomes
// forebayd. Ends are waited for by polling, with one limit for all of them (Eventually).
#include "tests/integration/daemon_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "proto/contract/check.h"

namespace forebay::integration {

DaemonProcess::DaemonProcess(const std::vector<std::string>& arguments, std::string log_path,
                             int network) {
  int ends[2];
  // Both ends close at exec, so that no other daemon of the test holds this one's pipe open.
  FOREBAY_CHECK(pipe2(ends, O_CLOEXEC) == 0);
  constexpr int kReadyFd = 3;
  std::vector<std::string> words = {FOREBAYD};
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.insert(words.end(), {"--ready-fd", std::to_string(kReadyFd)});
  std::vector<char*> raw;
  for (std::string& word : words) raw.push_back(word.data());
  raw.push_back(nullptr);
  pid_ = fork();
  FOREBAY_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    // A namespace lives as long as a process in it, and has to go when the test crashes.
    const bool is_placed = network < 0 || (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
                                           setns(network, CLONE_NEWNET) == 0);
    if (!is_placed) _exit(127);
    const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(log, STDERR_FILENO);
    dup2(ends[1], kReadyFd);
    // dup2 onto itself keeps the flag that closes it at exec.
    if (ends[1] == kReadyFd) fcntl(kReadyFd, F_SETFD, 0);
    execv(raw[0], raw.data());
    _exit(127);
  }
  // With this end open here, the pipe would not end when the daemon does.
  close(ends[1]);
  ready_fd_ = ends[0];
}

DaemonProcess::~DaemonProcess() {
  Kill();
  if (ready_fd_ >= 0) close(ready_fd_);
}

const std::string& DaemonProcess::ready_line() {
  if (ready_line_) return *ready_line_;
  std::string line;
  char part[256];
  const auto patience =
      static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(kPatience).count());
  pollfd polled{ready_fd_, POLLIN, 0};
  while (line.find('\n') == std::string::npos && poll(&polled, 1, patience) > 0) {
    const ssize_t got = read(ready_fd_, part, sizeof(part));
    // The daemon has ended without the line.
    if (got <= 0) break;
    line.append(part, static_cast<std::size_t>(got));
  }
  // There may be a second line behind it.
  return ready_line_.emplace(line, 0, std::min(line.size(), line.find('\n') + 1));
}

// After the end, the number may belong to another process.
void DaemonProcess::Signal(int number) const {
  if (!outcome_) kill(pid_, number);
}

bool DaemonProcess::Reap(bool block) {
  if (outcome_) return true;
  int status = 0;
  if (waitpid(pid_, &status, block ? 0 : WNOHANG) != pid_) return false;
  outcome_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return true;
}

std::optional<int> DaemonProcess::Wait() {
  Eventually([this] { return Reap(false); });
  return outcome_;
}

void DaemonProcess::Kill() {
  Signal(SIGKILL);
  Reap(true);
}

bool DaemonProcess::running() { return !Reap(false); }

std::uint64_t DaemonProcess::StatusKib(const std::string& key) const {
  std::istringstream lines(ReadText("/proc/" + std::to_string(pid_) + "/status"));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::stoull(line.substr(key.size() + 1));
  }
  return 0;
}

// schedstat has nanoseconds, where /proc/PID/stat counts in hundredths of a second.
DaemonProcess::CpuUse DaemonProcess::TotalCpuUse() const {
  CpuUse total;
  const std::string tasks = "/proc/" + std::to_string(pid_) + "/task";
  for (const auto& entry : std::filesystem::directory_iterator(tasks)) {
    std::istringstream text(ReadText(entry.path().string() + "/schedstat"));
    std::uint64_t run_ns = 0, waited_ns = 0, turns = 0;
    if (!(text >> run_ns >> waited_ns >> turns)) continue;  // a thread that ended meanwhile
    total.run_ns += run_ns;
    total.turns += turns;
  }
  return total;
}

std::uint64_t DaemonProcess::OpenFdCount() const {
  const std::filesystem::directory_iterator fds("/proc/" + std::to_string(pid_) + "/fd");
  return static_cast<std::uint64_t>(std::distance(begin(fds), end(fds)));
}

CommandEnd RunForebayd(const std::vector<std::string>& arguments, const std::string& folder) {
  std::vector<std::string> words = {FOREBAYD};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> raw;
  for (std::string& word : words) raw.push_back(word.data());
  raw.push_back(nullptr);
  const std::string output = folder + "/output", errors = folder + "/errors";
  const pid_t pid = fork();
  FOREBAY_CHECK(pid >= 0);
  if (pid == 0) {
    constexpr int kNewFile = O_WRONLY | O_CREAT | O_TRUNC;
    dup2(open(output.c_str(), kNewFile, 0600), STDOUT_FILENO);
    dup2(open(errors.c_str(), kNewFile, 0600), STDERR_FILENO);
    execv(raw[0], raw.data());
    _exit(127);
  }
  int status = 0;
  FOREBAY_CHECK(waitpid(pid, &status, 0) == pid);
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
          .output = ReadText(output),
          .errors = ReadText(errors)};
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace forebay::integration
