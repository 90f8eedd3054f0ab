// UringBackend: the io_uring back end, with one ring per queue and batched submission.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/io/posix/path_resolver.h"

namespace forebay::io {

// Succeeds if this process may use io_uring as this back end needs it: the calls themselves (many
// sites forbid them: kUnimplemented or kPermissionDenied), the features NODROP and EXT_ARG (Linux
// 5.11), and the opcodes of read, write and fsync. Creates and destroys a small ring.
Status CheckIoUring();
bool IsIoUringAvailable();

struct UringOptions {
  std::optional<ResolveMethod> resolve_method;  // unset: detected
  // Ring sizes, rounded up to powers of two. 0 chooses them by the queue's depth, so that the
  // completion ring never overflows. Smaller rings cost system calls, and nothing else.
  std::uint32_t submission_entries = 0;
  std::uint32_t completion_entries = 0;
};

// Thread-safe. A queue belongs to the thread that submits to it first; another thread may create it
// before. After a permanent failure to submit, a queue completes the operations that the kernel has
// not taken with that error, and refuses further operations.
class UringBackend final : public IoBackend {
 public:
  // Returns CheckIoUring's error if io_uring cannot be used.
  static Result<std::unique_ptr<UringBackend>> Create(const UringOptions& options = {});

  std::string_view name() const override { return "io_uring"; }
  Result<std::unique_ptr<Directory>> OpenDirectory(std::string_view path) override;
  Result<std::unique_ptr<IoQueue>> CreateQueue(const QueueOptions& options) override;

 private:
  explicit UringBackend(const UringOptions& options) : options_(options) {}

  const UringOptions options_;
};

}  // namespace forebay::io
