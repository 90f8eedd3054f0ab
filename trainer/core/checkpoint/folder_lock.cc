// An exclusive flock on the file `.lock`. The kernel releases it when the process dies, so a lock
// is never left behind by a crash. The file is removed at the end. Between opening and locking it,
// another run may have removed it; then the lock is on a file that nobody else will find, and we
// try again.
#include "trainer/core/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <climits>
#include <string>
#include <utility>

namespace forebay::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = ".lock";

// For the message to the user of another run.
std::string HostName() {
  std::array<char, HOST_NAME_MAX + 1> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// Whether `fd` is still the file at `path`: its holder removes it when the run ends.
bool IsAt(int fd, const fs::path& path) {
  struct stat held = {}, there = {};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &there) == 0 &&
         held.st_ino == there.st_ino && held.st_dev == there.st_dev;
}

// What the holder wrote about itself, or nothing.
std::string Holder(int fd) {
  std::array<char, 256> text = {};
  const ssize_t bytes = ::pread(fd, text.data(), text.size() - 1, 0);
  return bytes > 0 ? std::string(text.data(), static_cast<std::size_t>(bytes)) : "";
}

}  // namespace

FolderLock::FolderLock(fs::path path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

FolderLock::~FolderLock() {
  // While it is still locked, so that nobody takes a file that is about to go.
  if (fd_.valid()) ::unlink(path_.c_str());
}

// Repeats when a signal interrupts, and when the file was removed between opening and locking.
Result<std::optional<FolderLock>> FolderLock::Take(const fs::path& folder) {
  const fs::path path = folder / kLockName;
  // flock and not fcntl: locks of fcntl end when any descriptor of the file is closed.
  while (true) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!fd.valid()) return Error::FromErrno(errno, path.string());
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      // The file system has no locks. That is no reason not to train.
      if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) {
        return std::optional<FolderLock>();
      }
      if (errno != EWOULDBLOCK) return Error::FromErrno(errno, path.string() + ": flock");
      const std::string holder = Holder(fd.get());
      return Error(ErrorCode::kFailedPrecondition,
                   fmt::format("{}: another run writes its checkpoints there{}{}; wait for its "
                               "end, or choose another --checkpoint-dir",
                               folder.string(), holder.empty() ? "" : ": ", holder));
    }
    if (!IsAt(fd.get(), path)) continue;  // its holder ended and removed it
    // For people alone: a full disk is no reason not to start.
    const std::string self = fmt::format("host {}, process {}", HostName(), ::getpid());
    if (::ftruncate(fd.get(), 0) == 0) {
      static_cast<void>(!::pwrite(fd.get(), self.data(), self.size(), 0));
    }
    return std::optional(FolderLock(path, std::move(fd)));
  }
}

}  // namespace forebay::train
