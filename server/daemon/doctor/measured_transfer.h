// Transfer: reads or writes ranges of files, bounded in bytes and in time, and measures the rate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"

namespace forebay::daemon {

struct FileRange {
  io::File* file = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct TransferOptions {
  io::OpKind kind = io::OpKind::kRead;
  std::uint64_t request_bytes = 0;  // a multiple of limits::kIoAlignmentBytes
  std::size_t requests = 1;         // in flight at a time
  std::int64_t deadline_ns = 0;     // no request begins after this time
};

struct TransferRate {
  std::uint64_t bytes = 0;
  std::int64_t ns = 0;
  std::uint64_t BytesPerSecond() const;
};

// Transfers the ranges in their order, and returns what was moved until the last request ended. A
// read that meets the end of its file counts with the bytes that there were. What is written is
// random, so that a file system that compresses does not look faster than it is. Takes
// `request_bytes` * `requests` of memory. Errors are those of the back end.
Result<TransferRate> Transfer(io::IoBackend& backend, const io::Clock& clock,
                              std::span<const FileRange> ranges, const TransferOptions& options);

}  // namespace forebay::daemon
