// NodeEntry: what one daemon tells the others of its job about itself before they talk to each
// other; and the checks that a list of entries has to pass before a job may use it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/rendezvous/host_port.h"
#include "server/rendezvous/node_identity.h"

namespace forebay::rendezvous {

// Something in which all nodes must agree, such as {"protocol version", "1"} or
// {"configuration", "9f3c52d07a61b8e4"}. Errors show both texts.
struct AgreedValue {
  std::string name;
  std::string value;
  bool operator==(const AgreedValue&) const = default;
};

struct NodeEntry {
  NodeIdentity identity;
  NodeRank rank;
  HostPort address;  // where the node's daemon listens for other nodes
  std::uint64_t capacity_bytes = 0;  // of its tiers together; see NodeWeights
  std::uint64_t nonce = 0;  // drawn at random by the daemon at its start; tells daemons apart
  // At most limits::kAgreedValuesMax, in the same order on all nodes.
  std::vector<AgreedValue> agreed = {};

  // For messages: "node17:/local/forebay (job 4711) (rank 3)".
  std::string Text() const;
  bool operator==(const NodeEntry&) const = default;
};

// Checks the entries of a job, which are sorted by rank: each rank from 0 to node_count - 1 occurs
// once; identities and addresses differ; all are of the same job and have equal agreed values.
// kFailedPrecondition names two nodes and the values in which they clash, or the ranks that are
// missing.
Status CheckNodeList(std::span<const NodeEntry> nodes, std::uint32_t node_count);

// Returns the node that a user calls `name`: by its rank, its address, its host, or as messages
// name it. kNotFound: there is none; kInvalidArgument: there are several, such as two on one host.
Result<NodeRank> FindNode(std::span<const NodeEntry> nodes, std::string_view name);

// The ranks below `node_count` that `nodes`, sorted by rank, lack, as text: "3, 7 to 9, ..." with
// at most eight parts.
std::string MissingRanks(std::span<const NodeEntry> nodes, std::uint32_t node_count);

// The weights of the nodes for plan::Node, 1 to limits::kNodeWeightMax, by index in `nodes`. The
// largest capacity of the job gets the largest weight, and others get weights in proportion,
// rounded. Integers only: every node computes the same.
std::vector<std::uint32_t> NodeWeights(std::span<const NodeEntry> nodes);

}  // namespace forebay::rendezvous
