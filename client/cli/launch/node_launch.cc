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
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/daemon/admin_link.h"
#include "client/cli/daemon/daemon_address.h"
#include "client/cli/launch/dead_daemon.h"
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
constexpr std::string_view kOthersWord = "OTHER-DAEMONS ";  // begins a second line, if there is one
constexpr std::size_t kReadyBytesMax = 512;
constexpr const char* kSecretVariable = "FOREBAY_JOB_SECRET";
constexpr int kNotExecutable = 126;  // exit codes of shells
constexpr int kNotFound = 127;
// From SIGTERM to SIGKILL, for a command whose daemon has died: time to write a checkpoint.
constexpr milliseconds kLastWords(30'000);
// A daemon ends within kDrainDeadlineMs, and this is for a machine with much else to do.
constexpr milliseconds kDrainPatience(2 * limits::kDrainDeadlineMs);
constexpr auto kForever = steady_clock::time_point::max();

// forebay-train: stopped after a checkpoint, and to be started again (docs/trainer.md).
constexpr int kRequeue = 85;
// A command that asks for that so shortly before the end of the job has run out of time.
constexpr std::chrono::minutes kJobsLastTime(10);

int MsUntil(steady_clock::time_point end) {
  const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

steady_clock::time_point InDrainTime() { return steady_clock::now() + kDrainPatience; }

// Whether a person sits at the terminal of this process: Ctrl-C then goes to the command directly,
// which must be in the foreground to read from the terminal.
bool IsInForeground() { return isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp(); }

// SIGUSR1 and SIGUSR2 are only passed on to the command: with them, people and schedulers tell
// programs to write a checkpoint, for example.
bool AsksForEnd(int signal) { return signal != SIGUSR1 && signal != SIGUSR2; }

bool IsJobsLastTime() {
  const char* end_s = std::getenv("SLURM_JOB_END_TIME");  // seconds since 1970
  if (end_s == nullptr) return false;
  const std::chrono::seconds end(std::strtoll(end_s, nullptr, 10));
  if (end.count() <= 0) return false;  // not a time
  return std::chrono::system_clock::now().time_since_epoch() >= end - kJobsLastTime;
}

// The path in an address "unix:PATH" or "PATH".
std::string WithoutScheme(const std::string& address) {
  constexpr std::string_view kUnix = "unix:";
  return address.substr(address.starts_with(kUnix) ? kUnix.size() : 0);
}

double Seconds(milliseconds time) { return std::chrono::duration<double>(time).count(); }

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
  const Status ran = RunBoth();
  RemoveFilesOfDead();
  return ran;
}

// A daemon that ends in good order leaves nothing, so this is for one that was killed.
void NodeLaunch::RemoveFilesOfDead() {
  // One that was never ready has not said where it listens. It does so in the default place, or
  // nothing is removed.
  std::string socket = context_.address;
  if (socket.empty()) {
    socket = internal::EmbeddedDirectory(internal::CurrentJob()) + "/forebayd.sock";
  }
  const Status removed = cli::RemoveFilesOfDead(WithoutScheme(socket), daemons_);
  if (!removed.has_value()) {
    Say("files of a daemon that was killed are left: " + removed.error().ToString());
  }
}

Status NodeLaunch::RunBoth() {
  FOREBAY_TRY(StartDaemon());
  if (end_signal_) {
    SetCode(128 + *end_signal_);
    return {};
  }
  if (!daemon_->runs()) {
    return Error(ErrorCode::kUnavailable,
                 fmt::format("the daemon ended before the command began ({}); {}",
                             daemon_->HowItEnded(), WhereItLogs()));
  }
  do {
    const Status started = StartCommand();
    if (!started.has_value()) {
      EndDaemon(/*stays_for_others=*/false);
      context_.Fail(started.error());
      SetCode(started.error().code() == ErrorCode::kNotFound ? kNotFound : kNotExecutable);
      return {};
    }
    FOREBAY_TRY(AttendCommand());
  } while (AwaitNextRun());
  // Whoever has asked for the end does not want this node to wait for the readers of others.
  EndDaemon(/*stays_for_others=*/*command_->code() == 0 && !end_signal_);
  SetCode(*command_->code());
  return {};
}

// Waits for an event, and does at once what each event needs, whatever the caller waits for: a
// signal is passed on to the command, and the ends of the two children are noted.
SignalWatch::Event NodeLaunch::Next(Time deadline, int fd) {
  const SignalWatch::Event event = signals_.Wait(MsUntil(deadline), fd);
  const bool ran = command_ && command_->runs();
  if (event.signal != 0 && event.signal != SIGCHLD) {
    // Without a command, the signal can only be meant for this launch.
    if ((!ran || AsksForEnd(event.signal)) && !end_signal_) end_signal_ = event.signal;
    was_signalled_ = true;
    const bool has_it_already = is_in_foreground_ && event.is_from_terminal;
    if (ran && !has_it_already) command_->Signal(event.signal);
  }
  if (daemon_) daemon_->Reap();
  if (ran) command_->Reap();
  if (ran && !command_->runs()) next_run_ = NextRun();
  return event;
}

bool NodeLaunch::WantsDaemon() const {
  return !end_signal_ && (!command_ || command_->runs() || next_run_);
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
  if (!arguments_.secret.empty()) {
    options.variables = {{kSecretVariable, arguments_.secret}};
    // With an empty key, the daemon takes the variable, whatever its configuration says.
    add("--set", "peer.secret=");
  }
  add("--node-rank", arguments_.node_rank);
  add("--node-count", arguments_.node_count);
  add("--socket", WithoutScheme(context_.address));
  FOREBAY_ASSIGN(daemon_, ChildProcess::Start(options));
  daemons_.push_back(daemon_->pid());
  // With this end open here, the pipe would never report that the daemon has ended.
  theirs.Reset();
  return AwaitReady(ready.get());
}

// Returns without an error and without a running daemon if it is not wanted any more.
Status NodeLaunch::AwaitReady(int fd) {
  const auto deadline = steady_clock::now() + std::chrono::seconds(arguments_.ready_timeout_s);
  std::string said;
  while (!said.ends_with('\n')) {
    Next(deadline, fd);
    if (!WantsDaemon()) {
      GiveUpDaemon();
      return {};
    }
    if (steady_clock::now() >= deadline) {
      GiveUpDaemon();
      return Error(ErrorCode::kDeadlineExceeded,
                   fmt::format("the daemon was not ready within {} s (--ready-timeout-s); {}",
                               arguments_.ready_timeout_s, WhereItLogs()));
    }
    char letter = 0;
    ssize_t got = 0;
    while (said.size() < kReadyBytesMax && (got = read(fd, &letter, 1)) == 1) said += letter;
    // The daemon has the only other end, so its end means that the daemon has ended or will.
    if (got == 0 && !said.ends_with('\n')) {
      GiveUpDaemon();
      return Error(ErrorCode::kUnavailable,
                   fmt::format("the daemon did not start ({}); {}{}", daemon_->HowItEnded(),
                               WhereItLogs(), TaskRemedy()));
    }
  }
  if (!said.starts_with(kReadyWord)) {
    GiveUpDaemon();
    return Error(ErrorCode::kInternal, "the first words of the daemon are not READY");
  }
  // A daemon that is started again listens there, too, because the command knows this address.
  const std::size_t end = said.find('\n');
  context_.address = said.substr(kReadyWord.size(), end - kReadyWord.size());
  // The daemon writes all that it says at once.
  have_readers_others_ = std::string_view(said).substr(end + 1).starts_with(kOthersWord);
  return {};
}

void NodeLaunch::GiveUpDaemon() {
  daemon_->Signal(SIGTERM);
  AwaitDaemonsEnd(InDrainTime());
}

// Starts the daemon again, which has ended, until it runs. Returns false if it does not: it is not
// wanted any more, was asked to end, was not ready in time, or no restart is left.
bool NodeLaunch::RestartDaemon() {
  while (WantsDaemon() && *daemon_->code() != 0 && !is_daemon_given_up_) {
    const auto restart = restarts_.Take(steady_clock::now());
    if (!restart) return false;
    Say(fmt::format("the daemon of this node has ended ({}), and is started again in {} s (restart "
                    "{} of {}); {}",
                    daemon_->HowItEnded(), Seconds(restart->pause), restart->number,
                    restarts_.limit(), WhereItLogs()));
    const auto resume_at = steady_clock::now() + restart->pause;
    while (WantsDaemon() && steady_clock::now() < resume_at) Next(resume_at);
    if (!WantsDaemon()) return false;
    const Status started = StartDaemon();
    if (!started.has_value()) {
      Say(started.error().message());
      is_daemon_given_up_ = started.error().code() == ErrorCode::kDeadlineExceeded;
    }
    if (started.has_value() && daemon_->runs()) {
      Say("the daemon of this node runs again");
      return true;
    }
  }
  return false;
}

Status NodeLaunch::StartCommand() {
  is_in_foreground_ = IsInForeground();
  was_signalled_ = false;
  next_run_.reset();
  FOREBAY_ASSIGN(
      command_,
      ChildProcess::Start(
          {.words = arguments_.command,
           .signal_when_orphaned = SIGKILL,
           .group = is_in_foreground_ ? Group::kOfThisProcess : Group::kOwn,
           .variables = {{"FOREBAY_ADDRESS", context_.address},
                         {"FOREBAY_RESTART", std::to_string(runs_)}},
           // Programs print their environment, and send it away in reports.
           .removed_variables = {kSecretVariable}}));
  ++runs_;
  return {};
}

// Returns when the command has ended. Error: it had to be ended, because there is no daemon.
Status NodeLaunch::AttendCommand() {
  bool needs_daemon = true;
  while (command_->runs()) {
    // A command that was asked to end needs no daemon for its last checkpoint.
    if (daemon_->runs() || end_signal_ || !needs_daemon) {
      Next(kForever);
    } else if (!RestartDaemon() && command_->runs() && !end_signal_) {
      if (!have_readers_others_) return EndCommandWithoutDaemon();
      needs_daemon = false;
      Say(CommandWithoutDaemon("goes on, and reads from other nodes of the job"));
    }
  }
  return {};
}

// Decides, when the command has ended, whether it is run again, and says so.
std::optional<RestartBudget::Restart> NodeLaunch::NextRun() {
  const bool asks = *command_->code() == kRequeue;
  if (restarts_.limit() == 0) return std::nullopt;
  if (!asks && !command_->WasEndedBySignal()) return std::nullopt;
  const std::string ended = fmt::format("'{}' has ended ({})", arguments_.command.front(),
                                        command_->HowItEnded());
  if (was_signalled_) {
    Say(ended + ", and is not run again, because it was sent a signal");
    return std::nullopt;
  }
  if (!daemon_->runs() && (daemon_->code() == 0 || is_daemon_given_up_)) {
    Say(ended + ", and is not run again, because the daemon has ended" + WhyNoRestart());
    return std::nullopt;
  }
  if (asks && IsJobsLastTime()) {
    Say(ended + ", and is not run again: the job ends soon ($SLURM_JOB_END_TIME)");
    return std::nullopt;
  }
  const auto restart = restarts_.Take(steady_clock::now());
  if (!restart) {
    Say(ended + ", and is not run again" + WhyNoRestart());
    return std::nullopt;
  }
  command_->KillRest();
  Say(fmt::format("{}, and is run again in {} s (restart {} of {}); the daemon is kept", ended,
                  Seconds(restart->pause), restart->number, restarts_.limit()));
  return restart;
}

// Returns whether the command is to be started now; there is a daemon then.
bool NodeLaunch::AwaitNextRun() {
  if (!next_run_) return false;
  const auto begin_at = steady_clock::now() + next_run_->pause;
  while (!end_signal_) {
    if (!daemon_->runs() && !RestartDaemon()) break;
    if (steady_clock::now() >= begin_at) return true;
    Next(begin_at);
  }
  if (end_signal_) {
    Say(fmt::format("'{}' is not run again, because launch got signal {}",
                    arguments_.command.front(), *end_signal_));
  } else {
    Say(fmt::format("'{}' is not run again, because the daemon has ended ({}){}",
                    arguments_.command.front(), daemon_->HowItEnded(), WhyNoRestart()));
  }
  return false;
}

// The command would try for minutes to reach a daemon that does not come back, on time that is paid
// for.
Status NodeLaunch::EndCommandWithoutDaemon() {
  Say(CommandWithoutDaemon("gets SIGTERM now"));
  was_signalled_ = true;
  command_->Signal(SIGTERM);
  const auto deadline = steady_clock::now() + kLastWords;
  while (command_->runs()) {
    if (steady_clock::now() >= deadline) command_->Signal(SIGKILL);
    Next(std::max(deadline, steady_clock::now() + milliseconds(100)));
  }
  return Error(ErrorCode::kUnavailable,
               fmt::format("the daemon ended ({}) before the command", daemon_->HowItEnded()));
}

std::string NodeLaunch::CommandWithoutDaemon(const std::string& what) const {
  return fmt::format("the daemon of this node has ended ({}) while '{}' ran, which {}{}; {}",
                     daemon_->HowItEnded(), arguments_.command.front(), what, WhyNoRestart(),
                     WhereItLogs());
}

// A command that has failed ends its node at once: the job's launcher has to learn of it, and may
// end the other nodes. After success the daemon stays for them.
void NodeLaunch::EndDaemon(bool stays_for_others) {
  daemon_->Reap();
  bool stays = false;
  if (stays_for_others && daemon_->runs()) {
    const auto link = AdminLink::Connect(context_);
    const Status asked = link.has_value() ? link->Drain({.after_all = true}) : link.error();
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
void NodeLaunch::AwaitDaemonsEnd(Time deadline) {
  while (daemon_->runs()) {
    const SignalWatch::Event event = Next(deadline);
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

// The end of a message about a daemon or a command that is not started again.
std::string NodeLaunch::WhyNoRestart() const {
  if (restarts_.limit() == 0) return {};
  if (is_daemon_given_up_) {
    return "; the daemon is not started again, because it was not ready in time";
  }
  if (daemon_->code() == 0) {
    return "; the daemon is not started again, because it was asked to end";
  }
  return fmt::format("; all {} restarts (--restarts) are used", restarts_.limit());
}

}  // namespace forebay::cli
