// Checks operations before any of them is taken, so that a mistake of the caller is an error of the
// call and never a failed completion. Errors name the operation by its tag.
#include "server/io/queues/operation_rules.h"

#include <cstdint>
#include <limits>
#include <string>

#include "proto/contract/limits.h"

namespace forebay::io {
namespace {

Error Refused(const Operation& operation, const std::string& why) {
  return Error(ErrorCode::kInvalidArgument,
               "operation with tag " + std::to_string(operation.tag) + ": " + why);
}

bool IsAligned(std::uint64_t value) { return value % limits::kIoAlignmentBytes == 0; }

// Checks one operation. A data sync has neither offset nor memory.
Status CheckOperation(const Operation& operation) {
  if (operation.file == nullptr) return Refused(operation, "no file");
  // A data sync may be submitted for any file, direct or not.
  if (operation.kind == OpKind::kDataSync) return {};
  const std::size_t bytes = OperationBytes(operation);
  // This check also keeps the length within the 32 bits that the kernel takes, and below the 2 GiB
  // at which the kernel would cut a request.
  if (bytes > limits::kIoRequestBytesMax) {
    return Refused(operation, std::to_string(bytes) + " bytes exceed kIoRequestBytesMax=" +
                                  std::to_string(limits::kIoRequestBytesMax));
  }
  constexpr auto kOffsetMax =
      static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  // Subtraction, because offset + bytes could wrap; bytes is bounded above.
  if (operation.offset > kOffsetMax - bytes) {
    return Refused(operation, "it ends beyond the largest file offset");
  }
  // Checked although the kernel checks it too: not all file systems refuse a misaligned request,
  // and some read it through the page cache, so a mistake would show on one machine only.
  if (!operation.file->is_direct()) return {};
  const void* memory = operation.kind == OpKind::kRead
                           ? static_cast<const void*>(operation.buffer.data())
                           : static_cast<const void*>(operation.data.data());
  if (!IsAligned(operation.offset) || !IsAligned(bytes) ||
      !IsAligned(reinterpret_cast<std::uintptr_t>(memory))) {
    return Refused(operation, "offset, length and address must be multiples of "
                              "kIoAlignmentBytes=" +
                                  std::to_string(limits::kIoAlignmentBytes) +
                                  " on a direct file");
  }
  return {};
}

}  // namespace

// All operations are checked before any is taken, so that a refused call leaves the queue as it
// was.
Status CheckOperations(std::span<const Operation> operations, QueueRoom room) {
  // Subtraction, because the sum of two sizes could wrap; in_flight never exceeds the depth.
  if (operations.size() > room.depth - room.in_flight) {
    return Error(ErrorCode::kResourceExhausted,
                 "queue depth " + std::to_string(room.depth) + ": " +
                     std::to_string(room.in_flight) + " operations are in flight, " +
                     std::to_string(operations.size()) + " more do not fit");
  }
  for (const Operation& operation : operations) FOREBAY_TRY(CheckOperation(operation));
  return {};
}

Status CheckQueueOptions(const QueueOptions& options) {
  if (options.depth == 0 || options.depth > limits::kIoDepthMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "queue depth " + std::to_string(options.depth) +
                     ": must be 1 to kIoDepthMax=" + std::to_string(limits::kIoDepthMax));
  }
  return {};
}

}  // namespace forebay::io
