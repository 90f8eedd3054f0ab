// Copies rows of whole blocks to rows of a frame, for bit-packed and block-rANS planes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "compress/format/plane/block_format.h"
#include "proto/contract/align_up.h"

namespace forebay::compress {

// Whether a frame whose rows are whole blocks can be decoded in place: it has a place, at an
// address that is aligned for T.
template <typename T>
bool CanHoldBlocks(std::span<const std::byte> place) {
  return !place.empty() && reinterpret_cast<std::uintptr_t>(place.data()) % alignof(T) == 0;
}

// Copies the first `columns` samples of `from`, a row of whole blocks, to the beginning of `to`, in
// steps of 16 bytes. Up to 15 bytes behind them are overwritten if `to` has them, so rows must be
// copied in ascending order. `to` has at least `columns` samples.
template <typename T>
void CopyBlockRow(const T* from, std::size_t columns, std::span<std::byte> to) {
  constexpr std::size_t kStep = kBlockColumns;  // a row of whole blocks is no shorter
  const auto* const bytes = reinterpret_cast<const std::byte*>(from);
  const std::size_t wanted = columns * sizeof(T);
  const std::size_t written = AlignUp(wanted, kStep);
  if (written > to.size()) {
    std::memcpy(to.data(), bytes, wanted);
    return;
  }
  for (std::size_t at = 0; at < written; at += kStep) {
    std::memcpy(to.data() + at, bytes + at, kStep);
  }
}

}  // namespace forebay::compress
