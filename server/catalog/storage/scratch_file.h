// ScratchFile: an unnamed file for the tables of a catalog build that outgrow memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::catalog {

// The file never has a name, so nothing is left behind even if the daemon is killed. Calls block.
// Move-only. Not thread-safe.
class ScratchFile {
 public:
  // `directory` is absolute. kUnimplemented if its file system has no unnamed files (O_TMPFILE).
  static Result<ScratchFile> Create(const std::string& directory);

  // Transfer all bytes or fail. kResourceExhausted if the device is full; kDataLoss if the file
  // ends before the last byte to read.
  Status Write(std::uint64_t offset, std::span<const std::byte> bytes);
  Status Read(std::uint64_t offset, std::span<std::byte> bytes) const;

  int fd() const { return fd_.get(); }

 private:
  explicit ScratchFile(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace forebay::catalog
