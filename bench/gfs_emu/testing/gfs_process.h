// GfsProcess: a gfs_emu process for tests, with its control file and its counters.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "proto/contract/unique_fd.h"

namespace forebay::bench {

// Unmounted and ended on destruction, and where the thread that made it ends. For one thread.
class GfsProcess {
 public:
  // False where this machine cannot mount it: no /dev/fuse, or no right to use it.
  static bool IsPossible();

  // Starts gfs_emu with the arguments BACKING MOUNT [OPTION...]. Both folders must exist.
  explicit GfsProcess(const std::vector<std::string>& arguments);
  ~GfsProcess();
  GfsProcess(const GfsProcess&) = delete;
  GfsProcess& operator=(const GfsProcess&) = delete;

  // Waits for "ready"; false where it ended without.
  bool AwaitReady();
  // Ends it with SIGTERM, which unmounts. Its exit status; -1 where it had ended before.
  int Stop();
  // Waits until it ends by itself. Its exit status.
  int Wait();

  // Writes lines to the control file. False where it refused one of them.
  bool Control(const std::string& lines) const;
  // It must be mounted: a test cannot go on without.
  nlohmann::json Counters() const;
  // Faults of all rules since the last "reset".
  std::uint64_t InjectedCount() const;

 private:
  std::filesystem::path mount_;
  UniqueFd output_;
  pid_t pid_ = -1;
};

// True where something is mounted on exactly this folder.
bool IsMounted(const std::filesystem::path& folder);

}  // namespace forebay::bench
