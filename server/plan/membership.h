// Membership: the nodes of the job as this node sees them, and so which extents this node reads
// from the GFS. Which nodes live is a hint: a wrong one costs a read, never a wrong sample: the
// order of a stream knows no nodes and all bytes are checked by whoever receives them.
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
  // `nodes` has distinct ranks, `self` among them. All live.
  Membership(NodeRank self, std::vector<Node> nodes);

  NodeRank self() const { return self_; }
  std::span<const Node> nodes() const { return nodes_; }
  bool is_alone() const { return nodes_.size() == 1; }

  // Whether `node`, one of the job, is thought to answer. This node always is.
  bool Lives(NodeRank node) const;
  // Set by whoever learns of it: a request that got no answer, a probe, the launcher.
  void SetLives(NodeRank node, bool lives);

  // The nodes that are asked for an extent before this node reads it from the GFS itself: those
  // that live and are ranked before this one, the owner first. Empty: this node reads it. Every
  // node computes the same ranking, so requests never go round in circles.
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
