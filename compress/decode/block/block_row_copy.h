// From rows of whole blocks to rows of a frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "compress/format/plane/block_format.h"

namespace forebay::compress {

// Whether a frame whose rows are whole blocks may be decoded where it belongs: whether it is wanted
// there, at an address for T.
template <typename T>
bool CanHoldBlocks(std::span<const std::byte> place) {
  return !place.empty() && reinterpret_cast<std::uintptr_t>(place.data()) % alignof(T) == 0;
}

// Copies the first `columns` samples of `from`, a row of whole blocks, to where `to` begins, in
// steps of 16 bytes: up to 15 bytes behind them are overwritten where `to` has so many. So rows are
// copied in the order in which they lie there. `to` has `columns` samples at least.
template <typename T>
void CopyBlockRow(const T* from, std::size_t columns, std::span<std::byte> to) {
  constexpr std::size_t kStep = kBlockColumns;  // a row of whole blocks is no shorter
  const auto* const bytes = reinterpret_cast<const std::byte*>(from);
  const std::size_t wanted = columns * sizeof(T);
  const std::size_t written = (wanted + kStep - 1) / kStep * kStep;
  if (written > to.size()) {
    std::memcpy(to.data(), bytes, wanted);
    return;
  }
  for (std::size_t at = 0; at < written; at += kStep) {
    std::memcpy(to.data() + at, bytes + at, kStep);
  }
}

}  // namespace forebay::compress
