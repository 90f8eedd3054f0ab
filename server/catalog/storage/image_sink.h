// ImageSink: the destination of a catalog image: memory here, or a TableSpool that may go to a
// file.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::catalog {

// The image is appended in order; only the header is replaced at the end.
class ImageSink {
 public:
  virtual ~ImageSink() = default;
  virtual Status Append(std::span<const std::byte> bytes) = 0;
  // Replaces the first bytes. At least bytes.size() bytes must have been appended.
  virtual Status ReplaceStart(std::span<const std::byte> bytes) = 0;
};

// Collects the image in memory.
class MemorySink final : public ImageSink {
 public:
  Status Append(std::span<const std::byte> bytes) override;
  Status ReplaceStart(std::span<const std::byte> bytes) override;
  std::vector<std::byte> Release() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace forebay::catalog
