// GradientTree: sums the gradients of a replica's micro-batches in a binary tree over their
// index, so that the sum is the same whichever replica, stage or process formed which part of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace forebay::train {

// A binary counter: after 2^k leaves one buffer holds their sum; at most log2(n) + 1 buffers live
// at once. Leaves come in ascending order of their micro-batch. Not thread-safe.
class GradientTree {
 public:
  // `count`: floats of a gradient.
  explicit GradientTree(std::size_t count) : count_(count) {}

  // Zeroed room for the next micro-batch's gradient; stays where it is until Add.
  std::span<float> Leaf();
  // The leaf is complete.
  void Add();
  // The sum over all leaves; the tree is then empty. Without leaves: zeros. Valid until Leaf.
  std::span<float> Finish();

  std::size_t leaves() const { return leaves_; }
  std::size_t buffers() const { return pool_.size(); }  // ever in use at once

 private:
  std::size_t Take();

  std::size_t count_;
  std::size_t leaves_ = 0;
  std::vector<std::vector<float>> pool_;
  std::vector<std::size_t> idle_;   // of pool_
  std::vector<std::size_t> nodes_;  // of pool_; complete subtrees, largest first
  std::size_t leaf_ = SIZE_MAX;     // of pool_
};

}  // namespace forebay::train
