// Counts what the nodes of a job ask of each other, and what others read in place of a lost node.
// Order, steps and owners are those that the daemons compute, for jobs that are too large to run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/order.h"
#include "proto/contract/order_steps.h"
#include "server/catalog/catalog.h"
#include "server/plan/membership.h"

namespace forebay::bench {

// The nodes of a job, of equal weights. Their identities are arbitrary, as those of hosts are.
std::vector<plan::Node> NodesOf(std::uint32_t count);

// Where the samples of a data set lie, and which node supplies them. A unit is an extent or, in a
// data set of which there is no catalog, a shard.
struct Layout {
  std::vector<std::uint64_t> first_samples;  // of each unit, ascending
  std::vector<std::uint64_t> bytes;          // of each unit
  std::vector<plan::GroupShare> shares;      // of each unit
  std::uint64_t sample_count = 0;
  std::uint64_t sample_bytes = 0;

  std::uint32_t OwnerOf(std::uint64_t sample) const;
  std::uint64_t set_bytes() const;
  // By node: what it reads from the GFS and keeps.
  std::vector<std::uint64_t> BytesOfNodes(std::size_t node_count) const;
  // Groups of consecutive units.
  std::uint64_t group_count() const;
};
// Samples of one part, with the owners that the daemons of `nodes` compute (stage::GroupShares).
Layout LayoutOf(const catalog::Catalog& catalog, std::uint64_t sample_bytes,
                const plan::Membership& nodes);
// Shards that hold equally many samples, each of which is scanned by one node
// (stage::ScanGroupShares).
Layout LayoutOfShards(std::uint64_t sample_count, std::uint64_t sample_bytes,
                      std::uint64_t shard_count, const plan::Membership& nodes);

// The traffic of some consecutive steps. Rank r of the stream runs on node r.
struct Traffic {
  std::vector<double> received_bytes;    // by node, from other nodes
  std::vector<double> sent_bytes;        // by node, to other nodes
  std::vector<std::uint32_t> askers;     // by node: nodes that ask it in one step, the most
  double mean_askers = 0;                // over nodes and steps
};
Traffic TrafficOf(const Layout& layout, const Order& order, const StepPlan& plan,
                  std::uint64_t first_step, std::uint64_t steps);

// The bytes that other nodes read again when some nodes are lost at the same time.
struct Recovery {
  std::uint64_t bytes = 0;
  std::uint64_t groups = 0;
  std::vector<std::uint64_t> bytes_of_nodes;  // by node, in the place of lost ones
};
// `lost`: indices of nodes, not all of them. The substitutes are those of Membership::Ranked.
Recovery RecoveryOf(const Layout& layout, std::span<const plan::Node> nodes,
                    std::span<const std::uint32_t> lost);

}  // namespace forebay::bench
