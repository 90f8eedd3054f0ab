// NodeEntry: what one daemon tells the others of its job about itself before they talk to each
// other; and the checks that a list of entries has to pass before a job may use it.
//
// A job has a place for each rank. A place keeps what decides which groups it owns; the node in it
// may be replaced by another one while the job runs, and a place may be free, that is, without a
// node.
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
  NodeIdentity identity;  // of the node that is in the place now
  // By this identity the place owns groups: that of its first node, also when another node has
  // taken the place. Its job is that of `identity`.
  NodeIdentity place;
  NodeRank rank;
  HostPort address;  // where the node's daemon listens for other nodes; port 0: the place is free
  // The tiers of the first node together have so many bytes; see NodeWeights.
  std::uint64_t capacity_bytes = 0;
  std::uint64_t nonce = 0;  // drawn at random by the first daemon at its start; tells daemons apart
  // At most limits::kAgreedValuesMax, in the same order on all nodes.
  std::vector<AgreedValue> agreed = {};

  // Whether nobody has taken the place yet.
  bool is_free() const { return address.port == 0; }
  // For messages: "node17:/local/forebay (job 4711) (rank 3)".
  std::string Text() const;
  bool operator==(const NodeEntry&) const = default;
};

// Checks the entries of a job, which are sorted by rank: each rank from 0 to node_count - 1 occurs
// once; identities, places and addresses differ; all are of the same job and have equal agreed
// values. kFailedPrecondition names two nodes and the values in which they clash, or the ranks that
// are missing.
Status CheckNodeList(std::span<const NodeEntry> nodes, std::uint32_t node_count);

// Appends `count` free places to `nodes`, the nodes of a job, at least one, sorted by rank. A free
// place has the capacity of the smallest node. It follows from `nodes` alone, so all nodes compute
// the same. kInvalidArgument: the job would have more than limits::kNodeCountMax places.
Result<std::vector<NodeEntry>> WithFreePlaces(std::vector<NodeEntry> nodes, std::uint32_t count);

// The entry of `place` when `node` is in it: identity and address are the node's.
NodeEntry TakePlace(const NodeEntry& place, const NodeEntry& node);

// Checks an entry that another node has made by TakePlace, before it replaces that of its rank in
// `nodes`, which are sorted by rank. kFailedPrecondition: there is no such rank, what is fixed for
// the place differs, or the node has the identity or the address of another one, which is named.
Status CheckMayTake(std::span<const NodeEntry> nodes, const NodeEntry& taken);

// Checks whether `node` has room for the share of `place`: at least 31/32 of its capacity, because
// nodes of one type differ a little. Also compares the agreed values. kFailedPrecondition says in
// what they differ.
Status CheckRoom(const NodeEntry& place, const NodeEntry& node);

// Returns the node that a user calls `name`: by its rank, its address, its host, or as messages
// name it. kNotFound: there is none; kInvalidArgument: there are several, such as two on one host.
// A free place has no address.
Result<NodeRank> FindNode(std::span<const NodeEntry> nodes, std::string_view name);

// The ranks below `node_count` that `nodes`, sorted by rank, lack, as text: "3, 7 to 9, ..." with
// at most eight parts.
std::string MissingRanks(std::span<const NodeEntry> nodes, std::uint32_t node_count);

// The weights of the nodes for plan::Node, 1 to limits::kNodeWeightMax, by index in `nodes`. The
// largest capacity of the job gets the largest weight, and others get weights in proportion,
// rounded. Integers only: every node computes the same.
std::vector<std::uint32_t> NodeWeights(std::span<const NodeEntry> nodes);

}  // namespace forebay::rendezvous
