// LoneProber: the prober of PeerRig's node, in a job of three nodes of which it cannot probe the
// other ones. Part of forebay::peer_testing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "server/io/clock.h"
#include "server/peer/testing/peer_rig.h"
#include "server/plan/membership.h"
#include "server/probe/node_prober.h"

namespace forebay::peer {

class LoneProber {
 public:
  static constexpr std::uint32_t kNodes = 3;  // of its job

  probe::NodeProber& prober() { return prober_; }

 private:
  class NobodyAnswers final : public probe::ProbeTransport {
   public:
    void Probe(NodeRank, std::optional<NodeRank>, const probe::Gossip&, std::int64_t,
               Done done) override {
      done(Error(ErrorCode::kUnavailable, "nobody is there"));
    }
    void GiveUp(NodeRank) override {}
  };

  io::SteadyClock clock_;
  plan::Membership nodes_{PeerRig::kNode, {{.rank = NodeRank(0), .weight = 1, .identity = 1},
                                           {.rank = NodeRank(1), .weight = 1, .identity = 2},
                                           {.rank = NodeRank(2), .weight = 1, .identity = 3}}};
  NobodyAnswers nobody_;
  probe::NodeProber prober_{{.transport = nobody_,
                             .nodes = nodes_,
                             .clock = clock_,
                             .name = [](NodeRank) { return std::string("a node"); }}};
};

}  // namespace forebay::peer
