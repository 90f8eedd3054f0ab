// PosixFile: a kernel file behind the File interface, and how errno becomes an Error here.
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

// `path` in single quotes for messages: control bytes as \xNN, cut after 200 bytes, so that a
// hostile name can neither forge log lines nor flood them.
std::string QuotePath(std::string_view path);

// Makes a system call that answers -1 and errno again while it is interrupted, at most
// limits::kInterruptMax times. A thread that waits for a network or FUSE file system is interrupted
// by whatever io_uring completes for it.
template <typename Call>
int Uninterrupted(const Call& call) {
  int answer = -1;
  for (int tries = 0; tries <= limits::kInterruptMax; ++tries) {
    answer = call();
    if (answer >= 0 || errno != EINTR) break;
  }
  return answer;
}

// Shared by the io_uring and the thread back end. Tests may wrap any descriptor in one, such
// as /dev/full; the directories of this room only ever wrap regular files.
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

// The attributes of an open descriptor, from one statx call.
Result<FileInfo> InfoOfFd(int fd, std::string_view path);

}  // namespace forebay::io
