// A FakeDaemon as a program with forebayd's flags, for the tests of embedded mode.
#include <unistd.h>

#include <csignal>
#include <string>

#include <CLI/CLI.hpp>

#include "client/testing/fake_daemon.h"

int main(int argc, char** argv) {
  forebay::testing::FakeDaemonOptions options;
  int ready_fd = -1;
  int idle_s = 0;
  std::string config;
  std::vector<std::string> settings;
  CLI::App app;
  app.add_option("--config", config);
  app.add_option("--set", settings);
  app.add_option("--socket", options.socket_path)->required();
  app.add_option("--ready-fd", ready_fd);
  app.add_option("--exit-when-idle-s", idle_s);
  app.add_option("--samples", options.samples);
  app.add_option("--image-bytes", options.image_bytes);
  app.add_option("--slot-bytes", options.slot_bytes);
  CLI11_PARSE(app, argc, argv);
  // A file "fail" as the configuration: end before anything is ready.
  if (config.ends_with("/fail")) return 1;
  for (const std::string& setting : settings) {
    const std::string key = "daemon.job_id=";
    if (setting.starts_with(key)) options.job_id = setting.substr(key.size());
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const forebay::testing::FakeDaemon daemon(options);
  if (ready_fd >= 0) {
    const std::string line = "READY " + daemon.address() + "\n";
    if (::write(ready_fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return 1;
    ::close(ready_fd);
  }
  int signal = 0;
  sigwait(&signals, &signal);
  return 0;
}
