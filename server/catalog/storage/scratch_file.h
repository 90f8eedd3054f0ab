// ScratchFile: an unnamed file for what a catalog under construction does not keep in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::catalog {

// The file has no name from the start: nothing is left behind, however the daemon ends. Calls
// block. Move-only; not thread-safe.
class ScratchFile {
 public:
  // `directory` is absolute. kUnimplemented where its file system has no unnamed files.
  static Result<ScratchFile> Create(const std::string& directory);

  // Whole transfers. kResourceExhausted where the device is full; kDataLoss where the file is
  // shorter than what is read.
  Status Write(std::uint64_t offset, std::span<const std::byte> bytes);
  Status Read(std::uint64_t offset, std::span<std::byte> bytes) const;

  int fd() const { return fd_.get(); }

 private:
  explicit ScratchFile(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace forebay::catalog
