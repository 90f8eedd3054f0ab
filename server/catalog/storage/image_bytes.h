// ImageBytes: the bytes of a catalog image, owned in memory or mapped from a file.
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
  // kNotFound, kPermissionDenied, ...; kInvalidArgument where it is not a regular file;
  // kResourceExhausted above limits::kCatalogFileBytesMax.
  static Result<ImageBytes> MapFile(const std::string& absolute_path);
  // The first `bytes` of an open file, which stays the caller's.
  static Result<ImageBytes> MapFd(int fd, std::uint64_t bytes);

  ImageBytes(ImageBytes&& other) noexcept;
  ImageBytes& operator=(ImageBytes&&) = delete;
  ImageBytes(const ImageBytes&) = delete;
  ImageBytes& operator=(const ImageBytes&) = delete;
  ~ImageBytes();

  std::span<const std::byte> bytes() const;
  // Gives pages of a mapping back to the page cache (they count as resident until then);
  // nothing for owned bytes.
  void DropResidentPages() const;
  // Counts a look-up that may have touched so many stretches of kWalkStretchBytes; of a mapping
  // above kResidentBytesMax, gives pages back before more than that can be resident. Thread-safe.
  void NoteWalk(std::uint64_t stretches) const;

  static constexpr std::uint64_t kResidentBytesMax = std::uint64_t{256} << 20;
  static constexpr std::uint64_t kWalkStretchBytes = 64 << 10;  // Linux maps around a fault

 private:
  ImageBytes(void* mapping, std::size_t mapping_bytes)
      : mapping_(mapping), mapping_bytes_(mapping_bytes) {}

  std::vector<std::byte> owned_;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  mutable std::atomic<std::uint64_t> walked_ = 0;  // stretches since the mapping was made
};

}  // namespace forebay::catalog
