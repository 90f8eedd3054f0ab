// Additions of whole gradients and of pieces, for floats in plain memory. A piece is added through
// all nodes that it completes in one loop, so that it is read once while it is in the caches.
#include "trainer/numerics/gradient_sum.h"

#include <algorithm>

namespace forebay::train {
namespace {

constexpr std::size_t kBlockFloats = 2048;  // fits the first cache with what it is added to

// Each element has a sum of its own, so vectors do not change its bits.
void AddTo(float* sum, const float* addend, std::size_t count) {
  for (std::size_t at = 0; at < count; ++at) sum[at] += addend[at];
}

}  // namespace

void FloatMemory::Clear(Buffer& buffer) const { std::ranges::fill(buffer, 0.0F); }

void FloatMemory::Put(const Piece& piece, std::size_t offset, Buffer& buffer) const {
  FOREBAY_CHECK(offset <= buffer.size() && piece.size() <= buffer.size() - offset);
  std::ranges::copy(piece, buffer.begin() + static_cast<std::ptrdiff_t>(offset));
}

// Block by block: what lies between the piece and the last node stays in the first cache.
void FloatMemory::AddThrough(const Piece& piece, std::size_t offset,
                             std::span<Buffer* const> nodes) const {
  FOREBAY_CHECK(offset <= nodes[0]->size() && piece.size() <= nodes[0]->size() - offset);
  for (std::size_t at = 0; at < piece.size(); at += kBlockFloats) {
    const std::size_t count = std::min(kBlockFloats, piece.size() - at);
    const float* addend = piece.data() + at;
    for (Buffer* const node : nodes) {
      float* const sum = node->data() + offset + at;
      AddTo(sum, addend, count);
      addend = sum;
    }
  }
}

void FloatMemory::AddWhole(const Buffer& addend, Buffer& sum) const {
  AddTo(sum.data(), addend.data(), sum.size());
}

}  // namespace forebay::train
