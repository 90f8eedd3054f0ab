// forebayd: the program of the daemon, one per node. Gathers the configuration from file and
// command line, blocks signals, starts the Daemon, and serves until a signal or a drain. It stays
// in the foreground: a daemon that detaches itself outlives its job where a scheduler does not
// track processes by cgroup.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>

#include <CLI/CLI.hpp>
#include <absl/synchronization/mutex.h>
#include <fmt/format.h>
#include <grpc/grpc.h>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "proto/contract/thread_annotations.h"
#include "proto/contract/unique_fd.h"
#include "server/daemon/config/config.h"
#include "server/daemon/config/daemon_arguments.h"
#include "server/daemon/config/capacity_survey.h"
#include "server/daemon/daemon.h"
#include "server/daemon/daemon_log.h"
#include "server/daemon/doctor/doctor.h"
#include "server/daemon/end_in_time.h"
#include "server/daemon/serve_loop.h"
#include "server/io/backend_selection.h"
#include "server/io/clock.h"
#include "server/io/log.h"

namespace forebay::daemon {
namespace {

// From SIGTERM to when a daemon that has not stopped is ended; a second is left for the exit.
constexpr std::chrono::milliseconds kEndPatience(limits::kDrainDeadlineMs - 1'000);

int Fail(const DaemonExitCode& exit, const Config& config, const Error& error) {
  SayFatal(config, error.message());
  return exit.code;
}

// Reads the file first, then the command line, which overrides it.
Status Gather(const DaemonArguments& arguments, Config& config) {
  if (!arguments.config_path.empty()) {
    FOREBAY_TRY(LoadConfigFile(arguments.config_path, config));
  }
  // Settings apply in the order of the command line, so the last one of a key holds.
  for (const std::string& setting : arguments.settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--set {}: has no '='; write --set KEY=VALUE", setting));
    }
    FOREBAY_TRY(SetConfigKey(config, setting.substr(0, equals), setting.substr(equals + 1)));
  }
  config.node_rank = arguments.node_rank;
  config.node_count = arguments.node_count;
  return CheckConfig(config);
}

// Tells the launcher that clients may connect now, and in a second line how many daemons of other
// nodes serve them when this one is gone. A launcher that has gone is no reason to stop.
void Announce(const Daemon& daemon, int ready_fd) {
  if (ready_fd < 0) return;
  std::string lines = fmt::format("READY unix:{}\n", daemon.socket_path());
  if (const int others = daemon.other_daemons_for_clients(); others > 0) {
    lines += fmt::format("OTHER-DAEMONS {}\n", others);
  }
  // So little fits in a pipe, so it is written as a whole or not at all.
  if (write(ready_fd, lines.data(), lines.size()) < 0) {
    log::Warn("READY could not be written to --ready-fd {}: {}", ready_fd, std::strerror(errno));
  }
  close(ready_fd);
}

// Watchdog of the start: ends the process if it was asked to stop, and the start does not end in
// time because a file system or a PMIx server does not answer. Files that the start has made may
// stay: lock files, which the next daemon takes over.
class StartInTime {
 public:
  explicit StartInTime(int signal_fd)
      : signal_fd_(signal_fd),
        ended_(eventfd(0, EFD_CLOEXEC)),
        thread_([this] { Watch(); }) {}
  ~StartInTime() {
    const std::uint64_t one = 1;
    // An eventfd takes its first write always.
    static_cast<void>(!write(ended_.get(), &one, sizeof(one)));
  }
  StartInTime(const StartInTime&) = delete;
  StartInTime& operator=(const StartInTime&) = delete;

 private:
  void Watch() const {
    pollfd polled[] = {{ended_.get(), POLLIN, 0}, {signal_fd_, POLLIN, 0}};
    // The signal is not read here: it stays for the start, and for the main thread after it.
    while (poll(polled, std::size(polled), -1) < 0 && errno == EINTR) {
    }
    if ((polled[0].revents & POLLIN) != 0) return;
    log::Info("forebayd was asked to stop while it starts");
    if (poll(polled, 1, kPatienceMs) != 0) return;
    log::Error("forebayd could not end its start within {} ms, and exits without waiting for a "
               "file system that does not answer, or for a PMIx server; it was opening the "
               "directories and data sets of its configuration, or looking for other nodes",
               kPatienceMs);
    std::_Exit(kExitFailure.code);
  }

  static constexpr int kPatienceMs = static_cast<int>(limits::kDrainDeadlineMs) / 2;
  const int signal_fd_;
  const UniqueFd ended_;
  const std::jthread thread_;  // ends before the descriptor is closed
};

// Serves until a signal or a drain, then stops the daemon and destroys it. Returns the exit code.
// While the daemon stops, SIGINT ends it at once, as a person wants it who presses Ctrl-C again.
// SIGTERM and SIGHUP stay blocked: schedulers and `forebay launch` send one each, maybe seconds
// apart, and the second one would leave behind what the daemon is about to remove.
int Serve(std::unique_ptr<Daemon> daemon, int signal_fd) {
  const int signal_number = ServeUntilAsked(*daemon, {.signal_fd = signal_fd});
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  std::signal(SIGINT, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &interrupt, nullptr);
  std::optional<EndInTime> watch;
  try {
    watch.emplace(EndInTimeParts{
        .patience = kEndPatience,
        .steps = daemon->stop_steps(),
        .gfs_calls = [raw = daemon.get()] { return raw->GfsCallsUnderWay(); },
        .paths = daemon->TransientPaths()});
  } catch (const std::system_error& error) {
    log::Warn("no thread watches the end of forebayd, which waits for whatever it takes: {}",
              error.what());
  }
  if (signal_number != 0) {
    log::Info("signal {}: draining (SIGINT ends at once)", signal_number);
  }
  const bool has_stopped = daemon->Stop();
  const int code = daemon->has_failed() ? kExitFailure.code : kExitOk.code;
  if (!has_stopped) {
    // Threads that are blocked still use the daemon and the log, so no destructor may run.
    watch.reset();
    std::_Exit(code);
  }
  if (watch) watch->HasStopped(code);
  daemon.reset();
  return code;
}

// `--check`: says whether the tiers hold the data sets. If they do not, the configuration is still
// valid, because order `block` works without, so the exit code is 0.
int Check(const Config& config) {
  fmt::print("configuration is valid: {} data sets\n", config.datasets.size());
  std::fflush(stdout);
  // The back end of threads works everywhere, and a check needs no speed.
  auto selected = io::SelectBackend(io::BackendChoice::kThreads);
  if (!selected.has_value()) return Fail(kExitFailure, config, selected.error());
  const io::SteadyClock clock;
  auto survey = std::make_unique<CapacitySurvey>(config, *selected->backend, clock,
                                             kCheckPatienceMs);
  // Facts go to stdout, which is flushed so that they come before the warnings on stderr.
  const bool is_over = survey->Await();
  const CapacityText text = Describe(survey->Report());
  for (const std::string& fact : text.facts) fmt::print("{}\n", PrintableLine(fact));
  std::fflush(stdout);
  for (const std::string& warning : text.warnings) {
    fmt::print(stderr, "WARNING: {}\n", PrintableLine(warning));
  }
  // If the survey is not over, its thread waits for a file system that does not answer. Such a
  // thread cannot be joined, so the process ends without destructors.
  if (!is_over) std::_Exit(kExitOk.code);
  return kExitOk.code;
}

// `--doctor`: tries what the configuration needs. Nothing has started a thread yet, and nothing may
// before: each check runs in a fork of this process.
int Examine(const Config& config, bool is_json) {
  const io::SteadyClock clock;
  // Each line at once, because the next check may take seconds.
  const auto say = [](const std::string& line) {
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
  };
  const FindingCounts counts =
      ExamineNode(ChecksOf(config, clock), clock, {}, [&](const Finding& finding) {
        say(is_json ? FindingJson(finding) + '\n' : FindingText(finding));
      });
  say(is_json ? CountsJson(counts) + '\n' : CountsText(counts));
  return counts.failures == 0 ? kExitOk.code : kExitFailure.code;
}

// The soft limit, often 1,024, is for programs that call select(). Many readers hold many segments
// of the SSD open, and one that cannot be opened would be read from the GFS once more. Where the
// hard limit is too low, the doctor says so.
void UseAllOpenFiles() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &files));
}

int Run(const DaemonArguments& arguments) {
  Config config = DefaultConfig();
  const Status gathered = Gather(arguments, config);
  if (!gathered.has_value()) return Fail(kExitUsage, config, gathered.error());
  UseAllOpenFiles();
  if (arguments.check) return Check(config);
  if (arguments.doctor) return Examine(config, arguments.json);
  StartLog(config);

  // Signals are read from a signalfd, so they are blocked in every thread. A thread inherits the
  // mask of the one that starts it, so this comes before any thread.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  // The kernel keeps a blocked signal also if it is ignored, as below nohup.
  struct sigaction hangup{};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN) {
    sigdelset(&signals, SIGHUP);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // Batch systems warn all processes of a job by SIGUSR1 and SIGUSR2. They mean the program that
  // reads, which may still need its samples, and by default these signals end a process.
  for (const int number : {SIGPIPE, SIGUSR1, SIGUSR2}) std::signal(number, SIG_IGN);
  // Files and sockets of the daemon are for this user only (promise P7).
  umask(0077);
  // Abseil checks the order of gRPC's locks at each one that is taken, unless it was compiled with
  // NDEBUG, as Debian's is not. That is for finding defects of gRPC, and takes 7 % of a daemon's
  // CPU time when small samples travel between nodes.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Keeps gRPC initialised until the process ends. Without this, destroying the server would shut
  // gRPC down, and version 1.51 then joins a polling thread that sleeps for up to 10 s if a write
  // had to wait. A daemon with a slow reader of inline batches would end that much later.
  grpc_init();

  // Open before the start, so that a daemon which waits for other nodes ends when it is asked to.
  const UniqueFd signal_fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  auto daemon = [&] {
    const StartInTime watch(signal_fd.get());
    return Daemon::Start(config, signal_fd.get());
  }();
  if (!daemon.has_value() && daemon.error().code() == ErrorCode::kCancelled) {
    log::Info("forebayd ends before it served: {}", daemon.error().message());
    return kExitOk.code;
  }
  if (!daemon.has_value()) return Fail(kExitFailure, config, daemon.error());
  Announce(**daemon, arguments.ready_fd);
  return Serve(std::move(*daemon), signal_fd.get());
}

std::string Footer() {
  std::string text = "Exit codes:\n";
  for (const DaemonExitCode& exit : kDaemonExitCodes) {
    text += fmt::format("  {}  {}\n", exit.code, exit.meaning);
  }
  text += "\nKeys:\n";
  for (const ConfigKey& key : ConfigKeys()) {
    text += fmt::format("  {} (default '{}')\n      {}\n", key.name, key.default_text, key.help);
  }
  return text;
}

int Main(int argc, char** argv) {
  CLI::App app;
  DaemonArguments arguments;
  DefineArguments(app, arguments);
  app.footer(Footer());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk.code : kExitUsage.code;
  }
  if (arguments.config_reference) {
    fmt::print("{}", ConfigReference());
    return kExitOk.code;
  }
  // Appended last, so that these options win over --set.
  if (!arguments.socket.empty()) {
    arguments.settings.push_back("daemon.socket=" + arguments.socket);
  }
  if (!arguments.exit_when_idle_s.empty()) {
    arguments.settings.push_back("daemon.exit_when_idle_s=" + arguments.exit_when_idle_s);
  }
  if (!arguments.job.empty()) arguments.settings.push_back("daemon.job_id=" + arguments.job);
  return Run(arguments);
}

}  // namespace
}  // namespace forebay::daemon

int main(int argc, char** argv) { return forebay::daemon::Main(argc, argv); }
