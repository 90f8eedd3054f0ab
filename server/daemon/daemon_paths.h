// The paths at which a daemon of this configuration and job puts its files. Used by the daemon, and
// by `forebayd --doctor`, which tries them before a job starts.
#pragma once

#include <string>

#include "server/daemon/config/config.h"

namespace forebay::daemon {

// Absolute, each directory in one spelling, so that equal directories are equal texts. Empty: the
// key is not set.
struct DaemonPaths {
  std::string socket;
  std::string socket_directory;
  std::string state_directory;
  std::string ssd_directory;
};
DaemonPaths PathsOf(const Config& config, const std::string& job_id);

}  // namespace forebay::daemon
