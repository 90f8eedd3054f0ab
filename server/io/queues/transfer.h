// Transfer: the state of one operation of a real back end. Both real back ends use it, so that
// resumption after short and interrupted transfers is written, and tested, once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/io/posix/posix_file.h"

namespace forebay::io {

// The next request to the kernel is `kind` on `file` with next_offset(), next_memory() and
// next_bytes(). A plain value, reused in place. Borrows the file and the memory.
struct Transfer {
  const PosixFile* file = nullptr;
  std::byte* memory = nullptr;  // only read if kind is kWrite
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t done = 0;
  std::uint64_t tag = 0;
  OpKind kind = OpKind::kRead;
  std::uint16_t interrupts = 0;
  std::uint16_t retries = 0;

  std::uint64_t next_offset() const { return offset + done; }
  std::byte* next_memory() const { return memory + done; }
  std::uint32_t next_bytes() const { return static_cast<std::uint32_t>(length - done); }
};

// Makes the transfer of a checked operation (see operation_rules.h). The file must be a PosixFile;
// a file of another back end is a programming error.
Transfer TransferOf(const Operation& operation);

// Takes the kernel's answer (bytes, or a negative errno). Returns the bytes transferred, or the
// error, or nullopt if the kernel must be asked for the rest. EINTR is repeated at most
// limits::kInterruptMax times, EAGAIN at most limits::kIoRetryMax times and never for a data
// sync, because a sync that failed once may succeed later without having written anything.
[[nodiscard]] std::optional<Result<std::uint64_t>> Advance(Transfer& transfer,
                                                           std::int64_t answer);

// "read 4096 bytes at 8192 of 'a/b'".
std::string Describe(const Transfer& transfer);

}  // namespace forebay::io
