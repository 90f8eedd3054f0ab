// Two nodes that have finished know it of each other before one of them ends: it ends only when it
// has told all others, or they do not answer. So a node that is silent and has said nothing is
// lost, and its readers may be looking for another node. Once two nodes know of each other, neither
// asks the other one again, so a node that reads for hours longer than the others is all that is
// asked then.
#include "server/daemon/job_end.h"

#include <algorithm>
#include <utility>

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
  for (const NodeRank node : parts.others) others_[node] = {};
}

void JobEnd::Finish() {
  if (has_finished_.exchange(true)) return;
  const MutexLock lock(mutex_);
  log::Info("the readers of this node have ended; {}",
            others_.empty() ? "draining"
                            : "it serves the other nodes until theirs have, too");
}

void JobEnd::Hear(NodeRank node, bool has_finished) {
  {
    const MutexLock lock(mutex_);
    const auto found = others_.find(node);
    if (found == others_.end()) return;
    Other& other = found->second;
    ++other.said;
    other.has_finished = has_finished;
    other.silent_since_ns.reset();
  }
  SayAndWakeIfAllFinished();
}

void JobEnd::Expect(NodeRank node) {
  const MutexLock lock(mutex_);
  Other& other = others_[node];
  other = {.number = other.number + 1};
}

bool JobEnd::HaveAllFinished() {
  if (!has_finished_) return false;
  const MutexLock lock(mutex_);
  return HaveOthersFinishedLocked();
}

// A node that has said that it has finished, and does not answer, has ended. One that has not said
// so is lost, and its readers may come. If this is wrong, the node reads from the GFS what it would
// have got from here, unless it answers again in time: it is asked further on.
bool JobEnd::IsAwaitedLocked(const Other& other, std::int64_t now_ns) const {
  if (!other.silent_since_ns) return !other.has_finished || !other.knows;
  return !other.has_finished && now_ns - *other.silent_since_ns < parts_.stay_ms * kNsOfMs;
}

bool JobEnd::HaveOthersFinishedLocked() const {
  const std::int64_t now_ns = parts_.clock.NowNs();
  return std::ranges::none_of(others_, [&](const auto& entry) FOREBAY_REQUIRES(mutex_) {
    return IsAwaitedLocked(entry.second, now_ns);
  });
}

// While this node has not finished, it pings nobody. The time since a loss counts all the same: the
// readers of a node that was lost long ago have come long ago.
void JobEnd::LookForDeadLocked(std::int64_t now_ns) {
  for (auto& [node, other] : others_) {
    if (!parts_.is_dead(node)) {
      other.silent_since_ns.reset();
    } else if (!other.silent_since_ns) {
      other.silent_since_ns = now_ns;
    }
  }
}

void JobEnd::Tick(bool serves_client_of_lost) {
  const std::int64_t now_ns = parts_.clock.NowNs();
  std::vector<Asked> asked;
  {
    const MutexLock lock(mutex_);
    if (!has_finished_) return LookForDeadLocked(now_ns);
    const bool tells_finished = !serves_client_of_lost;
    if (tells_finished != tells_finished_) {
      tells_finished_ = tells_finished;
      for (auto& [node, other] : others_) other.knows = false;
    }
    if (now_ns < next_round_ns_ || round_under_way_ > 0) return;
    const std::int64_t round_ms =
        std::max(kAskMs, static_cast<std::int64_t>(others_.size()) * kAskMsPerNode);
    next_round_ns_ = now_ns + round_ms * kNsOfMs;
    for (const auto& [node, other] : others_) {
      if (other.has_finished && other.knows) continue;
      asked.push_back({.node = node,
                       .number = other.number,
                       .said = other.said,
                       .has_finished = tells_finished_});
    }
  }
  round_under_way_ = asked.size();
  for (const Asked& one : asked) {
    parts_.ping(one.node, one.has_finished, [this, one](const Result<peer::NodeReport>& heard) {
      HeardOf(one, heard);
      --round_under_way_;  // the last use of this object
    });
  }
}

void JobEnd::NoteSilentLocked(NodeRank node, Other& other, const Error& error) {
  if (!other.silent_since_ns) other.silent_since_ns = parts_.clock.NowNs();
  if (std::exchange(other.is_logged, true)) return;
  if (other.has_finished || parts_.stay_ms == 0) {
    log::Info("{} does not answer, so this node does not wait for it: {}", parts_.name(node),
              error.message());
  } else {
    log::Info("{} does not answer, and has not said that it has finished: {}; this node stays for "
              "its readers until {} s after it was lost (nodes.lost_readers_s)",
              parts_.name(node), error.message(), parts_.stay_ms / 1'000);
  }
}

void JobEnd::HeardOf(const Asked& asked, const Result<peer::NodeReport>& heard) {
  // This node drains for another reason, and asks nobody any more.
  if (!heard.has_value() && heard.error().code() == ErrorCode::kCancelled) return;
  {
    const MutexLock lock(mutex_);
    Other& other = others_.at(asked.node);
    if (other.number != asked.number) return;
    if (heard.has_value()) {
      other.silent_since_ns.reset();
      other.is_logged = false;
      other.knows = asked.has_finished == tells_finished_;
      // If the node has told this one something since the ping was sent, that may be newer than
      // this answer to the ping.
      if (other.said == asked.said) other.has_finished = heard->has_finished;
    } else {
      NoteSilentLocked(asked.node, other, heard.error());
    }
  }
  SayAndWakeIfAllFinished();
}

void JobEnd::SayAndWakeIfAllFinished() {
  if (!HaveAllFinished()) return;
  if (!has_said_that_all_finished_.exchange(true)) {
    log::Info("all nodes have finished, or are lost; this one drains once it serves no client of a "
              "lost node");
  }
  parts_.wake();
}

}  // namespace forebay::daemon
