// JobEnd: how the daemons of a job end together (docs/nodes.md). A node whose readers have ended
// still answers the others, and asks those that are not known to have finished. It may drain when
// every other node has finished, or does not answer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/peer/node_report.h"

namespace forebay::daemon {

struct JobEndParts {
  io::Clock& clock;              // borrowed
  std::vector<NodeRank> others;  // all other nodes of the job; none: it is done with Finish
  // Asks a node; `heard` is called once, perhaps within this call.
  using Heard = std::function<void(const Result<peer::NodeReport>&)>;
  std::function<void(NodeRank to, Heard heard)> ping;
  std::function<std::string(NodeRank)> name;  // of a node, for the log
  // Lets the thread that calls Tick do so at once.
  std::function<void()> wake;
};

// Thread-safe, but for Tick, which one thread calls. Calls of `ping` must have ended before this
// object is destroyed.
class JobEnd {
 public:
  explicit JobEnd(const JobEndParts& parts);

  // The readers of this node have ended for good.
  void Finish();
  bool has_finished() const { return has_finished_; }
  // Whether this node has finished, and every other one has too or did not answer.
  bool HaveAllFinished();
  // Call it about once a second.
  void Tick();

 private:
  bool HaveOthersFinishedLocked() const FOREBAY_REQUIRES(mutex_);
  void HeardOf(NodeRank node, const Result<peer::NodeReport>& heard);

  const JobEndParts parts_;
  std::atomic<bool> has_finished_ = false;
  std::atomic<bool> has_said_that_all_finished_ = false;
  // Used by the thread of Tick.
  std::int64_t next_round_ns_ = 0;
  std::atomic<std::size_t> round_under_way_ = 0;  // pings without an answer yet
  Mutex mutex_;
  std::set<NodeRank> unfinished_ FOREBAY_GUARDED_BY(mutex_);  // other nodes, until they have
  // Those of them that did not answer the last ping, so that they are not waited for.
  std::set<NodeRank> silent_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::daemon
