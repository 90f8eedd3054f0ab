// LinkWatch: finds nodes that answer much later than others, are much slower than others, or send
// wrong bytes again and again, and has this node do without them. A request that is late ends as if
// the node had not answered, so RowRouter and ExtentSupplier ask the node's substitutes. The node
// is asked for nothing while it rests (plan::Membership::Rest), and each rest is longer than the
// last one if it is late or slow again soon. So a slow node gets little to do, and nobody waits for
// it for long.
//
// A node is slow if requests to it have been under way for all of nodes.late_ms, and it has brought
// less than a fifth of the bytes per second of request that most nodes bring; or less than half of
// them, if another node says that it is slow. Such words are needed because nodes share a slow one:
// when some of them do without it, it becomes faster for the last one, which would wait on. A node
// says so with its requests for rows, to the nodes that it exchanges samples with, and only of what
// it has found by the fifth.
//
// This is hedging in which the second request takes the place of the first one, because both would
// write to the same memory. A request is late if nothing has come for nodes.late_ms, and for four
// times as long as the answers of most nodes usually take; and after 30 s in any case. What does
// not count: the time in which the other node itself waits for the GFS or for memory, if it has
// said so and answers probes; and the time in which its link brings bytes about as fast as those of
// other nodes, because then a request only waits for those before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/peer/watched_link.h"
#include "server/plan/membership.h"

namespace forebay::peer {

struct WatchedNode {
  NodeRank rank;
  WatchedLink* link = nullptr;  // borrowed
};

struct LinkWatchParts {
  plan::Membership& nodes;  // borrowed
  io::Clock& clock;         // borrowed
  // Whether probes say that the node may be dead. Called by the thread of Look.
  std::function<bool(NodeRank)> is_suspected;
  std::function<std::string(NodeRank)> name;  // of a node, for the log
  std::int64_t late_ms = 0;                   // 0: no request is late within 30 s
};

// Look and Run are called by one thread, the other functions by any.
class LinkWatch {
 public:
  LinkWatch(const LinkWatchParts& parts, const std::vector<WatchedNode>& nodes);

  // Looks at all links once. Call it every period_ns().
  void Look();
  // Calls Look until `stop` is requested.
  void Run(const std::stop_token& stop);

  // The nodes that this one has found slow by itself, and does without now; limits::kPeerSlowMax at
  // most.
  std::vector<NodeRank> SlowNodes() const;
  // Another node has found these slow.
  void HearSlow(std::span<const NodeRank> nodes);
  // Another machine has this rank now. From the next look on, what was found about the one before
  // does not count: this node uses it, and measures it from the beginning.
  void Forget(NodeRank node);

  // A tenth of late_ms, so a late request ends at most two tenths later.
  std::int64_t period_ns() const;

 private:
  struct Node {
    WatchedNode watched;
    LinkState state = {};
    // The bytes that the node has sent lately, and the time for which this node had requests under
    // way for them. Older bytes and times count less and less.
    double sent_bytes = 0.0;
    double asked_ns = 0.0;
    std::uint64_t unanswered_ns = 0;  // for which it was asked since the last bytes came

    // In bytes per nanosecond; 0: not known.
    double rate() const { return asked_ns > 0.0 ? sent_bytes / asked_ns : 0.0; }

    bool keeps_up = false;      // in the last period
    std::int64_t slow_ns = 0;   // for which it has been slow
    std::int64_t idle_ns = 0;   // since its last answer
    // The last rest, which may not be over: its length, its end, whether the node was slow (and not
    // late), and whether other nodes are told so during this rest.
    std::int64_t rest_ns = 0;
    std::int64_t rested_until_ns = 0;
    bool rests_as_slow = false;
    bool is_told = false;
    std::int64_t heard_slow_ns = 0;  // when another node has last said that it is slow; 0: never
    bool is_known_as_wrong = false;  // it has sent wrong bytes often enough
    bool is_left_out = false;        // because of that, for good
  };
  void NoteRate(Node& node, const LinkState& before, std::int64_t elapsed_ns);
  std::int64_t LateAfterNs() const;
  bool MayBeCutOff(const Node& late, std::int64_t after_ns) const;
  void LeaveOut(Node& node);
  bool HasRestedLately(const Node& node) const;
  std::int64_t SlowAfterNs(const Node& node) const;
  enum class Finding : std::uint8_t { kLate, kSlow };
  void LetRest(Node& node, Finding finding, const std::string& why);
  void LetSlowRest();
  void TakeNews();
  void StartAgain(Node& node);
  // The index in nodes_; as many as there are nodes: `rank` is none of them.
  std::size_t IndexOf(NodeRank rank) const;
  void TellSlow();
  bool WasHeardOf(const Node& node) const;
  bool IsResting(const Node& node) const { return last_look_ns_ < node.rested_until_ns; }

  const LinkWatchParts parts_;
  std::vector<Node> nodes_;  // by rank
  std::int64_t last_look_ns_;  // by clock
  double usual_rate_ = 0.0;    // the median of the nodes; 0: none is known
  bool has_left_out_ = false;
  Mutex mutex_;  // of the pause only
  StoppableCondVar pause_;
  mutable Mutex news_mutex_;
  std::vector<NodeRank> slow_nodes_ FOREBAY_GUARDED_BY(news_mutex_);  // as of SlowNodes
  // Indexes in nodes_, of what was heard since the last look.
  std::vector<std::size_t> heard_ FOREBAY_GUARDED_BY(news_mutex_);
  std::vector<std::size_t> forgotten_ FOREBAY_GUARDED_BY(news_mutex_);
};

}  // namespace forebay::peer
