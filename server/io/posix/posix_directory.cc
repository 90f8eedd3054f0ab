// Directory calls over the kernel. Every path is resolved by OpenBeneath. Calls that change a name
// (mkdir, rename, unlink) open the parent directory that way and then name one component in it, so
// that no later step follows a path again.
#include "server/io/posix/posix_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "proto/contract/printable.h"
#include "server/io/posix/posix_file.h"

namespace forebay::io {
namespace {

struct CloseDir {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using UniqueDir = std::unique_ptr<DIR, CloseDir>;

bool IsDirect(OpenMode mode) {
  return mode == OpenMode::kReadDirect || mode == OpenMode::kCreateDirect ||
         mode == OpenMode::kUnnamedDirect;
}

bool IsUnnamed(OpenMode mode) {
  return mode == OpenMode::kUnnamed || mode == OpenMode::kUnnamedDirect;
}

// The flags of open(2) for a mode, without O_DIRECT.
int FlagsOf(OpenMode mode) {
  // O_NONBLOCK, so that opening a FIFO never blocks; Open refuses it afterwards.
  constexpr int kAlways = O_NONBLOCK | O_NOCTTY;
  switch (mode) {
    case OpenMode::kRead: case OpenMode::kReadDirect: return kAlways | O_RDONLY;
    case OpenMode::kCreate: case OpenMode::kCreateDirect:
      // O_EXCL also refuses a symlink with this name, so a new file never appears somewhere else.
      return kAlways | O_WRONLY | O_CREAT | O_EXCL;
    case OpenMode::kAppend: return kAlways | O_WRONLY | O_CREAT | O_APPEND;
    // O_EXCL: nobody can give it a name later.
    case OpenMode::kUnnamed: case OpenMode::kUnnamedDirect:
      return kAlways | O_RDWR | O_TMPFILE | O_EXCL;
  }
  return kAlways | O_RDONLY;
}

Error NotRegular(std::string_view path, int system_errno) {
  return Error(ErrorCode::kInvalidArgument, Quoted(path) + " is not a regular file",
               system_errno);
}

// Whether this error of opening a symlink says that it dangles, loops, leaves the root or has a
// target that cannot be a path. Any other one, such as EMFILE, EIO, ESTALE or EACCES, says nothing
// about the link: a caller that took the entry for nothing would leave data out of a catalog.
bool LeadsNowhere(int system_errno) {
  return system_errno == ENOENT || system_errno == ENOTDIR || system_errno == ELOOP ||
         system_errno == EXDEV || system_errno == ENAMETOOLONG;
}

// Clears O_NONBLOCK, under which io_uring may answer EAGAIN for a regular file, and sets O_DIRECT
// if it is wanted and possible. O_DIRECT is set after opening, because some kernels create the file
// first and then refuse the flag. Returns whether the file is direct.
Result<bool> SetFinalFlags(int fd, OpenMode mode, std::string_view path) {
  const int flags = mode == OpenMode::kAppend ? O_APPEND : 0;
  if (IsDirect(mode) && ::fcntl(fd, F_SETFL, flags | O_DIRECT) == 0) return true;
  if (::fcntl(fd, F_SETFL, flags) != 0) return FileError(errno, "open " + Quoted(path));
  return false;
}

}  // namespace

Result<std::unique_ptr<PosixDirectory>> PosixDirectory::Create(
    std::string_view path, const PosixDirectoryOptions& options) {
  // A relative root would depend on the directory in which the daemon was started.
  if (path.empty() || path.front() != '/' || path.find('\0') != std::string_view::npos) {
    return Error(ErrorCode::kInvalidArgument,
                 "root " + Quoted(path) + " must be an absolute path");
  }
  // The root itself may be reached by symlinks: it comes from the configuration, which is trusted.
  UniqueFd root(Uninterrupted([&] {
    return ::open(std::string(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }));
  if (!root.valid()) return FileError(errno, "open root " + Quoted(path));
  // Detected once for each root; kernel and seccomp filters do not change while the process runs.
  const ResolveMethod method =
      options.method.has_value() ? *options.method : DetectResolveMethod(root.get());
  return std::unique_ptr<PosixDirectory>(
      new PosixDirectory(std::move(root), method, options.list_entries_max));
}

Result<std::unique_ptr<File>> PosixDirectory::Open(std::string_view path, OpenMode mode) {
  FOREBAY_TRY(CheckPath(path, IsUnnamed(mode) ? EmptyPath::kMeansRoot : EmptyPath::kRefused));
  Result<UniqueFd> opened = OpenBeneath(root_.get(), path, {FlagsOf(mode), 0600}, method_);
  if (!opened.has_value() && IsUnnamed(mode)) {
    // EISDIR: a kernel, or a file system in user space, that does not know the flag.
    const int open_errno = opened.error().system_errno();
    if (open_errno == EOPNOTSUPP || open_errno == EISDIR || open_errno == EINVAL) {
      return Error(ErrorCode::kUnimplemented,
                   "this file system has no files without a name", open_errno);
    }
    return std::move(opened.error());
  }
  if (!opened.has_value()) {
    // ENXIO: a socket, or a FIFO without a reader. EISDIR: a directory that was opened for writing.
    const int open_errno = opened.error().system_errno();
    if (open_errno == ENXIO || open_errno == EISDIR) return NotRegular(path, open_errno);
    return std::move(opened.error());
  }
  // The type is that of the open descriptor, so nothing can be swapped between the check and the
  // use.
  FOREBAY_ASSIGN(const FileInfo info, InfoOfFd(opened->get(), path));
  if (!info.is_regular) return NotRegular(path, info.is_directory ? EISDIR : 0);
  FOREBAY_ASSIGN(const bool is_direct, SetFinalFlags(opened->get(), mode, path));
  return std::make_unique<PosixFile>(std::move(*opened),
                                     PosixFile::Identity{std::string(path), is_direct});
}

Result<FileInfo> PosixDirectory::Stat(std::string_view path) {
  FOREBAY_TRY(CheckPath(path, EmptyPath::kMeansRoot));
  // O_PATH opens anything, also a FIFO or a device, without side effects and without permission to
  // read. The attributes are then those of what was opened, whatever is renamed meanwhile.
  FOREBAY_ASSIGN(const UniqueFd fd, OpenBeneath(root_.get(), path, {O_PATH, 0}, method_));
  return InfoOfFd(fd.get(), path);
}

// Finds the type of an entry for which readdir gave none: a symlink, or any entry on a file system
// that reports no types. An entry that vanished, or a link that dangles or leads outside, stays
// neither a directory nor a regular file.
Status PosixDirectory::ResolveType(int directory_fd, std::string_view directory,
                                   DirectoryEntry& entry) const {
  struct stat attributes = {};
  std::string path(directory);
  if (!path.empty()) path += '/';
  path += entry.name;
  const int rc = Uninterrupted([&] {
    return ::fstatat(directory_fd, entry.name.c_str(), &attributes, AT_SYMLINK_NOFOLLOW);
  });
  if (rc != 0) {
    if (errno == ENOENT) return {};
    return FileError(errno, "stat " + Quoted(path));
  }
  if (S_ISLNK(attributes.st_mode)) {
    Result<UniqueFd> target = OpenBeneath(root_.get(), path, {O_PATH, 0}, method_);
    if (!target.has_value()) {
      if (LeadsNowhere(target.error().system_errno())) return {};
      return target.error().WithContext("following a symlink");
    }
    if (Uninterrupted([&] { return ::fstat(target->get(), &attributes); }) != 0) {
      return FileError(errno, "stat " + Quoted(path));
    }
  }
  entry.is_directory = S_ISDIR(attributes.st_mode);
  entry.is_regular = S_ISREG(attributes.st_mode);
  return {};
}

Result<std::vector<DirectoryEntry>> PosixDirectory::List(std::string_view path) {
  FOREBAY_TRY(CheckPath(path, EmptyPath::kMeansRoot));
  // Opened for each call, so that each listing has a position of its own in the directory.
  FOREBAY_ASSIGN(UniqueFd fd,
                 OpenBeneath(root_.get(), path, {O_RDONLY | O_DIRECTORY, 0}, method_));
  UniqueDir directory;
  Uninterrupted([&] {
    directory.reset(::fdopendir(fd.get()));
    return directory == nullptr ? -1 : 0;
  });
  if (directory == nullptr) return FileError(errno, "list " + Quoted(path));
  const int directory_fd = fd.Release();  // fdopendir owns it now

  std::vector<DirectoryEntry> entries;
  int interrupts = 0;
  while (true) {
    errno = 0;  // readdir returns null both at the end and on an error, and sets errno only then
    const dirent* found = ::readdir(directory.get());
    if (found == nullptr) {
      if (errno == EINTR && interrupts++ < limits::kInterruptMax) continue;
      if (errno != 0) return FileError(errno, "list " + Quoted(path));
      break;
    }
    DirectoryEntry entry;
    entry.name = found->d_name;
    if (entry.name == "." || entry.name == "..") continue;
    // A directory of any size can lie on the GFS, and its entries are held in memory.
    if (entries.size() >= list_entries_max_) {
      return Error(ErrorCode::kResourceExhausted,
                   "directory " + Quoted(path) + " has more than " +
                       std::to_string(list_entries_max_) + " entries");
    }
    entry.is_directory = found->d_type == DT_DIR;
    entry.is_regular = found->d_type == DT_REG;
    if (found->d_type == DT_LNK || found->d_type == DT_UNKNOWN) {
      FOREBAY_TRY(ResolveType(directory_fd, path, entry));
    }
    entries.push_back(std::move(entry));
  }
  // The order of readdir differs between file systems and between nodes. The order of names decides
  // the numbers of samples, so it is part of this interface.
  std::sort(entries.begin(), entries.end(),
            [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
  return entries;
}

// Opens the parent of a path's last component. The component itself need not exist.
Result<PosixDirectory::Leaf> PosixDirectory::OpenLeaf(std::string_view path) const {
  FOREBAY_TRY(CheckPath(path, EmptyPath::kRefused));
  const auto [parent, name] = SplitLeaf(path);
  FOREBAY_ASSIGN(UniqueFd fd,
                 OpenBeneath(root_.get(), parent, {O_PATH | O_DIRECTORY, 0}, method_));
  return Leaf{std::move(fd), std::string(name)};
}

Status PosixDirectory::MakeDirectory(std::string_view path) {
  FOREBAY_ASSIGN(const Leaf leaf, OpenLeaf(path));
  // Only the process's user may enter: the directories hold samples and sockets of one job.
  if (::mkdirat(leaf.parent.get(), leaf.name.c_str(), 0700) != 0) {
    return FileError(errno, "make directory " + Quoted(path));
  }
  return {};
}

Status PosixDirectory::Rename(std::string_view from, std::string_view to) {
  FOREBAY_ASSIGN(const Leaf source, OpenLeaf(from));
  FOREBAY_ASSIGN(const Leaf target, OpenLeaf(to));
  // The two parents may be on different file systems beneath one root; then the kernel answers
  // EXDEV, and nothing has changed.
  if (::renameat(source.parent.get(), source.name.c_str(), target.parent.get(),
                 target.name.c_str()) != 0) {
    return FileError(errno, "rename " + Quoted(from) + " to " + Quoted(to));
  }
  return {};
}

// Calls unlinkat, of which AT_REMOVEDIR makes rmdir.
Status PosixDirectory::RemoveLeaf(std::string_view path, int flags) const {
  FOREBAY_ASSIGN(const Leaf leaf, OpenLeaf(path));
  if (::unlinkat(leaf.parent.get(), leaf.name.c_str(), flags) != 0) {
    return FileError(errno, "remove " + Quoted(path));
  }
  return {};
}

Status PosixDirectory::Unlink(std::string_view path) { return RemoveLeaf(path, 0); }

Status PosixDirectory::RemoveDirectory(std::string_view path) {
  return RemoveLeaf(path, AT_REMOVEDIR);
}

Status PosixDirectory::Sync(std::string_view path) {
  FOREBAY_TRY(CheckPath(path, EmptyPath::kMeansRoot));
  FOREBAY_ASSIGN(const UniqueFd fd,
                 OpenBeneath(root_.get(), path, {O_RDONLY | O_DIRECTORY, 0}, method_));
  // Not repeated on an error, also not on EINTR: a second fsync can succeed although the first one
  // lost data (docs/design.md, 7.3).
  if (::fsync(fd.get()) != 0) return FileError(errno, "sync directory " + Quoted(path));
  return {};
}

Result<Directory::Space> PosixDirectory::FreeSpace() {
  struct statfs space = {};
  if (::fstatfs(root_.get(), &space) != 0) return FileError(errno, "free space of the root");
  // f_bavail and not f_bfree: the blocks that a file system keeps for root are not free for the
  // daemon.
  const auto block_bytes = static_cast<std::uint64_t>(space.f_frsize);
  return Space{.free_bytes = space.f_bavail * block_bytes,
               .total_bytes = space.f_blocks * block_bytes,
               .file_system_type = static_cast<std::uint64_t>(space.f_type)};
}

}  // namespace forebay::io
