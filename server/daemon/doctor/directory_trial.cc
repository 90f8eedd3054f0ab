// A directory that does not exist is tried in its nearest parent, which is on the same file system
// and must let this user create entries. The files of a trial have no names, so that nothing is
// left of them if the doctor is killed; where the file system has no such files, they are unlinked
// as soon as they are open, while they are empty.
#include "server/daemon/doctor/directory_trial.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/daemon/config/tier_config.h"
#include "server/daemon/lease.h"
#include "server/io/aligned_buffer.h"

namespace forebay::daemon {
namespace {

std::string TrialName() { return fmt::format(".forebay-doctor-{}", getpid()); }

// Whether this user may create entries in `directory`, by its rights and by how it is mounted.
Status CheckMayCreate(const std::string& directory) {
  // With AT_EACCESS the effective user counts, as it does when the daemon calls mkdir.
  if (faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {};
  return Error::FromErrno(errno, "creating entries in " + directory);
}

}  // namespace

std::string OwnDirectory::Described() const {
  return exists ? path : fmt::format("{}, which the daemon creates", path);
}

std::optional<OwnDirectory> TryDirectory(const std::string& path, const std::string& key,
                                         CheckReport& report) {
  report.Begin("looking at " + path);
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    const int stat_errno = errno;
    const OwnDirectory absent = {.path = path, .nearest = NearestDirectory(path)};
    const Status may_create =
        stat_errno == ENOENT ? CheckMayCreate(absent.nearest) : Error::FromErrno(stat_errno, path);
    if (may_create.has_value()) return absent;
    report.Fail(fmt::format("{} does not exist and cannot be created: {}", path,
                            may_create.error().message()),
                DirectoryRemedy(may_create.error(), key));
    return std::nullopt;
  }
  Status usable = CheckPrivateDirectory(path);
  if (!usable.has_value()) {
    report.Fail(usable.error().message(),
                fmt::format("set {} to a directory of this user, or to one that does not exist "
                            "yet; or run chmod 700 on it",
                            key));
    return std::nullopt;
  }
  usable = Lease::CheckFree(path);
  if (usable.has_value()) usable = CheckMayCreate(path);
  if (usable.has_value()) return OwnDirectory{.path = path, .exists = true, .nearest = path};
  report.Fail(usable.error().message(), DirectoryRemedy(usable.error(), key));
  return std::nullopt;
}

Result<TrialFile> CreateTrialFile(io::Directory& directory, bool direct) {
  auto unnamed = directory.Open("", direct ? io::OpenMode::kUnnamedDirect
                                           : io::OpenMode::kUnnamed);
  if (unnamed.has_value()) {
    const std::shared_ptr<io::File> both = std::move(*unnamed);
    return TrialFile{.writer = both, .reader = both};
  }
  if (unnamed.error().code() != ErrorCode::kUnimplemented) return std::move(unnamed.error());
  const std::string name = TrialName();
  // A doctor that was killed in the few microseconds below may have left an empty file.
  static_cast<void>(directory.Unlink(name));
  TrialFile file;
  FOREBAY_ASSIGN(file.writer, directory.Open(name, direct ? io::OpenMode::kCreateDirect
                                                          : io::OpenMode::kCreate));
  // Opened before the name goes; unlinked also if that fails.
  auto reader = directory.Open(name, direct ? io::OpenMode::kReadDirect : io::OpenMode::kRead);
  FOREBAY_TRY(directory.Unlink(name));
  if (!reader.has_value()) return std::move(reader.error());
  file.reader = std::move(*reader);
  return file;
}

Status TryToWrite(io::IoBackend& backend, const std::string& directory) {
  FOREBAY_ASSIGN(const auto opened, backend.OpenDirectory(directory));
  FOREBAY_ASSIGN(const TrialFile file, CreateTrialFile(*opened, /*direct=*/false));
  FOREBAY_ASSIGN(const auto page, io::AlignedBuffer::Create(limits::kIoAlignmentBytes));
  FOREBAY_ASSIGN(const auto queue, backend.CreateQueue({.depth = 1}));
  FOREBAY_TRY(io::WriteFully(*queue, *file.writer, 0, page.span()));
  FOREBAY_TRY(io::DataSync(*queue, *file.writer));
  return opened->Sync("");
}

std::string DirectoryRemedy(const Error& error, const std::string& key) {
  switch (error.system_errno()) {
    case EACCES: case EPERM:
      return fmt::format("give uid {} the right to read, write and search it, or set {} to another "
                         "directory",
                         geteuid(), key);
    case EROFS:
      return fmt::format("mount the file system for writing, or set {} to another directory", key);
    case ENOSPC: case EDQUOT:
      return fmt::format("free space or inodes on this file system (df, df -i, quota), or set {} "
                         "to another directory",
                         key);
    case EFBIG: return "raise the limit of the size of files (ulimit -f)";
    case EMFILE: case ENFILE: return "raise the limit of open files (ulimit -n)";
    case EIO: return "look in the kernel's log (dmesg) whether the device or its mount is broken";
    case EINVAL: case EOPNOTSUPP:
      return fmt::format("set {} to a directory of another file system", key);
    default: break;
  }
  if (error.code() == ErrorCode::kAlreadyExists) {
    return fmt::format("end that daemon (forebay drain), or set {} to another directory", key);
  }
  return fmt::format("set {} to a directory that this user can use", key);
}

}  // namespace forebay::daemon
