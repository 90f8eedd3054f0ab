// Departure: how a node leaves a job that goes on (docs/nodes.md). The node that leaves tells all
// others so, again and again. They take its place from then on, and stage what they will read
// instead of it, from its tiers as long as it answers; if it is silent for a moment, they take over
// from others that leave meanwhile, and from it later. It ends when all of them have what they have
// room for, when they are dead, or when its time is over.
// The news that a node leaves is a hint, like everything that plan::Membership knows. A node
// forgets it if it is not repeated. So a node that was killed while it left is used as before when
// it comes back, unless its new daemon goes on to leave (JobNodes).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/daemon/call_round.h"
#include "server/io/clock.h"
#include "server/peer/node_report.h"
#include "server/plan/membership.h"

namespace forebay::daemon {

// All are borrowed.
struct DepartureParts {
  plan::Membership& nodes;
  io::Clock& clock;
  // Tells `to` that this node leaves; `to` believes that for `time_ms`. `told` gets the answer; it
  // is called once, perhaps within this call.
  using Told = std::function<void(const Result<peer::LeaveAnswer>&)>;
  std::function<void(NodeRank to, std::int64_t time_ms, Told told)> tell;
  std::function<std::string(NodeRank)> name;  // of a node, for the log
  // Whether a node of the job counts as dead. One that only rests still takes over.
  std::function<bool(NodeRank)> is_dead;
  // Lets the thread that calls Tick do so at once.
  std::function<void()> wake;
  std::size_t at_a_time = limits::kNodesAskedAtATime;  // nodes that are told (CallRound)
};

// Thread-safe, but for Tick, StopTelling and SetTakeOver, which one thread calls. Calls of `tell`
// must have ended before this object is destroyed.
class Departure {
 public:
  explicit Departure(const DepartureParts& parts) : parts_(parts), round_(parts.at_a_time) {}

  // How this node takes over from nodes that leave: begins to, if `begins`, and returns whether it
  // has what it has room for. Until this is called, it has nothing to take over.
  void SetTakeOver(std::function<bool(bool begins)> take_over) {
    take_over_ = std::move(take_over);
  }

  // This node leaves, within `time_ms`. A second call changes the time.
  void Begin(std::int64_t time_ms);
  // Whether it has left, and may end.
  bool IsOver() const { return is_over_; }
  // Whether `node`, which may be this one, leaves the job or has left it, as far as is known.
  bool IsLeaving(NodeRank node) const;
  // Another node says that it leaves. Returns whether this node has taken over from all nodes that
  // leave, and whether it has left `node` out.
  peer::LeaveAnswer Hear(NodeRank node, std::int64_t time_ms);
  // Another node has taken the place of `node`: it does not leave, and has taken nothing over.
  void Forget(NodeRank node);
  // Call it about once a second, and after `wake`.
  void Tick();
  // Tells nobody any more (CallRound::Stop).
  void StopTelling() { round_.Stop(); }

 private:
  void TakeOver(std::int64_t now_ns);
  void TellOthers(std::int64_t now_ns);
  void NoteAnswer(NodeRank node, const Result<peer::LeaveAnswer>& answer);
  void LogEnd(const std::vector<NodeRank>& awaited) const;
  std::vector<NodeRank> LookForDead();
  bool IsSilentForNow(NodeRank node) const;
  bool HasToldAllLocked() const FOREBAY_REQUIRES(mutex_);

  const DepartureParts parts_;
  std::function<bool(bool begins)> take_over_;
  std::atomic<bool> is_over_ = false;
  // Used by the thread of Tick.
  CallRound round_;
  std::int64_t next_round_ns_ = 0;  // 0: no round has begun
  std::set<NodeRank> dead_;         // in the last round
  std::set<NodeRank> given_up_;     // dead in the last two rounds
  mutable Mutex mutex_;
  std::optional<std::int64_t> deadline_ns_ FOREBAY_GUARDED_BY(mutex_);  // set: this node leaves
  // The last answers of other nodes to the news that this one leaves.
  std::map<NodeRank, peer::LeaveAnswer> answers_ FOREBAY_GUARDED_BY(mutex_);
  std::map<NodeRank, std::int64_t> leaving_until_ns_ FOREBAY_GUARDED_BY(mutex_);  // other nodes
  // Those of them of which the log says that this node has left them out.
  std::set<NodeRank> left_out_ FOREBAY_GUARDED_BY(mutex_);
  bool begins_ FOREBAY_GUARDED_BY(mutex_) = false;  // somebody leaves since the last Tick
  // Some of those that leave were silent at a Tick since the last pass began.
  bool has_left_out_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool has_taken_over_ FOREBAY_GUARDED_BY(mutex_) = true;
};

}  // namespace forebay::daemon
