// JobEnd: how the daemons of a job end together (docs/nodes.md). A node whose readers have ended
// still answers the others, tells them that it has finished, and asks those that are not known to
// have. It may drain when every other node has finished, or is lost for so long that its readers
// have found another one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/daemon/call_round.h"
#include "server/io/clock.h"
#include "server/peer/node_report.h"

namespace forebay::daemon {

struct JobEndParts {
  io::Clock& clock;              // borrowed
  std::vector<NodeRank> others;  // the other nodes; none: it is done with Finish
  // Asks a node whether it has finished, and tells it whether this one has; `heard` is called once,
  // perhaps within this call.
  using Heard = std::function<void(const Result<peer::NodeReport>&)>;
  std::function<void(NodeRank to, bool has_finished, Heard heard)> ping;
  // Whether a node counts as dead.
  std::function<bool(NodeRank)> is_dead;
  std::function<std::string(NodeRank)> name;  // of a node, for the log
  // Lets the thread that calls Tick do so at once.
  std::function<void()> wake;
  // How long this node stays for the readers of a node that was lost before it had finished.
  std::int64_t stay_ms = 0;
  NodeRank self = NodeRank(0);  // those behind it are asked first
  std::size_t at_a_time = limits::kNodesAskedAtATime;  // nodes that are asked (CallRound)
};

// Thread-safe, but for Tick and StopAsking, which one thread calls. Calls of `ping` must have ended
// before this object is destroyed.
class JobEnd {
 public:
  explicit JobEnd(const JobEndParts& parts);

  // The readers of this node have ended for good.
  void Finish();
  bool has_finished() const { return has_finished_; }
  // Another node says whether it has finished.
  void Hear(NodeRank node, bool has_finished);
  // Another node has come, in the place of this rank, and has not finished. What the one before it
  // has said does not count, nor does its answer to a ping that is under way.
  void Expect(NodeRank node);
  // Whether this node has finished, and waits for no other one.
  bool HaveAllFinished();
  // Call it about once a second. A node that serves a client of a lost node has not finished, or
  // not any more.
  void Tick(bool serves_client_of_lost);
  // Asks nobody any more (CallRound::Stop).
  void StopAsking() { round_.Stop(); }

 private:
  struct Other {
    std::uint64_t number = 0;      // how many other nodes were in its place before it
    bool has_finished = false;     // as it has said last
    bool knows = false;            // it has answered since this node has last changed its mind
    std::uint64_t said = 0;        // how often it has told this node, unasked
    std::optional<std::int64_t> silent_since_ns = {};  // none: it answers
    int missed = 0;                // pings since it has answered last
    bool is_dead = false;          // at the last Tick
    bool is_logged = false;        // that it is silent
  };

  bool IsAwaitedLocked(const Other& other, std::int64_t now_ns) const FOREBAY_REQUIRES(mutex_);
  bool HaveOthersFinishedLocked() const FOREBAY_REQUIRES(mutex_);
  void LookForDeadLocked(std::int64_t now_ns) FOREBAY_REQUIRES(mutex_);
  static void NoteAnswerLocked(Other& other);
  void NoteSilentLocked(NodeRank node, Other& other, const Error& error)
      FOREBAY_REQUIRES(mutex_);
  void LogLostLocked(NodeRank node, Other& other, const std::string& why)
      FOREBAY_REQUIRES(mutex_);
  struct Asked {
    NodeRank node;
    std::uint64_t number;  // Other::number, by then
    std::uint64_t said;    // likewise
    bool has_finished;     // as it is told
  };
  std::vector<NodeRank> WhomToAskLocked() const FOREBAY_REQUIRES(mutex_);
  void Ask(NodeRank node, const CallRound::Ended& ended);
  void HeardOf(const Asked& asked, const Result<peer::NodeReport>& heard);
  bool SayIfAllFinished();
  void SayAndWakeIfAllFinished();

  const JobEndParts parts_;
  std::atomic<bool> has_finished_ = false;
  std::atomic<bool> has_said_that_all_finished_ = false;
  // Used by the thread of Tick.
  std::int64_t next_round_ns_ = 0;
  CallRound round_;
  Mutex mutex_;
  // As the others are told: the readers of this node have ended, and no other one reads here.
  bool tells_finished_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::map<NodeRank, Other> others_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::daemon
