// Ownership: which node reads an extent from the GFS and serves it to others, and which nodes take
// its place if it does not answer. Weighted rendezvous hashing (Thaler and Ravishankar, 1998): a
// pure function of the extent and the nodes, so losing a node moves only that node's share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/contract/ids.h"

namespace forebay::plan {

struct Node {
  NodeRank rank;
  std::uint32_t weight = 1;  // 1..limits::kNodeWeightMax, in proportion to the node's tier capacity
};

// Returns the owner of `extent` of the data set whose hash is `dataset`. Integer arithmetic only,
// so that all nodes agree whatever compiler built them. `nodes` is not empty; its order does not
// matter. Takes O(sum of weights).
NodeRank OwnerOf(std::uint64_t dataset, ExtentId extent, std::span<const Node> nodes);

// Returns all nodes in the order in which they are asked for the extent: its owner, then its
// substitutes. Removing a node leaves the order of the others. O(sum of weights + n log n).
std::vector<NodeRank> RankedOwners(std::uint64_t dataset, ExtentId extent,
                                   std::span<const Node> nodes);

}  // namespace forebay::plan
