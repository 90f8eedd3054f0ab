// PosixFile: a file of the kernel behind the File interface. FileError: an Error from an errno.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"
#include "server/io/io_backend.h"

namespace forebay::io {

// Error::FromErrno, with the codes that only files need: ENOTEMPTY and EBADF are
// kFailedPrecondition, ENXIO kInvalidArgument, EROFS kPermissionDenied, EFBIG
// kResourceExhausted, ESTALE kUnavailable.
Error FileError(int system_errno, std::string_view what);

// Repeats a system call (which answers -1 and errno) while it is interrupted, at most
// limits::kInterruptMax times. A thread that waits for a network or FUSE file system is interrupted
// by every completion that io_uring has for it.
template <typename Call>
int Uninterrupted(const Call& call) {
  int answer = -1;
  for (int tries = 0; tries <= limits::kInterruptMax; ++tries) {
    answer = call();
    if (answer >= 0 || errno != EINTR) break;
  }
  return answer;
}

// Used by the io_uring and the thread back end. The directories of this room wrap regular files
// only; tests may wrap any descriptor, such as /dev/full.
class PosixFile final : public File {
 public:
  struct Identity {
    std::string path;  // for messages
    bool is_direct = false;
  };
  PosixFile(UniqueFd fd, Identity identity) : fd_(std::move(fd)), id_(std::move(identity)) {}

  Result<FileInfo> Info() const override;
  bool is_direct() const override { return id_.is_direct; }
  Status Preallocate(std::uint64_t bytes) override;
  Status Truncate(std::uint64_t bytes) override;
  void DropCached() override;

  int fd() const { return fd_.get(); }
  const std::string& path() const { return id_.path; }

 private:
  UniqueFd fd_;
  Identity id_;
};

// Reads the attributes of an open descriptor with one statx call.
Result<FileInfo> InfoOfFd(int fd, std::string_view path);

}  // namespace forebay::io
