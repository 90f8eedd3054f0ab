// Prober: finds out which nodes of the job answer, at a cost per node that does not depend on their
// number. The protocol is SWIM (Das, Gupta, Motivala: "SWIM: Scalable Weakly-consistent
// Infection-style Process Group Membership Protocol", DSN 2002), with suspicion:
//
//  - Time is cut into periods. In each period a node probes one other node, so that it comes to all
//    of them in turn. If no answer comes in time, it asks a few helpers to probe that node, too.
//    So a single broken connection does not decide.
//  - A node that no helper reaches either is suspected. It counts as dead if it does not refute
//    that in time.
//  - News about nodes travels with probes and their answers. Each node passes a piece of news on a
//    number of times that grows with the logarithm of the number of nodes; then very probably all
//    nodes have heard it.
//  - Each node has an incarnation number, which it alone raises. A node that hears that it is
//    suspected or dead raises its number above the one in that news and sends it: this refutes the
//    news, and all other news about lower numbers.
//
// The result is a hint, as everything that plan::Membership knows: a wrong one costs reads. This
// class has the protocol alone: it sends nothing, and has no clock and no thread (NodeProber has
// them). So tests run it for thousands of nodes in a simulated network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/order_permutation.h"

namespace forebay::probe {

enum class NodeState : std::uint8_t { kAlive = 0, kSuspected = 1, kDead = 2 };

// A statement about a node, which had this incarnation when the statement was made.
struct News {
  NodeRank node = NodeRank(0);
  NodeState state = NodeState::kAlive;
  std::uint64_t incarnation = 0;
  bool operator==(const News&) const = default;
};

// The part that a probe and its answer have in common.
struct Gossip {
  std::uint64_t incarnation = 0;  // of the sender
  std::vector<News> news = {};    // at most limits::kGossipNewsMax
};

struct ProberSettings {
  NodeRank self = NodeRank(0);
  std::size_t node_count = 1;  // ranks 0 to node_count - 1
  std::vector<NodeRank> free = {};  // places without a node; not `self`
  std::int64_t period_ms = 1000;
  // A suspected node counts as dead after this time. In a job of more than ten nodes it has
  // log10(node_count) times as long, because the news and its refutation need more time there. The
  // time is doubled if this node reaches no other node when it is over.
  std::int64_t suspicion_ms = 5000;
  std::uint64_t seed = 0;  // of the order in which nodes are probed
};

// Not thread-safe. Times are in milliseconds of any clock that does not go back.
class Prober {
 public:
  explicit Prober(const ProberSettings& settings);

  // A probe that is to be sent to `to`. With a target, `to` is a helper, which probes the target
  // and reports whether the target has answered.
  struct Probe {
    NodeRank to = NodeRank(0);
    std::optional<NodeRank> target = {};
    // The number of the period. 0: nobody is suspected because the probe is missed.
    std::uint64_t round = 0;
    Gossip gossip = {};
    bool is_refutation = false;  // as of Answered
  };

  // Begins a period, and chooses whom to probe. Call it once in each period_ms. If more than two
  // periods have passed since the last call, this process stood still, and suspected nodes get that
  // time in addition.
  std::vector<Probe> BeginPeriod(std::int64_t now_ms);
  // The node answered in time. `has_answered` is that of ProbeTransport::Answer. If the answer says
  // that this node is suspected or dead, a probe is returned that refutes this at once. A node
  // whose link is back after a while takes all others for dead, and so it learns that they live.
  std::vector<Probe> Answered(const Probe& probe, const Gossip& answer, bool has_answered,
                              std::int64_t now_ms);
  // No answer came in time. Returns probes that ask helpers, or nothing. It has no effect when the
  // period of the probe is over.
  std::vector<Probe> Missed(const Probe& probe, std::int64_t now_ms);

  // Takes the news of a probe that came from another node, and returns those for its answer.
  Gossip Hear(NodeRank from, const Gossip& gossip, std::int64_t now_ms);
  // Returns the news for a probe that this node sends as a helper, to the target.
  Gossip GossipFor(NodeRank to);

  // Puts the node on the list of those that are probed in every second period, one after the other.
  // No effect on a dead node.
  void Doubt(NodeRank node);
  // Another node has taken the place, which was free, or whose node is dead, or will be found dead.
  // It is probed in the next period, so it hears that it counts as dead, and refutes that. If it
  // does not answer, it is probed in some more periods, and then in turn with other dead nodes.
  void Occupy(NodeRank node);
  // If every node probed a node that is lost, a large job would flood it with probes. Returns
  // whether this node may probe it now: always in a job of up to 64 nodes, and with a probability
  // of 64 / node_count in a larger one.
  bool IsOwnTurn();

  NodeState state(NodeRank node) const { return nodes_[node.value()].state; }
  std::uint64_t incarnation() const { return nodes_[self_].incarnation; }
  // The nodes that were found dead, or are dead no longer, since the last call.
  std::vector<News> TakeChanges();

 private:
  struct Known {
    NodeState state = NodeState::kAlive;
    // Nobody has taken the place: then it is not counted among the dead nodes, and not probed.
    bool is_free = false;
    std::uint64_t incarnation = 0;
  };
  // A node of which there are news that this node passes on.
  struct Topic {
    std::size_t node;
    std::size_t sent = 0;  // with how many messages
  };
  struct Suspicion {
    std::size_t node;
    std::uint64_t incarnation;
    std::int64_t until_ms;
    bool is_extended = false;
  };
  // A node that has taken a place, and how often it was probed since.
  struct Arrival {
    std::size_t node;
    std::size_t probes = 0;
  };
  // The probe of this period, as long as its outcome is open.
  struct Round {
    std::uint64_t number = 0;
    std::optional<std::size_t> target;  // reset when it has answered, or is suspected
    std::size_t helpers = 0;            // whose report is still missing
  };

  void Learn(News news, std::int64_t now_ms);
  void LearnAboutSelf(const News& news);
  void Believe(const News& news, std::int64_t now_ms);
  void PassOn(std::size_t node);
  void SuspectTarget(std::int64_t now_ms);
  void HelperFailed(std::int64_t now_ms);
  void EndSuspicions(std::int64_t now_ms);
  std::optional<std::size_t> NextToProbe();
  std::optional<std::size_t> NextDead();
  std::vector<std::size_t> NextArrivals();
  std::vector<std::size_t> ChooseOthers(std::size_t count, std::optional<std::size_t> except);
  News NewsOf(std::size_t node) const;

  const std::size_t self_;
  const std::int64_t period_ms_;
  const std::int64_t suspicion_ms_;
  const std::size_t sends_max_;  // of each piece of news
  std::uint64_t random_;              // state of NextWord64
  std::vector<Known> nodes_;          // by rank
  KeyedPermutation order_;            // of all nodes, in which they are probed
  std::size_t next_in_order_ = 0;
  std::vector<std::size_t> doubted_;  // to be probed first
  std::size_t next_dead_ = 0;         // rank at which the search for a dead node goes on
  std::size_t dead_count_ = 0;        // without free places
  std::deque<Arrival> arrivals_;      // each node once
  std::uint64_t periods_ = 0;
  std::optional<std::int64_t> began_ms_;  // of the last period
  Round round_;
  std::size_t missed_in_a_row_ = 0;  // nodes that were alive until they did not answer
  std::vector<Suspicion> suspicions_;
  std::vector<Topic> topics_;
  std::vector<News> changes_;
};

}  // namespace forebay::probe
