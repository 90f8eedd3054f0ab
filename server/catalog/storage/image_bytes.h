// ImageBytes: the bytes of a catalog image, owned in memory or mapped from a file. Files of up to
// kResidentBytesMax are read, larger ones are mapped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::catalog {

// Move-only; unmaps on destruction. A mapped file must not be truncated while it is mapped:
// catalogs are published by rename and never changed in place.
class ImageBytes {
 public:
  explicit ImageBytes(std::vector<std::byte> owned);
  // Reads or maps a file. Errors: those of open(2) and read(2); kInvalidArgument if it is not a
  // regular file; kResourceExhausted above limits::kCatalogFileBytesMax.
  static Result<ImageBytes> FromFile(const std::string& absolute_path);
  // Maps the first `bytes` of an open file. The caller keeps the descriptor.
  static Result<ImageBytes> MapFd(int fd, std::uint64_t bytes);

  ImageBytes(ImageBytes&& other) noexcept;
  ImageBytes& operator=(ImageBytes&&) = delete;
  ImageBytes(const ImageBytes&) = delete;
  ImageBytes& operator=(const ImageBytes&) = delete;
  ~ImageBytes();

  std::span<const std::byte> bytes() const;
  bool is_mapped() const { return mapping_ != nullptr; }
  // Unmaps the pages that reads of a mapping made resident; they stay in the page cache. Does
  // nothing for owned bytes.
  void DropResidentPages() const;
  // Counts a look-up that may make up to `windows` times kFaultAroundBytes resident; call it before
  // the look-up. In a mapping above kResidentBytesMax, drops the pages whenever look-ups may have
  // made as much resident. Thread-safe.
  void NoteTouched(std::uint64_t windows) const;

  static constexpr std::uint64_t kResidentBytesMax = std::uint64_t{256} << 20;
  // What one page fault maps at most: Linux's default fault_around_bytes.
  static constexpr std::uint64_t kFaultAroundBytes = 64 << 10;
  // The windows, besides the first one, that a read of `bytes` contiguous bytes may touch.
  static constexpr std::uint64_t FurtherWindows(std::uint64_t bytes) {
    return bytes / kFaultAroundBytes + (bytes % kFaultAroundBytes != 0 ? 1 : 0);
  }

 private:
  ImageBytes(void* mapping, std::size_t mapping_bytes)
      : mapping_(mapping), mapping_bytes_(mapping_bytes) {}

  std::vector<std::byte> owned_;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  mutable std::atomic<std::uint64_t> touched_ = 0;  // windows since the mapping was made
};

}  // namespace forebay::catalog
