// NodeProber: runs the protocol of Prober for a daemon, and tells plan::Membership which nodes this
// daemon is to use. That may differ from what the protocol says: a node that did not answer a
// request of this node is not used by it, although other nodes reach it. It is used again only when
// it has answered a probe of this node and says that it serves.
//
//   NodeProber prober({.transport = peers, .nodes = membership, .clock = clock, ...});
//   prober.Tick();  // about once a second
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/plan/membership.h"
#include "server/probe/probe_transport.h"
#include "server/probe/prober.h"

namespace forebay::probe {

// All are borrowed.
struct NodeProberParts {
  ProbeTransport& transport;
  plan::Membership& nodes;
  io::Clock& clock;
  std::function<std::string(NodeRank)> name;  // of a node, for the log
  std::uint64_t seed = 0;
  std::int64_t period_ms = 1000;      // of the protocol
  // A probe without an answer after this time is missed. A helper has 4/5 of the rest of the period
  // for its report, and its own probe takes half of that rest at most.
  std::int64_t answer_ms = 500;
  std::int64_t suspicion_ms = 5000;   // as of ProberSettings
  std::vector<NodeRank> free = {};    // places that no node has taken; they are not used
};

// Thread-safe. No mutex is held while the transport is called. The transport must have ended all
// probes before this object is destroyed.
class NodeProber {
 public:
  explicit NodeProber(const NodeProberParts& parts);

  // Begins a period of the protocol, if the last one is over. Also probes some of the nodes that
  // are not used because they did not answer a request of this node.
  void Tick();

  // The launcher says that the daemon of a node has ended, and `how`. It may live on, so this is a
  // hint like a request without an answer: the node is not used until it answers a probe.
  void HearLoss(NodeRank node, std::string_view how);

  // A node has taken the place, which was free, or whose node is lost. It is not used until it
  // answers a probe, which the next Tick sends (Prober::Occupy).
  void Occupy(NodeRank node);

  // Answers the probe of another node.
  Gossip Hear(NodeRank from, const Gossip& gossip);
  // Probes `target` for another node, as its helper. `done` gets the report for that node; it is
  // called once, perhaps within this call.
  void ProbeFor(NodeRank from, const Gossip& gossip, NodeRank target,
                std::function<void(const ProbeTransport::Answer&)> done);

  NodeState state(NodeRank node);
  std::size_t node_count() const { return parts_.nodes.nodes().size(); }

 private:
  void Send(Prober::Probe probe);
  void Ended(const Prober::Probe& probe, const Result<ProbeTransport::Answer>& answer);
  std::vector<Prober::Probe> ProbesOfSilentLocked() FOREBAY_REQUIRES(mutex_);
  std::vector<News> TakeChangesLocked() FOREBAY_REQUIRES(mutex_);
  void Announce(const std::vector<News>& changes);
  std::int64_t NowMs() const { return parts_.clock.NowNs() / 1'000'000; }

  const NodeProberParts parts_;
  Mutex mutex_;
  Prober prober_ FOREBAY_GUARDED_BY(mutex_);
  std::int64_t next_ms_ FOREBAY_GUARDED_BY(mutex_) = 0;     // when the next period may begin
  std::size_t next_silent_ FOREBAY_GUARDED_BY(mutex_) = 0;  // rank at which the search goes on
};

}  // namespace forebay::probe
