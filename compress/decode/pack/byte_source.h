// The bytes of a pack: a file, memory, or whatever a program implements ByteSource for. The daemon,
// for example, reads packs through its own file back end.
//
//   // The first 8 bytes of a file: "FEBYPAK1" if it is a pack.
//   forebay::Result<std::string> FirstBytesOf(const std::string& path) {
//     FOREBAY_ASSIGN(const auto file, forebay::compress::OpenByteSource(path));
//     std::string bytes(8, ' ');
//     FOREBAY_TRY(file->ReadAt(0, std::as_writable_bytes(std::span(bytes))));
//     return bytes;
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "proto/contract/result.h"

namespace forebay::compress {

// A sequence of bytes of fixed size that can be read at any offset. ReadAt fills `bytes` completely
// or fails; a range beyond size() is kDataLoss. Implementations are thread-safe, because one open
// pack serves many threads.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  virtual Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
};

// Opens a file, which is read with pread. Errors: kInvalidArgument (not a regular file), those of
// system calls; they name the path.
Result<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path);

// A source over `bytes`, which must outlive it.
std::unique_ptr<ByteSource> MemorySource(std::span<const std::byte> bytes);

}  // namespace forebay::compress
