// The lock is taken while files are removed, and removed last. So if a daemon starts meanwhile,
// either it has the lock already and nothing is removed here, or it finds that the file it has
// locked has lost its name, and tries again (server/daemon/lease.h).
#include "client/cli/launch/dead_daemon.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <vector>

#include "proto/contract/unique_fd.h"

namespace forebay::cli {
namespace {

constexpr const char* kLock = "forebayd.lock";
// What a daemon keeps for the one in its place (server/rendezvous/kept_list.h).
constexpr const char* kKept[] = {"forebayd.nodes", "forebayd.nodes.new", "forebayd.leaves",
                                 "forebayd.before"};

// Locks the lock file of the directory. Returns no descriptor if it is not that of a dead daemon.
UniqueFd LockOfDead(int directory, std::span<const pid_t> daemons) {
  struct stat info {};
  if (fstat(directory, &info) != 0 || info.st_uid != geteuid()) return {};
  UniqueFd lock(openat(directory, kLock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!lock.valid() || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return {};
  // Its holder may have removed it since it was opened.
  struct stat held {};
  struct stat named {};
  const bool is_same = fstat(lock.get(), &held) == 0 &&
                       fstatat(directory, kLock, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
                       held.st_ino == named.st_ino && held.st_dev == named.st_dev;
  char text[64] = {};
  const bool has_text = is_same && pread(lock.get(), text, sizeof(text) - 1, 0) > 0;
  if (!has_text || std::ranges::count(daemons, std::atoi(text)) == 0) return {};
  return lock;
}

}  // namespace

Status RemoveFilesOfDead(const std::string& socket, std::span<const pid_t> daemons) {
  const std::filesystem::path path(socket);
  const std::string folder = path.parent_path().string();
  const UniqueFd directory(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!directory.valid()) return {};
  const UniqueFd lock = LockOfDead(directory.get(), daemons);
  if (!lock.valid()) return {};
  std::vector<std::string> names = {path.filename().string()};
  names.insert(names.end(), std::begin(kKept), std::end(kKept));
  names.emplace_back(kLock);
  for (const std::string& name : names) {
    if (unlinkat(directory.get(), name.c_str(), 0) == 0 || errno == ENOENT) continue;
    return Error::FromErrno(errno, "removing " + folder + "/" + name);
  }
  // Files of somebody else keep it.
  static_cast<void>(rmdir(folder.c_str()));
  return {};
}

}  // namespace forebay::cli
