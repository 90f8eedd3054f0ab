// forebayd: the per-node daemon. Stays in the foreground, in the job step that started it.
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <grpc/grpc.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "proto/contract/limits.h"
#include "server/daemon/config.h"
#include "server/daemon/daemon.h"
#include "server/daemon/serve_loop.h"
#include "server/daemon/version.h"

namespace forebay::daemon {
namespace {

// Exit codes, as documented in --help.
constexpr int kExitOk = 0;
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

struct Arguments {
  std::string config_path;
  std::vector<std::string> settings;  // KEY=VALUE
  int ready_fd = -1;
  bool check = false;
};

int Fail(int code, const Error& error) {
  fmt::print(stderr, "forebayd: {}\n", error.message());
  return code;
}

Status Gather(const Arguments& arguments, Config& config) {
  if (!arguments.config_path.empty()) {
    FOREBAY_TRY(LoadConfigFile(arguments.config_path, config));
  }
  for (const std::string& setting : arguments.settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--set {}: write KEY=VALUE", setting));
    }
    FOREBAY_TRY(SetConfigKey(config, setting.substr(0, equals), setting.substr(equals + 1)));
  }
  return CheckConfig(config);
}

void Announce(const Daemon& daemon, int ready_fd) {
  if (ready_fd < 0) return;
  const std::string line = fmt::format("READY unix:{}\n", daemon.socket_path());
  if (write(ready_fd, line.data(), line.size()) < 0) {
    spdlog::warn("nobody reads --ready-fd {}", ready_fd);
  }
  close(ready_fd);
}

// Ends the process where the daemon is not gone in time: a call of a file system that never returns
// would keep it for ever. What is on SSD is as after a kill, which it is made for.
class EndInTime {
 public:
  EndInTime() : thread_([this](const std::stop_token& stop) { Watch(stop); }) {}

 private:
  void Watch(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any gone;
    std::unique_lock lock(mutex);
    const auto patience = std::chrono::milliseconds(limits::kDrainDeadlineMs - kToEndMs);
    if (gone.wait_for(lock, stop, patience, [&stop] { return stop.stop_requested(); })) return;
    spdlog::error("a call of a file system has not ended for {} ms: forebayd ends without it",
                  patience.count());
    spdlog::shutdown();
    std::_Exit(kExitFailure);
  }

  static constexpr std::int64_t kToEndMs = 1'000;
  std::jthread thread_;
};

// Until the end, in good order. A second signal aborts.
void Serve(Daemon& daemon, const sigset_t& signals) {
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  const int signal_number = ServeUntilAsked(daemon, {.signal_fd = signal_fd});
  if (signal_number != 0) {
    spdlog::info("signal {}: draining (a second one ends at once)", signal_number);
  }
  close(signal_fd);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  const EndInTime watch;
  daemon.Stop();
}

int Run(const Arguments& arguments) {
  Config config = DefaultConfig();
  const Status gathered = Gather(arguments, config);
  if (!gathered.has_value()) return Fail(kExitUsage, gathered.error());
  if (arguments.check) {
    fmt::print("configuration is valid: {} data sets\n", config.datasets.size());
    return kExitOk;
  }
  auto logger = spdlog::stderr_color_mt("forebayd");
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
  spdlog::set_default_logger(logger);
  spdlog::set_level(spdlog::level::from_str(config.log_level));

  // Before any thread starts, so that all of them inherit it.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  umask(0077);
  // gRPC stays up until the process ends. Taken down with the server, version 1.51 joins the thread
  // that polls for writes which had to wait; it sleeps for up to 10 s and nobody wakes it, so a
  // daemon with a slow reader of inline batches would end as much later.
  grpc_init();

  auto daemon = Daemon::Start(config);
  if (!daemon.has_value()) return Fail(kExitFailure, daemon.error());
  Announce(**daemon, arguments.ready_fd);
  Serve(**daemon, signals);
  return kExitOk;
}

int Main(int argc, char** argv) {
  CLI::App app{"forebayd: stages data sets from the global file system to this node's memory and "
               "SSD, and streams minibatches to clients.\nExit codes: 0 ended as asked, 1 could "
               "not start or failed, 2 wrong usage or configuration."};
  Arguments arguments;
  bool reference = false;
  std::string idle;
  std::string socket;
  app.set_version_flag("--version", std::string("forebayd ") + kVersion);
  app.add_option("--config", arguments.config_path,
                 "TOML file (docs/configuration.md)")->check(CLI::ExistingFile);
  app.add_option("--set", arguments.settings, "KEY=VALUE: overrides a key of the file; repeatable");
  app.add_option("--socket", socket, "same as --set daemon.socket=PATH");
  app.add_option("--exit-when-idle-s", idle, "same as --set daemon.exit_when_idle_s=N");
  app.add_option("--ready-fd", arguments.ready_fd,
                 "file descriptor that gets the line 'READY unix:PATH' once clients may connect");
  app.add_flag("--check", arguments.check, "check the configuration and exit");
  app.add_flag("--config-reference", reference, "print the reference of all keys and exit");
  std::string keys = "Keys:\n";
  for (const ConfigKey& key : ConfigKeys()) {
    keys += fmt::format("  {} (default '{}')\n      {}\n", key.name, key.default_text, key.help);
  }
  app.footer(keys);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  if (reference) {
    fmt::print("{}", ConfigReference());
    return kExitOk;
  }
  if (!socket.empty()) arguments.settings.push_back("daemon.socket=" + socket);
  if (!idle.empty()) arguments.settings.push_back("daemon.exit_when_idle_s=" + idle);
  return Run(arguments);
}

}  // namespace
}  // namespace forebay::daemon

int main(int argc, char** argv) { return forebay::daemon::Main(argc, argv); }
