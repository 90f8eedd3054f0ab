// Hands out parts of the caller's scratch memory. Without memory it only counts, so that one
// function both computes how much memory a decoder needs and takes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/align_up.h"
#include "proto/contract/check.h"

namespace forebay::compress {

// Borrows its memory. Not thread-safe.
class ScratchArena {
 public:
  static constexpr std::size_t kAlignment = 64;

  ScratchArena() = default;  // counts
  explicit ScratchArena(std::span<std::byte> memory) : memory_(memory), counting_(false) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    used_ = (kAlignment - address % kAlignment) % kAlignment;
  }

  // `count` objects of trivial type, aligned to a cache line, not initialised; empty while
  // counting. The caller has checked that the memory is as large as a counting pass said.
  template <typename T>
  std::span<T> Take(std::size_t count) {
    const std::size_t bytes = AlignUp(count * sizeof(T), kAlignment);
    const std::size_t begin = used_;
    used_ += bytes;
    if (counting_) return {};
    FOREBAY_CHECK(used_ <= memory_.size());
    return {reinterpret_cast<T*>(memory_.data() + begin), count};
  }

  // What a counting pass asks for, alignment of the memory included.
  std::size_t bytes() const { return used_ + kAlignment; }

 private:
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
  bool counting_ = true;
};

}  // namespace forebay::compress
