// The checks of every back end before it takes an operation, so that all refuse alike.
#pragma once

#include <cstddef>
#include <span>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"

namespace forebay::io {

// kInvalidArgument if an operation has no file, is longer than limits::kIoRequestBytesMax, ends
// beyond the largest file offset, or breaks the alignment rule of its direct file;
// kResourceExhausted if in_flight and the operations together exceed the depth.
struct QueueRoom {
  std::size_t in_flight = 0;
  std::size_t depth = 0;
};
Status CheckOperations(std::span<const Operation> operations, QueueRoom room);

// kInvalidArgument if options.depth is 0 or more than limits::kIoDepthMax.
Status CheckQueueOptions(const QueueOptions& options);

// The bytes that an operation transfers: of its buffer or its data, or 0 for a data sync.
inline std::size_t OperationBytes(const Operation& operation) {
  switch (operation.kind) {
    case OpKind::kRead: return operation.buffer.size();
    case OpKind::kWrite: return operation.data.size();
    case OpKind::kDataSync: return 0;
  }
  return 0;
}

}  // namespace forebay::io
