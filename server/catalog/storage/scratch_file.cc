// Plain pread and pwrite in loops: a catalog build writes and reads its tables sequentially in
// large requests and is not on the way of a batch, so it needs no io_uring.
#include "server/catalog/storage/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "proto/contract/printable.h"


namespace forebay::catalog {

Result<ScratchFile> ScratchFile::Create(const std::string& directory) {
  // O_TMPFILE and not a file that is unlinked: between creating and unlinking, a kill would leave
  // it.
  UniqueFd fd(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return Error::FromErrno(errno, "create a scratch file in " + Quoted(directory));
  }
  return ScratchFile(std::move(fd));
}

Status ScratchFile::Write(std::uint64_t offset, std::span<const std::byte> bytes) {
  // pwrite may write less than it was given, for example at the end of a device; the next call then
  // returns the error. ENOSPC reaches the user as kResourceExhausted with the name of the step.
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error::FromErrno(errno, "write the scratch file of a catalog build");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

Status ScratchFile::Read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error::FromErrno(errno, "read the scratch file of a catalog build");
    // The file has no name and no other writer, so it can only be short if a caller reads what it
    // has not written, or if the file system lost bytes.
    if (count == 0) {
      return Error(ErrorCode::kDataLoss,
                   "the scratch file of a catalog build ends at offset " +
                       std::to_string(offset) + ", within a table; build the catalog again");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

}  // namespace forebay::catalog
