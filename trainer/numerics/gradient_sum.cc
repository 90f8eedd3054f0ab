#include "trainer/numerics/gradient_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "proto/contract/check.h"
#include "trainer/comm/collectives.h"

namespace forebay::train {
namespace {

constexpr std::size_t kBlockFloats = 2048;  // fits the first cache with what it is added to

void AddTo(float* sum, const float* addend, std::size_t count) {
  for (std::size_t at = 0; at < count; ++at) sum[at] += addend[at];
}

}  // namespace

std::size_t GradientSum::Take() {
  if (idle_.empty()) {
    pool_.emplace_back(count_);
    return pool_.size() - 1;
  }
  const std::size_t taken = idle_.back();
  idle_.pop_back();
  return taken;
}

// In the tree as many as the number of gradients so far has trailing ones.
std::size_t GradientSum::Carries() const {
  if (order_ == SumOrder::kTree) {
    return static_cast<std::size_t>(std::countr_one(micro_batches_));
  }
  return micro_batches_ == 0 ? 0 : 1;
}

void GradientSum::Add(std::size_t offset, std::span<const float> piece) {
  FOREBAY_CHECK(offset <= count_ && piece.size() <= count_ - offset);
  const std::size_t carries = Carries();
  if (carries == 0) {
    if (leaf_ == SIZE_MAX) leaf_ = Take();
    std::ranges::copy(piece, pool_[leaf_].begin() + static_cast<std::ptrdiff_t>(offset));
    return;
  }
  // node 0 + (node 1 + (... + piece)): each sum takes the place of its node, and ends in the
  // largest of those nodes. What is in between stays in the first cache.
  for (std::size_t at = 0; at < piece.size(); at += kBlockFloats) {
    const std::size_t count = std::min(kBlockFloats, piece.size() - at);
    const float* addend = piece.data() + at;
    for (std::size_t carry = 1; carry <= carries; ++carry) {
      float* const node = pool_[nodes_[nodes_.size() - carry]].data() + offset + at;
      AddTo(node, addend, count);
      addend = node;
    }
  }
}

void GradientSum::AddNothing(std::size_t offset, std::size_t floats) {
  constexpr std::array<float, kBlockFloats> kZeros = {};
  for (std::size_t at = 0; at < floats; at += kBlockFloats) {
    Add(offset + at, std::span(kZeros).first(std::min(kBlockFloats, floats - at)));
  }
}

void GradientSum::Next() {
  const std::size_t carries = Carries();
  if (carries == 0) {
    // A stage without parameters has no pieces.
    nodes_.push_back(leaf_ == SIZE_MAX ? Take() : std::exchange(leaf_, SIZE_MAX));
  }
  for (std::size_t carry = 1; carry < carries; ++carry) {
    idle_.push_back(nodes_.back());
    nodes_.pop_back();
  }
  ++micro_batches_;
}

std::span<float> GradientSum::Finish() {
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
  micro_batches_ = 0;
  return pool_[sum];
}

}  // namespace forebay::train
