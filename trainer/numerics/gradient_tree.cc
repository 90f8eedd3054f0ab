#include "trainer/numerics/gradient_tree.h"

#include <algorithm>
#include <array>

#include "proto/contract/check.h"
#include "trainer/comm/collectives.h"

namespace forebay::train {

std::size_t GradientTree::Take() {
  if (idle_.empty()) {
    pool_.emplace_back(count_);
    return pool_.size() - 1;
  }
  const std::size_t taken = idle_.back();
  idle_.pop_back();
  return taken;
}

std::span<float> GradientTree::Leaf() {
  FOREBAY_CHECK(leaf_ == SIZE_MAX);
  leaf_ = Take();
  std::ranges::fill(pool_[leaf_], 0.0F);
  return pool_[leaf_];
}

void GradientTree::Add() {
  FOREBAY_CHECK(leaf_ != SIZE_MAX);
  std::size_t node = leaf_;
  leaf_ = SIZE_MAX;
  // As many carries as the number of leaves so far has trailing ones.
  for (std::size_t carry = leaves_; (carry & 1U) != 0; carry >>= 1U) {
    const std::array<float*, 2> pair = {pool_[nodes_.back()].data(), pool_[node].data()};
    SumTree<float>(pair, count_);
    idle_.push_back(node);
    node = nodes_.back();
    nodes_.pop_back();
  }
  nodes_.push_back(node);
  ++leaves_;
}

std::span<float> GradientTree::Finish() {
  FOREBAY_CHECK(leaf_ == SIZE_MAX);
  if (nodes_.empty()) {
    nodes_.push_back(Take());
    std::ranges::fill(pool_[nodes_.back()], 0.0F);
  }
  // Smallest first: what has no right neighbour moves up as it is.
  while (nodes_.size() > 1) {
    const std::size_t right = nodes_.back();
    nodes_.pop_back();
    const std::array<float*, 2> pair = {pool_[nodes_.back()].data(), pool_[right].data()};
    SumTree<float>(pair, count_);
    idle_.push_back(right);
  }
  const std::size_t sum = nodes_.back();
  nodes_.clear();
  idle_.push_back(sum);
  leaves_ = 0;
  return pool_[sum];
}

}  // namespace forebay::train
