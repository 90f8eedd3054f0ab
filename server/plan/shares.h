// BalancedShares: divides the groups of a data set among the nodes of a job, so that no node gets
// much more bytes than its weight says. The hashing of OwnerTree alone gives a node with 100 groups
// 10 % more or fewer than its share, as chance will have it, and a node that cannot hold its share
// reads a part of it from the GFS again and again.
//
// The method is consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, SODA
// 2018) with random jumps (Chen, Coleman and Shrivastava, AAAI 2021): the key of a group is hashed
// again until its owner has room for the group. When the nodes of a job change, most groups stay
// where they are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "server/plan/ownership.h"

namespace forebay::plan {

struct GroupSize {
  std::uint64_t key = 0;    // of GroupKey
  std::uint64_t bytes = 0;  // of all its extents
  // Its owner is needed before all groups are known, so it keeps its key.
  bool keeps_key = false;
};

// The node that owns a group.
struct GroupShare {
  std::uint64_t key = 0;    // its ranking (OwnerTree::RankingOf) names owner and substitutes
  std::uint32_t owner = 0;  // index in the list of nodes
  bool operator==(const GroupShare&) const = default;
};

// Returns the share of each group. As long as no group keeps its key, no node gets more than its
// share of all bytes, a thirty-second of the share, and one group. The result depends on nothing
// but the arguments, and not on the order of the groups; `nodes` are those of which `tree` was
// made. Takes O(g log g) time for g groups, and O(log n) or a little more for each of them among n
// nodes.
std::vector<GroupShare> BalancedShares(const OwnerTree& tree, std::span<const Node> nodes,
                                       std::span<const GroupSize> groups);

}  // namespace forebay::plan
