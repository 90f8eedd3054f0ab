// Prober: finds out which nodes of the job answer, at a cost per node that does not depend on their
// number. The protocol is SWIM (Das, Gupta, Motivala: "SWIM: Scalable Weakly-consistent
// Infection-style Process Group Membership Protocol", DSN 2002), with suspicion:
//
//  - In each period a node probes one other node, so that it comes to all of them in turn. If no
//    answer comes in time, it asks a few helpers to probe that node, too: then it is not the
//    connection of these two nodes alone that decides.
//  - A node that answers neither is suspected. It counts as dead if it does not object in time.
//  - News about nodes travel with probes and their answers. Each is passed on a number of times
//    that grows with the logarithm of the number of nodes; then all have heard it, very probably.
//  - Each node has an incarnation, a number that it alone raises: a node that hears that it is
//    suspected or dead raises it and says so. That outweighs what was said about the number before.
//
// What comes out is a hint, as everything that plan::Membership knows: a wrong one costs reads.
// This class holds the protocol alone: it sends nothing, and has no clock and no thread (NodeProber
// does). So tests run it for thousands of nodes in a simulated network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/order_permutation.h"

namespace forebay::probe {

enum class NodeState : std::uint8_t { kAlive = 0, kSuspected = 1, kDead = 2 };

// What somebody says about a node, which had this incarnation then.
struct News {
  NodeRank node = NodeRank(0);
  NodeState state = NodeState::kAlive;
  std::uint64_t incarnation = 0;
  bool operator==(const News&) const = default;
};

// What a probe and its answer carry.
struct Gossip {
  std::uint64_t incarnation = 0;  // of the sender
  std::vector<News> news = {};    // at most limits::kGossipNewsMax
};

struct ProberSettings {
  NodeRank self = NodeRank(0);
  std::size_t node_count = 1;  // ranks 0 to node_count - 1
  std::int64_t period_ms = 1000;
  // A suspected node counts as dead after this time; in a job of more than ten nodes after
  // log10(node_count) times as long, because news of it and its objection need time that grows so.
  std::int64_t suspicion_ms = 5000;
  std::uint64_t seed = 0;  // of the order in which nodes are probed
};

// Not thread-safe. Times are in milliseconds of any clock that does not go back.
class Prober {
 public:
  explicit Prober(const ProberSettings& settings);

  // A probe that is to be sent to `to`. With a target, `to` is to probe that node and to tell
  // whether it has answered.
  struct Probe {
    NodeRank to = NodeRank(0);
    std::optional<NodeRank> target = {};
    std::uint64_t round = 0;  // of the period; 0: its failure does not count
    Gossip gossip = {};
  };

  // Begins a period, and chooses whom to probe. Call it once in each period_ms. If more than two
  // periods have passed since the last call, this process stood still, and suspected nodes get that
  // time in addition.
  std::vector<Probe> BeginPeriod(std::int64_t now_ms);
  // The node answered in time. With a target, `has_answered` says whether the target has.
  void Answered(const Probe& probe, const Gossip& answer, bool has_answered, std::int64_t now_ms);
  // No answer came in time. Returns probes that ask helpers, or nothing. It has no effect when the
  // period of the probe is over.
  std::vector<Probe> Missed(const Probe& probe, std::int64_t now_ms);

  // Takes the news of a probe that came from another node, and returns those for its answer.
  Gossip Hear(NodeRank from, const Gossip& gossip, std::int64_t now_ms);
  // What to send to a node that is probed for another one (Probe::target).
  Gossip GossipFor(NodeRank to);

  // The node is to be probed soon: a request to it got no answer.
  void Doubt(NodeRank node);

  // Whether this node is one of those that probe a node now which all nodes would probe otherwise.
  // Always in a job of up to 64 nodes, and at random in a larger one.
  bool IsOwnTurn();

  NodeState state(NodeRank node) const { return nodes_[node.value()].state; }
  std::uint64_t incarnation() const { return nodes_[self_].incarnation; }
  // The nodes that were found dead, or alive after that, since the last call.
  std::vector<News> TakeChanges();

 private:
  struct Known {
    NodeState state = NodeState::kAlive;
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
  // The period's probe.
  struct Round {
    std::uint64_t number = 0;
    std::optional<std::size_t> target;  // node that was probed, if nothing is known of it yet
    std::size_t helpers = 0;            // that were asked, and have not told
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
  std::size_t dead_count_ = 0;
  std::uint64_t periods_ = 0;
  std::optional<std::int64_t> began_ms_;  // of the last period
  Round round_;
  std::size_t missed_in_a_row_ = 0;  // nodes that were alive until they did not answer
  std::vector<Suspicion> suspicions_;
  std::vector<Topic> topics_;
  std::vector<News> changes_;
};

}  // namespace forebay::probe
