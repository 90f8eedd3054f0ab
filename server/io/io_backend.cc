// ReadFully, WriteFully and DataSync: one operation at a time on an idle queue, for callers to whom
// a transfer is all or nothing (headers, manifests, catalogs).
#include "server/io/io_backend.h"

#include <string>

#include "proto/contract/check.h"

namespace forebay::io {
namespace {

// Submits one operation to an idle queue and returns its outcome. The queue must be idle, or this
// would take completions that belong to someone else.
Result<std::uint64_t> RunAlone(IoQueue& queue, const Operation& operation) {
  if (queue.in_flight() != 0) {
    return Error(ErrorCode::kFailedPrecondition,
                 "a whole transfer needs an idle queue, but this one has " +
                     std::to_string(queue.in_flight()) + " operations in flight");
  }
  FOREBAY_TRY(queue.Submit({&operation, 1}));
  // The operation borrows memory of the caller, so this waits without a limit of time: to return
  // early would leave the kernel writing into memory that the caller frees.
  std::vector<Completion> completions;
  while (completions.empty()) queue.Wait(1, completions);
  FOREBAY_CHECK(completions.size() == 1 && completions[0].tag == operation.tag);
  return std::move(completions[0].bytes);
}

std::string StoppedAt(std::string_view what, std::uint64_t at, std::uint64_t end) {
  return std::string(what) + std::to_string(at) + ", wanted " + std::to_string(end);
}

}  // namespace

Status ReadFully(IoQueue& queue, File& file, std::uint64_t offset, std::span<std::byte> buffer) {
  Operation operation;
  operation.kind = OpKind::kRead;
  operation.file = &file;
  operation.offset = offset;
  operation.buffer = buffer;
  FOREBAY_ASSIGN(const std::uint64_t bytes, RunAlone(queue, operation));
  // The file was longer when the caller learned its size: it was truncated, or its header lies.
  if (bytes != buffer.size()) {
    return Error(ErrorCode::kDataLoss,
                 StoppedAt("file ends at ", offset + bytes, offset + buffer.size()));
  }
  return {};
}

Status WriteFully(IoQueue& queue, File& file, std::uint64_t offset,
                  std::span<const std::byte> data) {
  // WriteFully does not sync. A caller for whom the bytes must be durable calls DataSync.
  Operation operation;
  operation.kind = OpKind::kWrite;
  operation.file = &file;
  operation.offset = offset;
  operation.data = data;
  FOREBAY_ASSIGN(const std::uint64_t bytes, RunAlone(queue, operation));
  if (bytes != data.size()) {
    return Error(ErrorCode::kDataLoss,
                 StoppedAt("write stopped at ", offset + bytes, offset + data.size()));
  }
  return {};
}

Status DataSync(IoQueue& queue, File& file) {
  Operation operation;
  operation.kind = OpKind::kDataSync;
  operation.file = &file;
  // A sync that failed is not repeated by any caller: the kernel may have dropped the pages that it
  // could not write, and a second sync would succeed (docs/design.md, 7.3).
  FOREBAY_TRY(RunAlone(queue, operation));
  return {};
}

}  // namespace forebay::io
