// ImageSink: where a catalog image is written to.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::catalog {

// Appended to in order, except for the header, which is set last.
class ImageSink {
 public:
  virtual ~ImageSink() = default;
  virtual Status Append(std::span<const std::byte> bytes) = 0;
  // Replaces the first bytes of what was appended.
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
