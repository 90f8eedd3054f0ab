// GradientSum: sums the gradients of a replica's micro-batches, in a binary tree over their index
// or from left to right. The tree's sum is the same whichever replica, stage or process formed
// which part of it. From left to right, it depends on which micro-batches a replica has, but takes
// only one buffer.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "proto/contract/check.h"

namespace forebay::train {

enum class SumOrder : std::uint8_t { kTree, kLeftToRight };

// The memory of GradientSum: gradients lie in vectors. TensorMemory (exec/device/tensor_update.h)
// has the same members for tensors.
struct FloatMemory {
  using Buffer = std::vector<float>;     // holds a whole gradient
  using Piece = std::span<const float>;  // consecutive floats of a gradient

  Buffer Make(std::size_t floats) const { return Buffer(floats); }
  void Clear(Buffer& buffer) const;
  void Put(const Piece& piece, std::size_t offset, Buffer& buffer) const;
  // Adds the piece to the first of `nodes`, the sum to the second, and so on, each in place.
  void AddThrough(const Piece& piece, std::size_t offset, std::span<Buffer* const> nodes) const;
  void AddWhole(const Buffer& addend, Buffer& sum) const;
  // Calls take(offset, piece) for pieces of zeros, `floats` in total.
  template <typename Take>
  void ForZeros(std::size_t floats, const Take& take) const {
    static constexpr std::array<float, 2048> kZeros = {};
    for (std::size_t at = 0; at < floats; at += kZeros.size()) {
      take(at, Piece(kZeros).first(std::min(kZeros.size(), floats - at)));
    }
  }
};

// The tree is a binary counter: after 2^k gradients one buffer holds their sum; at most
// log2(n) + 1 buffers live at once. A gradient comes piece by piece and each piece is added where
// it belongs in one pass over memory. Not thread-safe. Throws what `Memory` throws.
template <typename Memory>
class GradientSumOver {
 public:
  using Buffer = typename Memory::Buffer;
  using Piece = typename Memory::Piece;

  // `count`: floats of a gradient.
  explicit GradientSumOver(std::size_t count, SumOrder order = SumOrder::kTree,
                           Memory memory = {})
      : memory_(std::move(memory)), count_(count), order_(order) {}

  // A piece of the next micro-batch's gradient, from float `offset` on. Micro-batches come in
  // ascending order; all pieces of one come, each once and in any order, before Next.
  void Add(std::size_t offset, const Piece& piece);
  // Adds a piece of zeros.
  void AddNothing(std::size_t offset, std::size_t floats) {
    memory_.ForZeros(floats, [&](std::size_t at, const Piece& zeros) { Add(offset + at, zeros); });
  }
  // The micro-batch is complete.
  void Next();
  // Returns the sum over all micro-batches and begins again; zeros if there were none. The
  // reference is valid until the next Add.
  Buffer& Finish();

  std::size_t micro_batches() const { return micro_batches_; }
  std::size_t buffers() const { return pool_.size(); }  // ever in use at once

 private:
  Buffer* Take() {
    if (idle_.empty()) {
      return pool_.emplace_back(std::make_unique<Buffer>(memory_.Make(count_))).get();
    }
    Buffer* const taken = idle_.back();
    idle_.pop_back();
    return taken;
  }
  // How many of nodes_ the next gradient is added to. In the tree, this is the number of trailing
  // ones of the count of gradients so far.
  std::size_t Carries() const {
    if (order_ == SumOrder::kLeftToRight) return micro_batches_ == 0 ? 0 : 1;
    return static_cast<std::size_t>(std::countr_one(micro_batches_));
  }

  Memory memory_;
  std::size_t count_;
  SumOrder order_;
  std::size_t micro_batches_ = 0;
  std::vector<std::unique_ptr<Buffer>> pool_;
  std::vector<Buffer*> idle_;
  std::vector<Buffer*> nodes_;  // complete subtrees, largest first
  Buffer* leaf_ = nullptr;      // a gradient that is added to none yet
};

template <typename Memory>
void GradientSumOver<Memory>::Add(std::size_t offset, const Piece& piece) {
  const std::size_t carries = Carries();
  if (carries == 0) {
    if (leaf_ == nullptr) leaf_ = Take();
    memory_.Put(piece, offset, *leaf_);
    return;
  }
  // node 0 + (node 1 + (... + piece)): each sum takes the place of its node, and ends in the
  // largest of those nodes.
  std::array<Buffer*, 64> through = {};
  std::copy_n(nodes_.rbegin(), carries, through.begin());
  memory_.AddThrough(piece, offset, std::span(through).first(carries));
}

template <typename Memory>
void GradientSumOver<Memory>::Next() {
  const std::size_t carries = Carries();
  if (carries == 0) {
    // A stage without parameters has no pieces.
    nodes_.push_back(leaf_ == nullptr ? Take() : std::exchange(leaf_, nullptr));
  }
  for (std::size_t carry = 1; carry < carries; ++carry) {
    idle_.push_back(nodes_.back());
    nodes_.pop_back();
  }
  ++micro_batches_;
}

template <typename Memory>
typename GradientSumOver<Memory>::Buffer& GradientSumOver<Memory>::Finish() {
  FOREBAY_CHECK(leaf_ == nullptr);
  if (nodes_.empty()) {
    nodes_.push_back(Take());
    memory_.Clear(*nodes_.back());
  }
  // Smallest first: what has no right neighbour moves up as it is.
  while (nodes_.size() > 1) {
    Buffer* const right = nodes_.back();
    nodes_.pop_back();
    memory_.AddWhole(*right, *nodes_.back());
    idle_.push_back(right);
  }
  Buffer* const sum = nodes_.back();
  nodes_.clear();
  idle_.push_back(sum);
  micro_batches_ = 0;
  return *sum;
}

using GradientSum = GradientSumOver<FloatMemory>;

}  // namespace forebay::train
