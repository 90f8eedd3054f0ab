// Once a node has finished it is not asked again, so a node that reads for hours longer than the
// others is all that is asked then.
#include "server/daemon/job_end.h"

#include <algorithm>

#include "server/io/log.h"

namespace forebay::daemon {
namespace {

constexpr std::int64_t kNsOfMs = 1'000'000;
// A node that has finished asks the others whether they have, once in the larger of these times:
// all nodes may wait for the same one, which should not answer more than some hundred pings a
// second.
constexpr std::int64_t kAskMs = 1'000;
constexpr std::int64_t kAskMsPerNode = 5;

}  // namespace

JobEnd::JobEnd(const JobEndParts& parts) : parts_(parts) {
  const MutexLock lock(mutex_);
  unfinished_.insert(parts.others.begin(), parts.others.end());
}

void JobEnd::Finish() {
  if (has_finished_.exchange(true)) return;
  log::Info("the readers of this node have ended; {}",
            parts_.others.empty() ? "draining"
                                  : "it serves the other nodes until theirs have, too");
}

bool JobEnd::HaveAllFinished() {
  if (!has_finished_) return false;
  const MutexLock lock(mutex_);
  return HaveOthersFinishedLocked();
}

bool JobEnd::HaveOthersFinishedLocked() const { return silent_.size() == unfinished_.size(); }

void JobEnd::Tick() {
  const std::int64_t now_ns = parts_.clock.NowNs();
  if (!has_finished_ || now_ns < next_round_ns_ || round_under_way_ > 0) return;
  const std::int64_t round_ms =
      std::max(kAskMs, static_cast<std::int64_t>(parts_.others.size()) * kAskMsPerNode);
  next_round_ns_ = now_ns + round_ms * kNsOfMs;
  std::vector<NodeRank> asked;
  {
    const MutexLock lock(mutex_);
    asked.assign(unfinished_.begin(), unfinished_.end());
  }
  round_under_way_ = asked.size();
  for (const NodeRank node : asked) {
    parts_.ping(node, [this, node](const Result<peer::NodeReport>& heard) {
      HeardOf(node, heard);
      --round_under_way_;  // the last use of this object
    });
  }
}

// A node that does not answer has ended or is lost: either way there is nothing to wait for. If
// this is wrong, the node reads from the GFS what it would have got from here, unless it answers
// again in time: it is asked further on.
void JobEnd::HeardOf(NodeRank node, const Result<peer::NodeReport>& heard) {
  if (heard.has_value() && !heard->has_finished) {
    const MutexLock lock(mutex_);
    silent_.erase(node);  // it is waited for again
    return;
  }
  // This node drains for another reason, and asks nobody any more.
  if (!heard.has_value() && heard.error().code() == ErrorCode::kCancelled) return;
  bool are_all = false;
  {
    const MutexLock lock(mutex_);
    if (heard.has_value()) {
      unfinished_.erase(node);
      silent_.erase(node);
    } else if (silent_.insert(node).second) {
      log::Info("{} does not answer, so this node does not wait for it: {}", parts_.name(node),
                heard.error().message());
    }
    are_all = HaveOthersFinishedLocked();
  }
  if (!are_all) return;
  if (!has_said_that_all_finished_.exchange(true)) {
    log::Info("all nodes have finished; this one drains once it serves no client of a lost node");
  }
  parts_.wake();
}

}  // namespace forebay::daemon
