// ShareLeases: decides which of two nodes has the share that a node has of the job's caps on the
// GFS: the node itself, its owner, or once that is lost, its heir. This class has no clock, no
// thread and no network: times are arguments.
//
// A node that does not answer may only be cut off, and still use its share. So it has the share for
// a limited time (kLeaseNs), which its witnesses, the next kWitnesses nodes in the order of ranks,
// extend when it asks them. The answer of one of them is enough for the owner. The heir, the first
// witness, needs the lease of all of them. A witness never grants the lease to one of the two
// before that of the other has ended, and both count from the moment at which they asked, which is
// earlier. So owner and heir never have the share at the same time, whatever each of them believes
// about other nodes, and whatever messages are lost or late. The price: if a witness of a lost node
// does not answer either, nobody has the share; and a node that reaches none of its witnesses loses
// its own. In a job of two nodes every node has its share for ever, because two nodes cannot find
// out which of them is cut off.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "proto/contract/ids.h"

namespace forebay::stage {

// Not thread-safe.
class ShareLeases {
 public:
  // Longer than a node is suspected (nodes.suspicion_s) in a small job, so that the heir of a lost
  // node does not wait for the lease alone. Much longer than kLoanNs of CapShare, because what a
  // node lends must end before its lease does.
  static constexpr std::int64_t kLeaseNs = 8'000'000'000;
  static constexpr std::uint32_t kWitnesses = 3;

  // `has_returned`: this daemon takes the place of a killed one, whose promises it does not know.
  ShareLeases(std::uint32_t node_count, NodeRank self, bool has_returned, std::int64_t now_ns);

  // This node has its share before this time.
  std::int64_t own_end_ns() const;
  // This node has the share of `ward` before this time.
  std::int64_t ward_end_ns() const;
  // The node whose heir this one is: the one before it.
  NodeRank ward() const { return After(self_, node_count_ - 1); }

  struct Ask {
    NodeRank witness = NodeRank(0);
    NodeRank share = NodeRank(0);  // of the lease that is asked for
  };
  // Call about once a second. Returns whom to ask now. `lives` says which nodes answer, as far as
  // this node knows.
  std::vector<Ask> Tick(std::int64_t now_ns, const std::function<bool(NodeRank)>& lives);
  // `holder` asks this node, as a witness, for the lease of `share`. False: it does not get it.
  bool Grant(NodeRank holder, NodeRank share, std::int64_t now_ns);
  // `witness` has granted the lease of `share` to this node, which asked for it at `asked_ns`.
  void Granted(NodeRank witness, NodeRank share, std::int64_t asked_ns);

 private:
  // What this node, as a witness, has promised about a share.
  struct Promise {
    std::int64_t owner_asked_ns = 0;
    std::int64_t heir_end_ns = 0;
  };
  using Ends = std::array<std::int64_t, kWitnesses>;

  NodeRank After(NodeRank node, std::uint32_t distance) const {
    return NodeRank((node.value() + distance) % node_count_);
  }
  std::uint32_t Distance(NodeRank from, NodeRank to) const {
    return (to.value() + node_count_ - from.value()) % node_count_;
  }
  // `distance` from the share's owner to a node: whether that is a witness.
  bool IsWitness(std::uint32_t distance) const { return distance >= 1 && distance <= witnesses_; }

  const std::uint32_t node_count_;
  const NodeRank self_;
  const std::uint32_t witnesses_;  // of each share
  // By distance from the owner of the share to the witness, less 1.
  std::array<Promise, kWitnesses> promises_;  // this node is the witness
  Ends own_ends_ = {};                        // what the witnesses have granted
  Ends ward_ends_ = {};
  std::uint32_t next_witness_ = 0;  // of this node's share
};

}  // namespace forebay::stage
