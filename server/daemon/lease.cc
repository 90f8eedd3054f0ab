// The lock is flock on a lock file, because flock belongs to the open file and so ends with the
// process. A lock file that is removed on release needs one more check: the lock counts only if the
// locked file is still the one of that name, otherwise Take tries again with the new file.
#include "server/daemon/lease.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

namespace forebay::daemon {
namespace {

// Creates the directory if it does not exist, then checks that no other user can replace what is in
// it. The check must follow mkdir: another user may have created the directory first, for example
// in /tmp, and then lstat shows that it is not ours.
Status EnsurePrivateDirectory(const std::string& path) {
  std::error_code error;
  const std::filesystem::path directory(path);
  if (directory.has_parent_path()) {
    std::filesystem::create_directories(directory.parent_path(), error);
    if (error) return Error::FromErrno(error.value(), "creating the parents of " + path);
  }
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error::FromErrno(errno, "creating directory " + path);
  }
  return CheckPrivateDirectory(path);
}

Error HeldBy(int lock_fd, const std::string& directory) {
  char holder[32] = {};
  const ssize_t count = pread(lock_fd, holder, sizeof(holder) - 1, 0);
  return Error(ErrorCode::kAlreadyExists,
               fmt::format("another forebayd (pid {}) uses {}", count > 0 ? std::atoi(holder) : 0,
                           directory));
}

}  // namespace

Status CheckPrivateDirectory(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return Error::FromErrno(errno, "stat of " + path);
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 0022) != 0) {
    return Error(ErrorCode::kPermissionDenied,
                 fmt::format("{} must be a directory that belongs to uid {} and that no other user "
                             "can write to",
                             path, geteuid()));
  }
  return {};
}

Lease::~Lease() {
  if (!fd_.valid()) return;
  // The file is removed while it is locked. A daemon that has opened it already, and gets the lock
  // next, finds that the file has lost its name (Take), so two daemons never hold the lease.
  unlink(path().c_str());
  rmdir(directory_.c_str());
}

Result<Lease> Lease::Take(const std::string& directory) {
  constexpr int kAttemptsMax = 16;
  const std::string path = directory + "/forebayd.lock";
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    FOREBAY_TRY(EnsurePrivateDirectory(directory));
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    // The last holder has removed the directory since the line above.
    if (!fd.valid() && errno == ENOENT) continue;
    if (!fd.valid()) return Error::FromErrno(errno, "opening " + path);
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      return HeldBy(fd.get(), directory);
    }
    // If the last holder unlinked the file before this lock was granted, another daemon may lock a
    // new file of the same name, so this lock protects nothing.
    struct stat held {};
    struct stat named {};
    const bool same = fstat(fd.get(), &held) == 0 && stat(path.c_str(), &named) == 0 &&
                      held.st_ino == named.st_ino && held.st_dev == named.st_dev;
    if (!same) continue;
    const std::string pid = fmt::format("{}\n", getpid());
    if (ftruncate(fd.get(), 0) != 0 ||
        pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
      return Error::FromErrno(errno, "writing " + path);
    }
    return Lease(std::move(fd), directory);
  }
  return Error(ErrorCode::kUnavailable,
               "could not lock " + path + ": other daemons took and released it at every attempt");
}

Status Lease::CheckFree(const std::string& directory) {
  const std::string path = directory + "/forebayd.lock";
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    return errno == ENOENT ? Status() : Error::FromErrno(errno, "opening " + path);
  }
  // A file without a lock is left from a daemon that was killed. The lock that is taken here ends
  // with the descriptor.
  return flock(fd.get(), LOCK_SH | LOCK_NB) == 0 ? Status() : HeldBy(fd.get(), directory);
}

std::string DefaultRuntimeDirectory(const std::string& job_id) {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0') {
    return fmt::format("{}/forebay-{}", runtime, job_id);
  }
  std::error_code ignored;  // $TMPDIR may name a directory that does not exist
  std::string temporary = std::filesystem::temp_directory_path(ignored).string();
  if (temporary.empty()) temporary = "/tmp";
  return fmt::format("{}/forebay-{}-{}", temporary, geteuid(), job_id);
}

}  // namespace forebay::daemon
