// Membership: the nodes of the job as this node sees them, and so which extents this node reads
// from the GFS. Whether a node is alive is a hint. A wrong hint costs a read and never a wrong
// sample, because the order does not depend on nodes and every receiver verifies what it gets.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/ids.h"
#include "server/plan/ownership.h"

namespace forebay::plan {

// Thread-safe. The nodes and their weights are fixed for the job.
class Membership {
 public:
  // A job of one node.
  Membership() : Membership(NodeRank(0), {Node{.rank = NodeRank(0)}}) {}
  // `nodes` have distinct ranks, one of which is `self`. All are alive at first.
  Membership(NodeRank self, std::vector<Node> nodes);

  NodeRank self() const { return self_; }
  std::span<const Node> nodes() const { return nodes_; }
  bool is_alone() const { return nodes_.size() == 1; }

  // Whether `node`, a node of the job, is believed to answer. Always true for this node.
  bool Lives(NodeRank node) const;
  // To be called by whoever learns it: after a request without an answer, a probe, or the launcher.
  void SetLives(NodeRank node, bool lives);

  // Returns the nodes that are asked for an extent before this node reads it from the GFS: those
  // that are alive and ranked before this one, the owner first. Empty: this node reads it. Every
  // node computes the same ranking, so requests do not go round in circles.
  std::vector<NodeRank> AskedBefore(std::uint64_t dataset, ExtentId extent) const;
  // Whether AskedBefore is empty.
  bool Reads(std::uint64_t dataset, ExtentId extent) const {
    return is_alone() || AskedBefore(dataset, extent).empty();
  }

 private:
  std::size_t IndexOf(NodeRank node) const;

  const NodeRank self_;
  const std::vector<Node> nodes_;
  const std::unique_ptr<std::atomic<bool>[]> lives_;  // by index in nodes_
};

}  // namespace forebay::plan
