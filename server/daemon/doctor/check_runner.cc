// The child writes one line of JSON to a pipe for each step and each finding; the parent reads
// until the pipe ends or the time is over, and then kills the child. A child that is blocked in the
// kernel ends only when its call returns, so the parent does not wait for it without limit.
#include "server/daemon/doctor/check_runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::daemon {
namespace {

using std::chrono::ceil;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kEndMs(1'000);  // for a killed child to end
constexpr int kEndPollMs = 5;
constexpr std::string_view kStepWord = "step ";
constexpr std::string_view kFindingWord = "finding ";
constexpr const char* kBugRemedy = "report this as a bug of forebayd --doctor";

// The report of the child.
class PipeReport final : public CheckReport {
 public:
  PipeReport(int fd, const Check& check) : fd_(fd), check_(check) {}
  void Begin(const std::string& step) override { Write(kStepWord, step); }
  void Add(Finding finding) override {
    finding.check = check_.name;
    if (finding.subject.empty()) finding.subject = check_.subject;
    Write(kFindingWord, FindingJson(finding));
  }

 private:
  void Write(std::string_view word, std::string text) const {
    // A path may have a line end. JSON has none.
    std::replace(text.begin(), text.end(), '\n', ' ');
    const std::string line = fmt::format("{}{}\n", word, text);
    for (std::string_view rest = line; !rest.empty();) {
      const ssize_t written = write(fd_, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      // The parent has gone: nobody wants to know the rest.
      if (written <= 0) _exit(1);
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  const int fd_;
  const Check& check_;
};

[[noreturn]] void RunInChild(const Check& check, int pipe_fd, pid_t parent) {
  // If the parent is killed, the check ends with it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  // A child that cannot be killed must not keep the user's pipe or terminal open.
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    dup2(null.get(), standard);
  }
  // A limit of the size of files then gives an error, which names the file, and not a signal.
  signal(SIGXFSZ, SIG_IGN);
  PipeReport report(pipe_fd, check);
  check.run(report);
  // No destructors of the parent's objects.
  _exit(0);
}

// The steps and findings that the parent has read from the pipe so far.
struct Heard {
  std::string step;
  std::uint64_t findings = 0;
};

void HearLine(std::string_view line, Heard& heard,
              const std::function<void(const Finding&)>& found) {
  if (line.starts_with(kStepWord)) heard.step = line.substr(kStepWord.size());
  if (!line.starts_with(kFindingWord)) return;
  const auto finding = ParseFinding(line.substr(kFindingWord.size()));
  if (!finding) return;
  ++heard.findings;
  found(*finding);
}

// Returns true once the child has closed the pipe, and false if the time is over before.
bool Listen(int pipe_fd, steady_clock::time_point deadline, Heard& heard,
            const std::function<void(const Finding&)>& found) {
  std::string text;
  for (;;) {
    const auto left = ceil<milliseconds>(deadline - steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd wait{.fd = pipe_fd, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, static_cast<int>(left)) <= 0) continue;
    std::array<char, 4096> part;
    const ssize_t got = read(pipe_fd, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    text.append(part.data(), static_cast<std::size_t>(got));
    for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      HearLine(std::string_view(text).substr(0, end), heard, found);
      text.erase(0, end + 1);
    }
  }
}

// The child's wait status; nothing if it has not ended within kEndMs. It has been killed then, and
// ends as soon as the kernel lets it.
std::optional<int> AwaitEnd(pid_t pid) {
  const auto deadline = steady_clock::now() + kEndMs;
  for (;;) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) return status;
    if (steady_clock::now() >= deadline) break;
    // There is no call that waits for a child with a limit, other than pidfd_open of Linux 5.3.
    poll(nullptr, 0, kEndPollMs);
  }
  kill(pid, SIGKILL);
  return std::nullopt;
}

std::string DuringStep(const Heard& heard) {
  return heard.step.empty() ? "" : " while " + heard.step;
}

}  // namespace

void RunCheck(const Check& check, std::int64_t patience_ms,
              const std::function<void(const Finding&)>& found) {
  const auto fail = [&](std::string text, const std::string& remedy) {
    found({.check = check.name,
           .subject = check.subject,
           .verdict = Verdict::kFailure,
           .text = std::move(text),
           .remedy = remedy});
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return fail(Error::FromErrno(errno, "pipe").message(), "raise the limits of this process");
  }
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) RunInChild(check, theirs.get(), parent);
  if (pid < 0) {
    return fail(Error::FromErrno(errno, "fork").message(),
                "allow this user more processes (ulimit -u), or more memory");
  }
  // With this end open here, the pipe would never end.
  theirs.Reset();
  Heard heard;
  const bool has_ended = Listen(ours.get(), steady_clock::now() + milliseconds(patience_ms), heard,
                                found);
  if (!has_ended) kill(pid, SIGKILL);
  const std::optional<int> status = AwaitEnd(pid);
  if (!has_ended || !status) {
    fail(fmt::format("no answer within {:.3g} s{}", static_cast<double>(patience_ms) / 1000,
                     DuringStep(heard)),
         check.hung_remedy);
  } else if (WIFSIGNALED(*status)) {
    const int number = WTERMSIG(*status);
    fail(fmt::format("the check was ended by signal {} ({}){}", number, strsignal(number),
                     DuringStep(heard)),
         number == SIGKILL ? "look in the kernel's log (dmesg) whether memory was short"
                           : kBugRemedy);
  } else if (heard.findings == 0 || WEXITSTATUS(*status) != 0) {
    fail("the check ended without a result" + DuringStep(heard), kBugRemedy);
  }
}

}  // namespace forebay::daemon
