// A table of flags beside the fixed list of nodes. The flags are atomics without any order between
// them, because each is a hint of its own and nothing else is published with it.
#include "server/plan/membership.h"

#include <algorithm>
#include <utility>

#include "proto/contract/check.h"

namespace forebay::plan {

Membership::Membership(NodeRank self, std::vector<Node> nodes)
    : self_(self),
      nodes_(std::move(nodes)),
      lives_(std::make_unique<std::atomic<bool>[]>(nodes_.size())) {
  // All nodes count as alive until one does not answer. A wrong guess costs one request.
  for (std::size_t i = 0; i < nodes_.size(); ++i) lives_[i] = true;
  static_cast<void>(IndexOf(self));  // checks that this node is in the list
}

std::size_t Membership::IndexOf(NodeRank node) const {
  // A linear search: a job has tens of nodes. A node that is not in the list is a mistake of the
  // caller.
  const auto found = std::ranges::find(nodes_, node, &Node::rank);
  FOREBAY_CHECK(found != nodes_.end());
  return static_cast<std::size_t>(found - nodes_.begin());
}

bool Membership::Lives(NodeRank node) const {
  return node == self_ || lives_[IndexOf(node)].load(std::memory_order_relaxed);
}

void Membership::SetLives(NodeRank node, bool lives) {
  lives_[IndexOf(node)].store(lives, std::memory_order_relaxed);
}

std::vector<NodeRank> Membership::AskedBefore(std::uint64_t dataset, ExtentId extent) const {
  std::vector<NodeRank> asked;
  if (is_alone()) return asked;  // spares a job of one node the hashing
  // The ranking is over all nodes, dead ones too, so that it is the same on every node; only then
  // the dead ones are left out.
  for (const NodeRank node : RankedOwners(dataset, extent, nodes_)) {
    if (node == self_) break;  // the nodes after this one ask this one
    if (Lives(node)) asked.push_back(node);
  }
  return asked;
}

}  // namespace forebay::plan
