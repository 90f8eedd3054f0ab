// A FakeDaemon as a program with those flags of forebayd that embedded mode passes, each followed
// by its value. For the tests of embedded mode and of the installed library.
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "client/testing/fake_daemon.h"

namespace {

constexpr std::string_view kJobKey = "daemon.job_id=";

}  // namespace

int main(int argc, char** argv) {
  forebay::testing::FakeDaemonOptions options;
  int ready_fd = -1;
  std::string config;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--config") {
      config = value;
    } else if (flag == "--set") {
      if (value.starts_with(kJobKey)) options.job_id = value.substr(kJobKey.size());
    } else if (flag == "--socket") {
      options.socket_path = value;
    } else if (flag == "--ready-fd") {
      ready_fd = std::atoi(value.c_str());
    } else if (flag != "--exit-when-idle-s") {
      std::fprintf(stderr, "fake_forebayd: unknown flag %s\n", argv[i]);
      return 2;
    }
  }
  // A file "fail" as the configuration: end before anything is ready.
  if (config.ends_with("/fail")) return 1;
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
