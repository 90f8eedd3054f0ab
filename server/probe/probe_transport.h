// ProbeTransport: how NodeProber reaches the other nodes. `peer` implements it; tests do it without
// a network.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/probe/prober.h"

namespace forebay::probe {

class ProbeTransport {
 public:
  virtual ~ProbeTransport() = default;

  struct Answer {
    Gossip gossip = {};
    // With a target: whether the target has answered the helper. Without one: whether the node
    // serves; it does not while it is starting.
    bool has_answered = false;
  };
  using Done = std::function<void(const Result<Answer>&)>;
  // Probes a node, or asks it to probe `target`. Returns at once; `done` is called once, at the
  // deadline at the latest, from any thread, perhaps within this call.
  virtual void Probe(NodeRank to, std::optional<NodeRank> target, const Gossip& gossip,
                     std::int64_t deadline_ns, Done done) = 0;
  // Called when the node was found dead, and perhaps again later. Requests to it that are under
  // way, other than probes, end as if it had not answered. (With MPI, a request whose bytes have
  // begun to arrive ends when they have arrived.)
  virtual void GiveUp(NodeRank node) = 0;
};

}  // namespace forebay::probe
