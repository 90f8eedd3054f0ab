// Where a pack's bytes come from.
//
//   // The first 8 bytes of a file: "FEBYPAK1" where it is a pack.
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

// A file or what stands for one. ReadAt fills `bytes` whole or fails. Thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  virtual Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
};

// A file opened for reading, and read with pread. Errors name the path.
Result<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path);

// Memory that outlives the source.
std::unique_ptr<ByteSource> MemorySource(std::span<const std::byte> bytes);

}  // namespace forebay::compress
