// SingleNode: the peer transport of a job of one node. It owns every extent.
#pragma once

#include "server/fetch/peer_source.h"

namespace forebay::peer {

// Thread-safe, stateless.
class SingleNode final : public fetch::PeerSource {
 public:
  std::vector<plan::Node> Nodes() const override { return {plan::Node{self(), 1}}; }
  NodeRank self() const override { return NodeRank(0); }
  void Bring(NodeRank, std::uint64_t, ExtentId,
             std::function<void(const Status&)> done) override {
    done(Error(ErrorCode::kUnavailable, "this job has one node"));
  }
};

}  // namespace forebay::peer
