// Rendezvous hashing: each node gets a score for the extent, and the nodes are ranked by score. A
// score depends on its own node only, so removing a node changes no other score. This is why only
// the lost node's extents move.
#include "server/plan/ownership.h"

#include <algorithm>
#include <vector>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/mix64.h"

namespace forebay::plan {
namespace {

// Consecutive extents get unrelated keys. The + 1 keeps extent 0 from having the data set's hash.
std::uint64_t KeyOf(std::uint64_t dataset, ExtentId extent) {
  return Mix64(dataset + kGolden64 * (extent.value() + 1ULL));
}

// A node of weight w draws w tickets, and the highest ticket of all nodes wins. So its chance is w
// divided by the sum of weights, exactly, and without the logarithms of the usual formula, whose
// last bit differs between libraries.
std::uint64_t HighestTicket(std::uint64_t key, const Node& node) {
  const std::uint32_t tickets = std::clamp(node.weight, 1U, limits::kNodeWeightMax);
  std::uint64_t highest = 0;
  for (std::uint32_t ticket = 0; ticket < tickets; ++ticket) {
    const std::uint64_t ticket_id =
        (static_cast<std::uint64_t>(node.rank.value()) << 32) | (ticket + 1);
    highest = std::max(highest, Mix64(key ^ Mix64(ticket_id)));
  }
  return highest;
}

struct Scored {
  std::uint64_t score = 0;
  NodeRank rank;
};

// Two scores can be equal; then the smaller rank wins, on every node.
bool Wins(const Scored& a, const Scored& b) {
  return a.score != b.score ? a.score > b.score : a.rank < b.rank;
}

}  // namespace

NodeRank OwnerOf(std::uint64_t dataset, ExtentId extent, std::span<const Node> nodes) {
  FOREBAY_CHECK(!nodes.empty());
  const std::uint64_t key = KeyOf(dataset, extent);
  Scored best{HighestTicket(key, nodes.front()), nodes.front().rank};
  for (const Node& node : nodes.subspan(1)) {
    const Scored scored{HighestTicket(key, node), node.rank};
    if (Wins(scored, best)) best = scored;
  }
  return best.rank;
}

std::vector<NodeRank> RankedOwners(std::uint64_t dataset, ExtentId extent,
                                   std::span<const Node> nodes) {
  const std::uint64_t key = KeyOf(dataset, extent);
  std::vector<Scored> scored;
  scored.reserve(nodes.size());
  for (const Node& node : nodes) scored.push_back({HighestTicket(key, node), node.rank});
  std::ranges::sort(scored, Wins);
  std::vector<NodeRank> ranked;
  ranked.reserve(scored.size());
  for (const Scored& node : scored) ranked.push_back(node.rank);
  return ranked;
}

}  // namespace forebay::plan
