// AlignedBuffer: memory for direct I/O, which demands aligned addresses, offsets and lengths.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "proto/contract/result.h"

namespace forebay::io {

// Sole owner of zeroed memory whose address and size are multiples of
// limits::kIoAlignmentBytes. Move-only; a moved-from buffer is empty. Zeroed, because callers pad
// the tail of a direct write, and padding must not carry old heap contents to a file.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Rounds `bytes` up to the alignment. kInvalidArgument for 0 or more than
  // limits::kSlotBytesMax, kResourceExhausted if memory is short.
  static Result<AlignedBuffer> Create(std::size_t bytes);

  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    if (this != &other) {
      Reset();
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { Reset(); }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() { return {data_, size_}; }
  std::span<const std::byte> span() const { return {data_, size_}; }

 private:
  void Reset();

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace forebay::io
