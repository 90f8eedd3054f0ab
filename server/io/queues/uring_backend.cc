// Detection of io_uring. A probe ring is made, because neither a kernel version nor a file in /proc
// tells whether a seccomp filter forbids the calls.
#include "server/io/queues/uring_backend.h"

#include <liburing.h>

#include <cerrno>
#include <string>

#include "server/io/posix/posix_directory.h"
#include "server/io/posix/posix_file.h"
#include "server/io/queues/operation_rules.h"
#include "server/io/queues/uring_queue.h"

namespace forebay::io {
namespace {

struct FreeProbe {
  void operator()(io_uring_probe* probe) const { io_uring_free_probe(probe); }
};

// A kernel may have io_uring but lack single operations, or forbid them by policy.
Status CheckOpcodes(io_uring* ring) {
  std::unique_ptr<io_uring_probe, FreeProbe> probe(io_uring_get_probe_ring(ring));
  if (probe == nullptr) {
    return Error(ErrorCode::kUnimplemented,
                 "this kernel cannot list the operations of io_uring (Linux 5.6 can)");
  }
  for (const int opcode : {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_FSYNC}) {
    if (io_uring_opcode_supported(probe.get(), opcode) == 0) {
      return Error(ErrorCode::kUnimplemented,
                   "io_uring lacks operation " + std::to_string(opcode));
    }
  }
  return {};
}

}  // namespace

Status CheckIoUring() {
  // A ring of two entries with no flags: the plainest that there is. Queues ask for more and fall
  // back on their own (UringQueue).
  io_uring ring = {};
  io_uring_params params = {};
  const int rc = io_uring_queue_init_params(2, &ring, &params);
  if (rc < 0) return FileError(-rc, "io_uring is refused on this machine");
  // NODROP: completions are never lost when the completion ring overflows. EXT_ARG: a wait can have
  // a timeout without an entry of the submission ring.
  constexpr std::uint32_t kNeeded = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
  Status status;
  if ((params.features & kNeeded) != kNeeded) {
    status = Error(ErrorCode::kUnimplemented,
                   "io_uring of this kernel lacks NODROP or EXT_ARG; Linux 5.11 has them");
  } else {
    status = CheckOpcodes(&ring);
  }
  // The probe is destroyed whatever it found: one that stayed would count against the limits of
  // descriptors and locked memory.
  io_uring_queue_exit(&ring);
  return status;
}

bool IsIoUringAvailable() { return CheckIoUring().has_value(); }

Result<std::unique_ptr<UringBackend>> UringBackend::Create(const UringOptions& options) {
  // Asked here and not by each queue, so that a daemon decides for one back end before it opens
  // files.
  FOREBAY_TRY(CheckIoUring());
  return std::unique_ptr<UringBackend>(new UringBackend(options));
}

Result<std::unique_ptr<Directory>> UringBackend::OpenDirectory(std::string_view path) {
  return PosixDirectory::Create(path, {.method = options_.resolve_method});
}

Result<std::unique_ptr<IoQueue>> UringBackend::CreateQueue(const QueueOptions& options) {
  FOREBAY_TRY(CheckQueueOptions(options));
  return UringQueue::Create(options, options_);
}

}  // namespace forebay::io
