// The daemon gets a session of its own, so that only this process ends it: a signal to the whole
// job would otherwise take it from under the command. It gets SIGTERM from the kernel when this
// process dies, which works from its first instruction on, also while it waits for other nodes.
#include "client/cli/launch/node_launch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/daemon/admin_link.h"
#include "client/cli/daemon/daemon_address.h"
#include "client/connection/embedded_daemon.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "proto/contract/unique_fd.h"

namespace forebay::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Group = ChildOptions::Group;

constexpr std::string_view kReadyWord = "READY ";
constexpr std::size_t kReadyLineBytesMax = 512;
constexpr int kNotExecutable = 126;  // exit codes of shells
constexpr int kNotFound = 127;
// From SIGTERM to SIGKILL, for a command whose daemon has died: time to write a checkpoint.
constexpr milliseconds kLastWords(30'000);
// A daemon ends within kDrainDeadlineMs, and this is for a machine with much else to do.
constexpr milliseconds kDrainPatience(2 * limits::kDrainDeadlineMs);
constexpr auto kForever = steady_clock::time_point::max();

int MsUntil(steady_clock::time_point end) {
  const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

steady_clock::time_point InDrainTime() { return steady_clock::now() + kDrainPatience; }

// Whether a person sits at the terminal of this process: Ctrl-C then goes to the command directly,
// which must be in the foreground to read from the terminal.
bool IsInForeground() { return isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp(); }

// Two tasks of one node would start two daemons for it.
std::string TaskRemedy() {
  for (const char* name : {"SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0' || std::string_view(value) == "0") continue;
    return fmt::format("; this is a further task of its node ({}={}): start `forebay launch` once "
                       "per node (srun --ntasks-per-node=1, mpirun --map-by ppr:1:node)",
                       name, value);
  }
  return {};
}

}  // namespace

Status NodeLaunch::Run() {
  const Status started = StartDaemon();
  if (!started.has_value() || !daemon_ || !daemon_->runs()) return started;
  // The wait for READY may have taken the SIGCHLD of a daemon that ended right after that line.
  daemon_->Reap();
  if (!daemon_->runs()) {
    return Error(ErrorCode::kUnavailable,
                 fmt::format("the daemon ended before the command began ({}); {}",
                             daemon_->HowItEnded(), WhereItLogs()));
  }
  return RunCommand();
}

Result<std::string> NodeLaunch::Config() const {
  std::string given = DaemonConfig(arguments_.config);
  if (!given.empty()) return given;
  return Error(ErrorCode::kInvalidArgument,
               "the daemon needs a configuration file: give --config FILE, or set FOREBAY_CONFIG");
}

Status NodeLaunch::StartDaemon() {
  FOREBAY_ASSIGN(const std::string config, Config());
  std::array<int, 2> ends;
  // The daemon's one line fits into the pipe, so its end may be non-blocking as well as this one.
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return Error::FromErrno(errno, "pipe");
  const UniqueFd ready(ends[0]);
  UniqueFd theirs(ends[1]);
  UniqueFd log;
  if (!arguments_.log.empty()) {
    log = UniqueFd(open(arguments_.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!log.valid()) return Error::FromErrno(errno, "opening the log " + arguments_.log);
  }
  ChildOptions options = {
      .words = {internal::DaemonProgram(), "--config", config, "--ready-fd",
                std::to_string(theirs.get()),
                // The command may need longer to connect than the file allows between two jobs.
                "--exit-when-idle-s", "0"},
      .signal_when_orphaned = SIGTERM,
      .group = Group::kOwnSession,
      .inherited_fd = theirs.get(),
      .output_fd = log.get()};
  const auto add = [&options](const char* name, const std::string& value) {
    if (!value.empty()) options.words.insert(options.words.end(), {name, value});
  };
  for (const std::string& setting : arguments_.settings) add("--set", setting);
  add("--node-rank", arguments_.node_rank);
  add("--node-count", arguments_.node_count);
  constexpr std::string_view kUnix = "unix:";
  const bool has_scheme = context_.address.starts_with(kUnix);
  add("--socket", context_.address.substr(has_scheme ? kUnix.size() : 0));
  FOREBAY_ASSIGN(daemon_, ChildProcess::Start(options));
  // With this end open here, the pipe would never report that the daemon has ended.
  theirs.Reset();
  return AwaitReady(ready.get());
}

// Returns without an error and without a running daemon if a signal came first.
Status NodeLaunch::AwaitReady(int fd) {
  const auto deadline = steady_clock::now() + std::chrono::seconds(arguments_.ready_timeout_s);
  std::string line;
  while (!line.ends_with('\n')) {
    const SignalWatch::Event event = signals_.Wait(MsUntil(deadline), fd);
    if (event.signal != 0 && event.signal != SIGCHLD) {
      daemon_->Signal(SIGTERM);
      AwaitDaemonsEnd(InDrainTime());
      SetCode(128 + event.signal);
      return {};
    }
    if (steady_clock::now() >= deadline) {
      daemon_->Signal(SIGTERM);
      AwaitDaemonsEnd(InDrainTime());
      return Error(ErrorCode::kDeadlineExceeded,
                   fmt::format("the daemon was not ready within {} s (--ready-timeout-s); {}",
                               arguments_.ready_timeout_s, WhereItLogs()));
    }
    char letter = 0;
    ssize_t got = 0;
    while (line.size() < kReadyLineBytesMax && (got = read(fd, &letter, 1)) == 1) line += letter;
    // The daemon has the only other end, so its end means that the daemon has ended or will.
    if (got == 0 && !line.ends_with('\n')) {
      daemon_->Signal(SIGTERM);
      AwaitDaemonsEnd(InDrainTime());
      return Error(ErrorCode::kUnavailable,
                   fmt::format("the daemon did not start ({}); {}{}", daemon_->HowItEnded(),
                               WhereItLogs(), TaskRemedy()));
    }
  }
  if (!line.starts_with(kReadyWord)) {
    return Error(ErrorCode::kInternal, "the first words of the daemon are not READY");
  }
  address_ = line.substr(kReadyWord.size(), line.size() - kReadyWord.size() - 1);
  return {};
}

Status NodeLaunch::RunCommand() {
  const bool is_in_foreground = IsInForeground();
  auto started = ChildProcess::Start(
      {.words = arguments_.command,
       .signal_when_orphaned = SIGKILL,
       .group = is_in_foreground ? Group::kOfThisProcess : Group::kOwn,
       .variables = {{"FOREBAY_ADDRESS", address_}},
       // Programs print their environment, and send it away in reports.
       .removed_variables = {"FOREBAY_JOB_SECRET"}});
  if (!started.has_value()) {
    EndDaemon(/*has_succeeded=*/false);
    context_.Fail(started.error());
    SetCode(started.error().code() == ErrorCode::kNotFound ? kNotFound : kNotExecutable);
    return {};
  }
  ChildProcess& command = *started;
  for (;;) {
    const SignalWatch::Event event = signals_.Wait();
    command.Reap();
    daemon_->Reap();
    if (!command.runs()) break;
    if (!daemon_->runs()) return EndCommandWithoutDaemon(command);
    const bool has_it_already = is_in_foreground && event.is_from_terminal;
    if (event.signal != 0 && event.signal != SIGCHLD && !has_it_already) {
      command.Signal(event.signal);
    }
  }
  EndDaemon(*command.code() == 0);
  SetCode(*command.code());
  return {};
}

// The command would try for minutes to reach a daemon that does not come back, on time that is paid
// for.
Status NodeLaunch::EndCommandWithoutDaemon(ChildProcess& command) {
  const std::string how = daemon_->HowItEnded();
  Say(fmt::format("the daemon of this node has ended ({}) while '{}' ran, which gets SIGTERM now; "
                  "{}",
                  how, arguments_.command.front(), WhereItLogs()));
  command.Signal(SIGTERM);
  const auto deadline = steady_clock::now() + kLastWords;
  while (command.runs()) {
    if (steady_clock::now() >= deadline) command.Signal(SIGKILL);
    static_cast<void>(signals_.Wait(std::max(MsUntil(deadline), 100)));
    command.Reap();
  }
  return Error(ErrorCode::kUnavailable,
               fmt::format("the daemon ended ({}) before the command", how));
}

// A command that has failed ends its node at once: the job's launcher has to learn of it, and may
// end the other nodes. After success the daemon stays for them.
void NodeLaunch::EndDaemon(bool has_succeeded) {
  daemon_->Reap();
  bool stays = false;
  if (has_succeeded && daemon_->runs()) {
    context_.address = address_;
    const auto link = AdminLink::Connect(context_);
    const Status asked = link.has_value() ? link->Drain(/*after_all=*/true) : link.error();
    stays = asked.has_value();
    if (!stays) {
      Say("the daemon could not be asked to wait for the other nodes, and ends now: " +
          asked.error().message());
    }
  }
  if (!stays) daemon_->Signal(SIGTERM);
  AwaitDaemonsEnd(stays ? kForever : InDrainTime());
  // The command's exit code stays what it is: it may have done all its work.
  if (*daemon_->code() != 0) {
    Say(fmt::format("the daemon ended with {}; {}", daemon_->HowItEnded(), WhereItLogs()));
  }
}

// With kForever, it ends when all nodes have finished, or when a signal asks for that.
void NodeLaunch::AwaitDaemonsEnd(steady_clock::time_point deadline) {
  for (daemon_->Reap(); daemon_->runs(); daemon_->Reap()) {
    const SignalWatch::Event event = signals_.Wait(MsUntil(deadline));
    if (event.signal != 0 && event.signal != SIGCHLD && deadline == kForever) {
      daemon_->Signal(SIGTERM);
      deadline = InDrainTime();
    }
    if (steady_clock::now() < deadline) continue;
    Say(fmt::format("the daemon does not end, and gets SIGKILL; {}", WhereItLogs()));
    daemon_->Signal(SIGKILL);
    deadline = InDrainTime();
  }
}

void NodeLaunch::SetCode(int code) { context_.exit_code = static_cast<ExitCode>(code); }

void NodeLaunch::Say(const std::string& text) {
  context_.err << "forebay: " << PrintableLine(text) << '\n' << std::flush;
}

std::string NodeLaunch::WhereItLogs() const {
  if (!arguments_.log.empty()) return "its log is " + arguments_.log;
  return "its log is on standard error (--log FILE: in a file)";
}

}  // namespace forebay::cli
