// Copies of extents that other nodes of the job keep. What a node has a copy of it need not ask
// others for, so copies make use of tiers that are larger than a node's share.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/contract/ids.h"

namespace forebay::stage {

// The remote extents in the order in which this node copies them. Which samples a node reads
// changes with every epoch of a random order, so one extent is as good as another; the order is
// random, and another one on each node (`node_identity`, plan::Node), so that all extents have
// about the same number of copies and no owner is asked by all nodes at once.
std::vector<ExtentId> CopyOrder(const std::vector<bool>& remote, std::uint64_t node_identity);

}  // namespace forebay::stage
