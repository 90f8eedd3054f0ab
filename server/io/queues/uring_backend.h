// The io_uring back end: one ring per queue, batched submission, registered buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/io/posix/path_resolver.h"

namespace forebay::io {

// Whether this process may use io_uring with what this back end needs: the calls themselves
// (site policy forbids them on many machines: kUnimplemented or kPermissionDenied), the
// features NODROP and EXT_ARG (Linux 5.11), and the read, write and fsync opcodes. Makes and
// drops a small ring.
Status CheckIoUring();
bool IsIoUringAvailable();

struct UringOptions {
  std::optional<ResolveMethod> resolve_method;  // detected where not given
  // Ring sizes, rounded up to powers of two. 0 fits the queue's depth: then the completion
  // ring never overflows. Smaller ones only cost system calls.
  std::uint32_t submission_entries = 0;
  std::uint32_t completion_entries = 0;
};

// Thread-safe. A queue belongs to the thread that submits to it first; it may be made on
// another, and have memory registered there before. After a failure to submit that is not
// temporary, a queue completes what the kernel has not seen with that error and refuses
// further operations.
class UringBackend final : public IoBackend {
 public:
  // CheckIoUring's error where io_uring cannot be used.
  static Result<std::unique_ptr<UringBackend>> Create(const UringOptions& options = {});

  std::string_view name() const override { return "io_uring"; }
  Result<std::unique_ptr<Directory>> OpenDirectory(std::string_view path) override;
  Result<std::unique_ptr<IoQueue>> CreateQueue(const QueueOptions& options) override;

 private:
  explicit UringBackend(const UringOptions& options) : options_(options) {}

  const UringOptions options_;
};

}  // namespace forebay::io
