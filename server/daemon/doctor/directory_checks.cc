// The socket's directory and daemon.state_dir. The socket is tried by binding one, because some
// file systems have none.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "proto/contract/unique_fd.h"
#include "server/daemon/doctor/checks.h"
#include "server/daemon/doctor/directory_trial.h"

namespace forebay::daemon {
namespace {

constexpr const char* kSocketKey = "daemon.socket";
constexpr const char* kStateKey = "daemon.state_dir";
constexpr std::size_t kSocketPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;

// Binds a socket in `directory` and removes it.
Status TryToBind(const std::string& directory) {
  const UniqueFd folder(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return Error::FromErrno(errno, "opening " + directory);
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Error::FromErrno(errno, "creating a socket");
  const std::string name = fmt::format(".forebay-doctor-{}", getpid());
  // Through the descriptor, so that this name may be longer than the socket's own.
  const std::string path = fmt::format("/proc/self/fd/{}/{}", folder.get(), name);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  unlinkat(folder.get(), name.c_str(), 0);
  const int bound = bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const int bind_errno = errno;
  unlinkat(folder.get(), name.c_str(), 0);
  return bound == 0 ? Status() : Error::FromErrno(bind_errno, "binding a socket in " + directory);
}

bool IsOtherFile(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode);
}

}  // namespace

void CheckSocket(const DaemonPaths& paths, CheckReport& report) {
  if (paths.socket.size() > kSocketPathBytesMax) {
    return report.Fail(fmt::format("the path {} has {} bytes, and that of a Unix socket at most {}",
                                   paths.socket, paths.socket.size(), kSocketPathBytesMax),
                       fmt::format("set {} to a shorter path", kSocketKey));
  }
  const auto directory = TryDirectory(paths.socket_directory, kSocketKey, report);
  if (!directory) return;
  if (IsOtherFile(paths.socket)) {
    return report.Fail(paths.socket + " exists and is not a socket",
                       fmt::format("remove it, or set {} to another path", kSocketKey));
  }
  report.Begin("binding a socket in " + directory->nearest);
  const Status bound = TryToBind(directory->nearest);
  if (!bound.has_value()) {
    return report.Fail(bound.error().message(), DirectoryRemedy(bound.error(), kSocketKey));
  }
  report.Ok("a socket can be bound in " + directory->Described());
}

void CheckStateDirectory(const DaemonPaths& paths, io::IoBackend& backend, CheckReport& report) {
  if (paths.state_directory.empty()) {
    return report.Ok(
        fmt::format("{} is not set, so nothing is saved for later daemons", kStateKey));
  }
  const auto directory = TryDirectory(paths.state_directory, kStateKey, report);
  if (!directory) return;
  report.Begin("writing to " + directory->nearest);
  const Status written = TryToWrite(backend, directory->nearest);
  if (!written.has_value()) {
    return report.Fail(written.error().message(), DirectoryRemedy(written.error(), kStateKey));
  }
  report.Ok(directory->Described() + ": files can be written and synced");
}

}  // namespace forebay::daemon
