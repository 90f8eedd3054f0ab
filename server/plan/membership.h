// Membership: the nodes of the job as this node sees them, and so which groups of extents this
// node reads from the GFS. Whether a node is alive is a hint. A wrong hint costs a read and never a
// wrong sample, because the order does not depend on nodes and every receiver verifies what it
// gets.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "proto/contract/ids.h"
#include "server/plan/ownership.h"
#include "server/plan/shares.h"

namespace forebay::plan {

enum class YieldReason : std::uint8_t {
  kSlowGfs,  // its GFS is much slower than that of others
  kArrives,  // it has joined the job, and gets its share from the nodes that have it
};

// Thread-safe. The nodes and their weights are fixed for the job.
class Membership {
 public:
  // A job of one node.
  Membership() : Membership(NodeRank(0), {Node{.rank = NodeRank(0)}}) {}
  // `nodes` have distinct ranks, one of which is `self`. All are alive at first.
  Membership(NodeRank self, std::vector<Node> nodes);

  NodeRank self() const { return nodes_[self_].rank; }
  std::uint64_t self_identity() const { return nodes_[self_].identity; }
  std::span<const Node> nodes() const { return nodes_; }
  bool is_alone() const { return nodes_.size() == 1; }

  // Whether `node`, a node of the job, is believed to answer. Always true for this node.
  bool Lives(NodeRank node) const { return LivesAt(IndexOf(node)); }
  // To be called by whoever learns it: after a request without an answer, a probe, or the launcher.
  void SetLives(NodeRank node, bool lives);
  // From now on the node counts as not alive. As long as it rests, that is, before `until_ns`,
  // nobody is to use it: whoever calls SetLives(node, true) looks at IsResting afterwards.
  void Rest(NodeRank node, std::int64_t until_ns);
  static constexpr std::int64_t kForEver = std::numeric_limits<std::int64_t>::max();
  bool IsResting(NodeRank node, std::int64_t now_ns) const;
  // Another machine has this rank now, so the rest of the one before is over. Whether the node is
  // alive stays as it is.
  void EndRest(NodeRank node);
  bool RestsForEver(NodeRank node) const { return RestEnd(IndexOf(node)) == kForEver; }
  // Whether `node` leaves the job: it still answers, but the nodes after it in the rankings take
  // its place already, and get from it what it has (FirstSource). No effect for this node itself.
  void SetLeaves(NodeRank node, bool leaves);
  // Whether this node yields, for any reason. Then it asks the nodes after it in the rankings for
  // what it would read, and refuses at once to supply what it does not have, so that those nodes
  // read it.
  void SetYields(YieldReason reason, bool yields);
  bool Yields() const { return yields_.load(std::memory_order_relaxed) != 0; }
  bool YieldsFor(YieldReason reason) const {
    return (yields_.load(std::memory_order_relaxed) & BitOf(reason)) != 0;
  }

  // Divides the groups of a data set evenly among the nodes, whether they are alive or not
  // (plan::BalancedShares). The owners are indices in nodes().
  std::vector<GroupShare> BalancedShares(std::span<const GroupSize> groups) const {
    return plan::BalancedShares(owners_, nodes_, groups);
  }
  // All nodes in the order in which they are asked for a group, of which GroupKey gives the key;
  // also those that are not alive. The owner is the first.
  std::vector<NodeRank> Ranked(std::uint64_t group_key) const;
  // Returns the node that is to be asked for a group before this node reads it from the GFS: the
  // first one of the ranking that is alive, stays, and is not among `asked`. Nullopt if no such
  // node comes before this one: then this node reads the group. Every node computes the same
  // ranking and asks only nodes before itself, so requests do not go round in circles.
  std::optional<NodeRank> FirstToAsk(std::uint64_t group_key,
                                     std::span<const NodeRank> asked = {}) const;
  // Returns the node that is to be asked for rows of a group: FirstToAsk, or if this node reads the
  // group and yields, NextSubstitute.
  std::optional<NodeRank> FirstSupplier(std::uint64_t group_key,
                                        std::span<const NodeRank> asked = {}) const;
  // Returns the node that is to be asked for an extent of a group: FirstToAsk, or if this node
  // reads the group, the first one before it that leaves, is alive and not among `asked`, or else
  // FirstSupplier.
  std::optional<NodeRank> FirstSource(std::uint64_t group_key,
                                      std::span<const NodeRank> asked = {}) const;
  // Returns the node that would read the group from the GFS if this one and those in `asked` died:
  // the next one after it in the ranking that is alive, stays, and is not among `asked`. Nullopt if
  // there is none.
  std::optional<NodeRank> NextSubstitute(std::uint64_t group_key,
                                         std::span<const NodeRank> asked = {}) const;
  // Whether this node reads the group from the GFS: it is the first of the ranking that is alive
  // and stays.
  bool Reads(std::uint64_t group_key) const {
    return is_alone() || !FirstToAsk(group_key).has_value();
  }
  // Whether this node reads the group only because another one leaves, from which it can get it. A
  // node that rests and comes back keeps its place: if it is the one before, nothing moves here.
  bool TakesOver(std::uint64_t group_key, std::int64_t now_ns) const;
  // Whether `node` comes after this one in the group's ranking. Only a node that yields asks such a
  // node, which may in turn ask this one.
  bool IsBehind(std::uint64_t group_key, NodeRank node) const;
  // Whether this node reads a group from the GFS, of which the owner is known. Hashes nothing as
  // long as the owner serves.
  bool Reads(const GroupShare& group) const {
    if (group.owner == self_) return true;
    return !ServesAt(group.owner) && Reads(group.key);
  }

 private:
  static constexpr std::uint8_t BitOf(YieldReason reason) {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(reason));
  }
  std::size_t IndexOf(NodeRank node) const;
  bool LivesAt(std::size_t index) const;
  bool LeavesAt(std::size_t index) const;
  std::int64_t RestEnd(std::size_t index) const { return rests_until_ns_[index].load(); }
  bool ServesAt(std::size_t index) const { return LivesAt(index) && !LeavesAt(index); }
  // The first node of the ranking before this one that is alive, not among `asked`, and leaves or
  // not.
  std::optional<NodeRank> FirstBefore(std::uint64_t group_key, std::span<const NodeRank> asked,
                                      bool leaves) const;

  const std::vector<Node> nodes_;
  const OwnerTree owners_;
  const std::unordered_map<NodeRank, std::size_t, IdHash> indexes_;  // in nodes_
  const std::size_t self_;                            // index in nodes_
  // By index in nodes_.
  const std::unique_ptr<std::atomic<bool>[]> lives_;
  const std::unique_ptr<std::atomic<std::int64_t>[]> rests_until_ns_;
  const std::unique_ptr<std::atomic<bool>[]> leaves_;
  std::atomic<std::uint8_t> yields_ = 0;  // this node: a bit for each reason
};

}  // namespace forebay::plan
