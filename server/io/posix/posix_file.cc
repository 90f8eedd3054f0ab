// Calls on one descriptor, and the codes of errors that only files have. off_t is signed, so sizes
// are bounded by its maximum before they are cast.
#include "server/io/posix/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "proto/contract/printable.h"

namespace forebay::io {
namespace {

constexpr auto kFileBytesMax =
    static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

// The codes of errors that only files have; `otherwise` for all others.
ErrorCode CodeOfFileErrno(int system_errno, ErrorCode otherwise) {
  switch (system_errno) {
    case ENOTEMPTY: case EBADF: return ErrorCode::kFailedPrecondition;
    case ENXIO: return ErrorCode::kInvalidArgument;
    case EROFS: return ErrorCode::kPermissionDenied;
    case EFBIG: return ErrorCode::kResourceExhausted;
    case ESTALE: return ErrorCode::kUnavailable;
    default: return otherwise;
  }
}

// A file may have any time, also one before 1677 or after 2262, whose nanoseconds 64 bits cannot
// hold. Such a time becomes the first or the last one that they hold.
std::int64_t NanosecondsOf(const struct statx_timestamp& time) {
  std::int64_t ns = 0;
  if (!__builtin_mul_overflow(std::int64_t{time.tv_sec}, std::int64_t{1'000'000'000}, &ns) &&
      !__builtin_add_overflow(ns, std::int64_t{time.tv_nsec}, &ns)) {
    return ns;
  }
  return time.tv_sec < 0 ? std::numeric_limits<std::int64_t>::min()
                         : std::numeric_limits<std::int64_t>::max();
}

}  // namespace

Error FileError(int system_errno, std::string_view what) {
  // The message and the errno are those of FromErrno; only the code may differ.
  Error error = Error::FromErrno(system_errno, what);
  return Error(CodeOfFileErrno(system_errno, error.code()), error.message(), system_errno);
}

Result<FileInfo> InfoOfFd(int fd, std::string_view path) {
  // The descriptor is asked and never the path: the path may name another file by now.
  struct statx attributes = {};
  // statx and not fstat: a network file system may skip what is not asked for. STATX_MTIME has
  // nanoseconds, by which a changed object is noticed.
  constexpr unsigned kWanted = STATX_TYPE | STATX_SIZE | STATX_MTIME;
  const int rc =
      Uninterrupted([&] { return ::statx(fd, "", AT_EMPTY_PATH, kWanted, &attributes); });
  if (rc != 0) {
    return FileError(errno, "stat " + Quoted(path));
  }
  FileInfo info;
  info.bytes = attributes.stx_size;
  info.mtime_ns = NanosecondsOf(attributes.stx_mtime);
  info.is_regular = S_ISREG(attributes.stx_mode);
  info.is_directory = S_ISDIR(attributes.stx_mode);
  return info;
}

Result<FileInfo> PosixFile::Info() const { return InfoOfFd(fd_.get(), id_.path); }

Status PosixFile::Preallocate(std::uint64_t bytes) {
  if (bytes == 0) return {};  // fallocate refuses it
  // A larger number would be negative in the cast.
  if (bytes > kFileBytesMax) return FileError(EFBIG, "preallocate " + Quoted(id_.path));
  // posix_fallocate is not used: where a file system cannot reserve space, glibc writes to every
  // block instead, which takes as long as the write itself. fallocate fails there with
  // kUnimplemented, and the caller decides.
  const int rc = Uninterrupted(
      [&] { return ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(bytes)); });
  if (rc != 0) {
    return FileError(errno, "preallocate " + std::to_string(bytes) + " bytes of " +
                                Quoted(id_.path));
  }
  return {};
}

// The answer is ignored: the call is a hint, and a file system that refuses it only stays cached.
void PosixFile::DropCached() { (void)::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED); }

Status PosixFile::Truncate(std::uint64_t bytes) {
  if (bytes > kFileBytesMax) return FileError(EFBIG, "truncate " + Quoted(id_.path));
  // The caller is the file of first reads, which drops a record that was only partly written.
  const int rc =
      Uninterrupted([&] { return ::ftruncate(fd_.get(), static_cast<off_t>(bytes)); });
  if (rc != 0) return FileError(errno, "truncate " + Quoted(id_.path));
  return {};
}

}  // namespace forebay::io
