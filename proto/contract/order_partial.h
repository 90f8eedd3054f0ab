// PartialOrder: mode partial(b, M, q, B) of OrderSpec version 2 (docs/order.md, section 4), after
// Nguyen et al., "Why Globally Re-shuffle? Revisiting Data Shuffling in Large Scale Deep Learning",
// IPDPS 2022.
//
// Each of M canonical nodes has a home share of the samples, the same in all epochs. In an epoch
// it reads its share in random order, but for a fraction q of it, which the nodes exchange. Part c
// of each global batch is node c's, so a node stores (1 + q) / M of the data set at most.
#pragma once

#include <cstdint>
#include <span>

#include "proto/contract/order_divider.h"
#include "proto/contract/order_permutation.h"

namespace forebay {

struct PartialOrderOptions {
  std::uint64_t sample_count = 0;         // n: [1, 2^40]
  std::uint64_t run_samples = 0;          // b: [1, 2^40]; a home share is made of such runs
  std::uint64_t canonical_nodes = 0;      // M: [1, n], divides B
  std::uint64_t global_batch = 0;         // B: [1, 2^20]
  std::uint64_t exchange_millionths = 0;  // q: [0, 10^6]
  std::uint64_t home_key = 0;             // shares out the runs; the same in all epochs
  std::uint64_t draws_key = 0;            // of the epoch: the order of each share, for the exchange
  std::uint64_t exchange_key = 0;         // of the epoch: which node gets which exchanged sample
  std::uint64_t lists_key = 0;            // of the epoch: the order in which each node reads
};

// An immutable value of about 650 bytes for any number of nodes: a share's permutation is derived
// from its key when it is needed. Thread-safe; constant time; allocates nothing. Arguments are
// below n.
class PartialOrder {
 public:
  explicit PartialOrder(const PartialOrderOptions& options);

  std::uint64_t Forward(std::uint64_t position) const;
  std::uint64_t Inverse(std::uint64_t index) const;
  // Sets indices[i] = Forward(first + i). Faster than single calls where B / M positions, which one
  // node has in a step, are many.
  void Forward(std::uint64_t first, std::span<std::uint64_t> indices) const;
  // In place: an index becomes its position. Faster than single calls if neighbours in `values` are
  // neighbours in the data set, as the samples of an extent are.
  void Inverse(std::span<std::uint64_t> values) const;

 private:
  // Cuts [0, total) into M parts, whose lengths differ by one at most.
  class Parts {
   public:
    // `total` may be 0 if Of is not called.
    Parts(std::uint64_t total, std::uint64_t count);
    std::uint64_t Begin(std::uint64_t part) const {
      return by_count_.Divide(total_ * part).quotient;
    }
    std::uint64_t Length(std::uint64_t part) const { return Begin(part + 1) - Begin(part); }
    // The part that `place`, below the total, lies in.
    std::uint64_t Of(std::uint64_t place) const {
      return by_total_.Divide((place + 1) * count_ - 1).quotient;
    }

   private:
    std::uint64_t total_;
    std::uint64_t count_;
    InvariantDivider by_count_;
    InvariantDivider by_total_;
  };
  struct Group;
  enum class Direction { kForward, kInverse };

  void ForwardGroup(std::uint64_t first, std::span<std::uint64_t> indices) const;
  void InverseGroup(std::span<std::uint64_t> values) const;
  // Permute the places of a group: each within its node's share, or those that are exchanged among
  // all nodes.
  void PermuteWithinShares(Group& group, std::uint64_t key, Direction direction) const;
  void Exchange(Group& group, Direction direction) const;
  // Replaces indices by their places in the home order, or places by their indices.
  void PermuteRuns(std::span<std::uint64_t> values, Direction direction) const;
  const FeistelShape& ShapeOf(std::uint64_t node) const;

  std::uint64_t global_batch_;
  std::uint64_t part_samples_;    // of a full step: B / M
  std::uint64_t full_steps_;      // n / B
  std::uint64_t run_samples_;     // b, at most n
  std::uint64_t full_run_end_;    // samples of full runs; the short last run begins here
  std::uint64_t draws_key_;
  std::uint64_t lists_key_;
  std::uint64_t exchanged_;       // K
  Parts shares_;                  // of n
  Parts pool_;                    // of K
  Parts last_step_;               // of n mod B
  InvariantDivider by_global_batch_;
  InvariantDivider by_part_samples_;
  InvariantDivider by_run_samples_;
  FeistelShape small_share_;      // of n / M samples
  FeistelShape large_share_;      // of one more
  KeyedPermutation runs_;         // of the full runs
  KeyedPermutation exchange_;     // of the pool
};

}  // namespace forebay
