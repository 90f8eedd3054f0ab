// GradientSum: sums the gradients of a replica's micro-batches. In a binary tree over their index
// the sum is the same whichever replica, stage or process formed which part of it; from left to
// right it depends on which micro-batches a replica has, and takes one buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace forebay::train {

enum class SumOrder : std::uint8_t { kTree, kLeftToRight };

// The tree is a binary counter: after 2^k gradients one buffer holds their sum; at most
// log2(n) + 1 buffers live at once. A gradient comes piece by piece and each piece is added where
// it belongs in one pass over memory. Not thread-safe.
class GradientSum {
 public:
  // `count`: floats of a gradient.
  explicit GradientSum(std::size_t count, SumOrder order = SumOrder::kTree)
      : count_(count), order_(order) {}

  // A piece of the next micro-batch's gradient, from float `offset` on. Micro-batches come in
  // ascending order; all pieces of one come, each once and in any order, before Next.
  void Add(std::size_t offset, std::span<const float> piece);
  // A piece that is zero.
  void AddNothing(std::size_t offset, std::size_t floats);
  // The micro-batch is complete.
  void Next();
  // The sum over all; none are left then. Without any: zeros. Valid until Add.
  std::span<float> Finish();

  std::size_t micro_batches() const { return micro_batches_; }
  std::size_t buffers() const { return pool_.size(); }  // ever in use at once

 private:
  std::size_t Take();
  // Of nodes_, how many the next gradient is added to.
  std::size_t Carries() const;

  std::size_t count_;
  SumOrder order_;
  std::size_t micro_batches_ = 0;
  std::vector<std::vector<float>> pool_;
  std::vector<std::size_t> idle_;   // of pool_
  std::vector<std::size_t> nodes_;  // of pool_; complete subtrees, largest first
  std::size_t leaf_ = SIZE_MAX;     // of pool_: a gradient that is added to none yet
};

}  // namespace forebay::train
