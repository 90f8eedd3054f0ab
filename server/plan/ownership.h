// Ownership: which node reads an extent from the GFS and serves it to peers. Weighted
// rendezvous hashing (Thaler and Ravishankar, 1998): a pure function of the extent and the live
// nodes, so losing a node moves only that node's share.
#pragma once

#include <cstdint>
#include <span>

#include "proto/contract/ids.h"

namespace forebay::plan {

struct Node {
  NodeRank rank;
  std::uint32_t weight = 1;  // 1..limits::kNodeWeightMax, in proportion to the node's tier capacity
};

// The owner of `extent` of the data set whose hash is `dataset`. Integer arithmetic only, so
// all nodes agree whatever they were compiled with. `nodes` is not empty; their order does not
// matter. O(sum of weights).
NodeRank OwnerOf(std::uint64_t dataset, ExtentId extent, std::span<const Node> nodes);

}  // namespace forebay::plan
