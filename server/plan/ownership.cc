#include "server/plan/ownership.h"

#include <algorithm>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/mix64.h"

namespace forebay::plan {

NodeRank OwnerOf(std::uint64_t dataset, ExtentId extent, std::span<const Node> nodes) {
  FOREBAY_CHECK(!nodes.empty());
  const std::uint64_t key = Mix64(dataset + kGolden64 * (extent.value() + 1ULL));
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
      const std::uint64_t score = Mix64(key ^ Mix64(ticket_id));
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
