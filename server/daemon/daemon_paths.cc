// Two keys may name the same directory ("/a" and "/a/"), for which there must be one lease: a
// second flock on it would fail as if another daemon had it. So paths are brought to one spelling.
#include "server/daemon/daemon_paths.h"

#include <filesystem>
#include <system_error>

#include "server/daemon/lease.h"

namespace forebay::daemon {
namespace {

std::string Spelled(const std::string& directory) {
  if (directory.empty()) return directory;
  std::error_code ignored;
  const std::filesystem::path path =
      std::filesystem::absolute(directory, ignored).lexically_normal();
  return path.has_filename() ? path.string() : path.parent_path().string();
}

}  // namespace

DaemonPaths PathsOf(const Config& config, const std::string& job_id) {
  DaemonPaths paths;
  paths.socket = Spelled(config.socket.empty()
                             ? DefaultRuntimeDirectory(job_id) + "/forebayd.sock"
                             : config.socket);
  paths.socket_directory = std::filesystem::path(paths.socket).parent_path().string();
  paths.state_directory = Spelled(config.state_dir);
  paths.ssd_directory = Spelled(config.ssd_directory);
  return paths;
}

}  // namespace forebay::daemon
