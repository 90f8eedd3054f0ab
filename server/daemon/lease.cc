// The lock is flock on a lock file, because flock belongs to the open file and so ends with the
// process. A lock file that is removed on release needs one more check: the lock counts only if the
// locked file is still the one of that name, otherwise Take tries again with the new file. The file
// has the holder's pid in it, and a word once the holder is ending.
#include "server/daemon/lease.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/io/log.h"

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

constexpr std::string_view kEndingWord = "ending";
constexpr int kLookMs = 20;

// The contents of a lock file.
struct Holder {
  int pid = 0;  // 0: it has not written it yet
  bool is_marked_as_ending = false;
};

Holder ReadHolder(int lock_fd) {
  char text[64] = {};
  const ssize_t count = pread(lock_fd, text, sizeof(text) - 1, 0);
  if (count <= 0) return {};
  return {.pid = std::atoi(text),
          .is_marked_as_ending =
              std::string_view(text).find(kEndingWord) != std::string_view::npos};
}

Error HeldBy(const Holder& holder, const std::string& directory) {
  return Error(ErrorCode::kAlreadyExists,
               fmt::format("another forebayd (pid {}) uses {}", holder.pid, directory));
}

enum class Life : std::uint8_t { kGoesOn, kEnding, kUnknown };

// Whether the holder is ending: it says so, or is on its way out of the kernel. kUnknown: there is
// no such process here. It has ended since the lock was tried, or it lives in another container.
Life LifeOf(const Holder& holder) {
  constexpr unsigned kPfExiting = 0x4;  // PF_EXITING of Linux, in field 9 of proc(5)'s stat
  if (holder.is_marked_as_ending) return Life::kEnding;
  std::ifstream file(fmt::format("/proc/{}/stat", holder.pid));
  std::string line;
  if (!std::getline(file, line)) return Life::kUnknown;
  // The name in field 2 may have any character, so what counts begins after its last parenthesis.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string state, skipped;
  unsigned flags = 0;
  fields >> state >> skipped >> skipped >> skipped >> skipped >> skipped >> flags;
  const bool is_ending = state == "Z" || state == "X" || (flags & kPfExiting) != 0;
  return is_ending ? Life::kEnding : Life::kGoesOn;
}

// Locks the file. Errors as Lease::Take.
Status LockInTime(int fd, const std::string& directory, int stop_fd) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(limits::kDrainDeadlineMs);
  for (int look = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; ++look) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return Error::FromErrno(errno, "locking a file in " + directory);
    const Holder holder = ReadHolder(fd);
    const Life life = LifeOf(holder);
    // One that has just ended leaves the lock for the next look.
    const bool is_waited_for = life == Life::kEnding || (life == Life::kUnknown && look == 0);
    if (!is_waited_for || std::chrono::steady_clock::now() >= deadline) {
      return HeldBy(holder, directory);
    }
    if (life == Life::kEnding && look == 0) {
      log::Info("another forebayd (pid {}) uses {} and is ending: waiting for it, {} s at most",
                holder.pid, directory, limits::kDrainDeadlineMs / 1000);
    }
    pollfd stop{.fd = stop_fd, .events = POLLIN, .revents = 0};
    if (poll(&stop, 1, kLookMs) > 0) {
      return Error(ErrorCode::kCancelled,
                   fmt::format("asked to stop while it waited for another forebayd (pid {}), which "
                               "uses {}",
                               holder.pid, directory));
    }
  }
  return {};
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

Result<Lease> Lease::Take(const std::string& directory, int stop_fd) {
  constexpr int kAttemptsMax = 16;
  const std::string path = directory + "/forebayd.lock";
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    FOREBAY_TRY(EnsurePrivateDirectory(directory));
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    // The last holder has removed the directory since the line above.
    if (!fd.valid() && errno == ENOENT) continue;
    if (!fd.valid()) return Error::FromErrno(errno, "opening " + path);
    FOREBAY_TRY(LockInTime(fd.get(), directory, stop_fd));
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

void Lease::MarkEnding() const {
  // Without the mark, the next daemon only gives up sooner.
  const std::string text = fmt::format("{} {}\n", getpid(), kEndingWord);
  if (fd_.valid()) static_cast<void>(!pwrite(fd_.get(), text.data(), text.size(), 0));
}

Status Lease::CheckFree(const std::string& directory) {
  const std::string path = directory + "/forebayd.lock";
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    return errno == ENOENT ? Status() : Error::FromErrno(errno, "opening " + path);
  }
  // A file without a lock is left from a daemon that was killed. The lock that is taken here ends
  // with the descriptor.
  if (flock(fd.get(), LOCK_SH | LOCK_NB) == 0) return {};
  return HeldBy(ReadHolder(fd.get()), directory);
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
