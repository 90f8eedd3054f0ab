#include "server/plan/ownership.h"

#include <algorithm>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::plan {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every input bit reaches every
// output bit.
std::uint64_t Mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

NodeRank OwnerOf(std::uint64_t dataset, ExtentId extent, std::span<const Node> nodes) {
  FOREBAY_CHECK(!nodes.empty());
  const std::uint64_t key = Mix(dataset + 0x9E3779B97F4A7C15ULL * (extent.value() + 1ULL));
  NodeRank best_rank = nodes.front().rank;
  std::uint64_t best_score = 0;
  bool found = false;
  for (const Node& node : nodes) {
    // A node of weight w draws w tickets; the highest ticket of all wins, so its chance is
    // w / sum of weights, exactly and without logarithms.
    const std::uint32_t tickets = std::clamp(node.weight, 1U, limits::kNodeWeightMax);
    for (std::uint32_t ticket = 0; ticket < tickets; ++ticket) {
      const std::uint64_t ticket_id =
          (static_cast<std::uint64_t>(node.rank.value()) << 32) | (ticket + 1);
      const std::uint64_t score = Mix(key ^ Mix(ticket_id));
      const bool wins = !found || score > best_score ||
                        (score == best_score && node.rank < best_rank);
      if (wins) {
        best_score = score;
        best_rank = node.rank;
        found = true;
      }
    }
  }
  return best_rank;
}

}  // namespace forebay::plan
