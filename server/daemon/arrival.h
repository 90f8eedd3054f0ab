// Arrival: how a node takes a place in a job that runs (docs/nodes.md). The node that joins tells
// all others so, until each has answered, and after that one of them in each second: a node that
// was killed and started again may not know it any more. The others use it from then on like a node
// that is back after it did not answer for a while.
//
// Until it has staged what its place owns, it yields (plan::Membership): the nodes that have read
// that so far go on to supply it, to the others and to the node that joins. So nothing that these
// still have is read from the GFS again.
//
// Who is in a place is a hint, like everything that nodes know of each other. A node that has not
// heard of the new one asks the substitutes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/daemon/node_table.h"
#include "server/io/clock.h"
#include "server/peer/node_report.h"
#include "server/plan/membership.h"
#include "server/rendezvous/node_entry.h"

namespace forebay::daemon {

// All are borrowed.
struct ArrivalParts {
  plan::Membership& nodes;
  NodeTable& table;
  io::Clock& clock;
  // Tells `to` that `node`, which is this one, has taken its place. `told` gets the answer; it is
  // called once, perhaps within this call.
  using Told = std::function<void(const Status&)>;
  std::function<void(NodeRank to, const rendezvous::NodeEntry& node, Told told)> tell;
  // Whether the node in a place counts as dead.
  std::function<bool(NodeRank)> is_dead;
  // Another node has taken the place of this one.
  std::function<void(const rendezvous::NodeEntry&)> replaced;
  // Another node takes the place that the entry names: puts it in the table, and uses it from now
  // on. Called by any thread. An error refuses it.
  std::function<Status(const rendezvous::NodeEntry&)> taken;
};

// Thread-safe, but for Begin and Tick, which one thread calls. Calls of `tell` must have ended
// before this object is destroyed.
class Arrival {
 public:
  explicit Arrival(const ArrivalParts& parts) : parts_(parts) {}

  // This node has taken the place that it has in the table: it tells all others from now on, and
  // yields until `has_staged` returns true, which Tick calls. `had_node`: another node was in the
  // place, and is told by the rank of this one, because it may have stood still only.
  void Begin(std::function<bool()> has_staged, bool had_node = false);
  // As Begin, for a daemon that had joined before it was killed. It does not yield, because its
  // place was taken over already.
  void BeginToTell(bool had_node = false);
  // Answers a node that joins, or wants to. Errors of a node that takes a place:
  // kFailedPrecondition: the place is not free, or the entry does not fit it; kInvalidArgument,
  // kDataLoss: what it says about itself cannot be read.
  Result<peer::JoinAnswer> Hear(const peer::JoinAsked& asked);
  // Call it about once a second.
  void Tick();
  // Whether the node that was in the place before has answered.
  bool HasToldTheOneBefore();

 private:
  peer::JoinAnswer ListFor(const rendezvous::NodeEntry& node, std::uint32_t first)
      FOREBAY_REQUIRES(hear_mutex_);
  Status Take(const rendezvous::NodeEntry& node) FOREBAY_REQUIRES(hear_mutex_);
  bool IsHeld(NodeRank place) FOREBAY_REQUIRES(hear_mutex_);
  void TellOthers(std::int64_t now_ns);
  void TellTheOneBefore(std::int64_t now_ns);
  void NoteTold(NodeRank node, const Status& told);
  std::vector<NodeRank> WhomToTell();

  const ArrivalParts parts_;
  // Used by the thread of Begin and Tick.
  bool has_begun_ = false;
  std::function<bool()> has_staged_;  // null: this node does not yield
  std::int64_t next_round_ns_ = 0;
  std::size_t next_again_ = 0;  // index of the node that is told again next
  std::int64_t next_before_ns_ = 0;  // when the node that was in the place is told again
  Mutex hear_mutex_;  // one node at a time takes a place
  std::map<NodeRank, std::int64_t> held_until_ns_ FOREBAY_GUARDED_BY(hear_mutex_);
  Mutex mutex_;
  std::set<NodeRank> told_ FOREBAY_GUARDED_BY(mutex_);        // and have taken this node
  std::set<NodeRank> under_way_ FOREBAY_GUARDED_BY(mutex_);  // are being told
  std::map<NodeRank, std::size_t> refusals_ FOREBAY_GUARDED_BY(mutex_);  // in a row
  bool has_said_refusal_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool tells_before_ FOREBAY_GUARDED_BY(mutex_) = false;  // the node that was in the place
  bool has_told_before_ FOREBAY_GUARDED_BY(mutex_) = false;
};

}  // namespace forebay::daemon
