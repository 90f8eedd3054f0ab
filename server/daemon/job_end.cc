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
// So many pings in a row must have been missed by a node that does not count as dead. In a large
// job one of thousands may come too late, and the next one comes a round later, which may be longer
// than JobEndParts::stay_ms.
constexpr int kMissed = 2;

}  // namespace

JobEnd::JobEnd(const JobEndParts& parts) : parts_(parts), round_(parts.at_a_time) {
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
    NoteAnswerLocked(other);
  }
  SayAndWakeIfAllFinished();
}

void JobEnd::Expect(NodeRank node) {
  const MutexLock lock(mutex_);
  Other& other = others_[node];
  // It counts as dead until it has answered a probe. That is no loss.
  other = {.number = other.number + 1, .is_dead = true};
}

bool JobEnd::HaveAllFinished() {
  if (!has_finished_) return false;
  const MutexLock lock(mutex_);
  return HaveOthersFinishedLocked();
}

// A node that has said that it has finished, and does not answer, has ended. One that has not said
// so is lost, and its readers may come. If this is wrong, the node reads from the GFS what it would
// have got from here, unless it answers again in time: it is asked further on. Two nodes between
// which the link is broken give each other up, although probes by way of others say that both live.
bool JobEnd::IsAwaitedLocked(const Other& other, std::int64_t now_ns) const {
  if (!other.silent_since_ns) return !other.has_finished || !other.knows;
  if (other.has_finished) return false;
  // A node that counts as dead is asked once more, too: others may have been wrong about it.
  if (other.missed < (other.is_dead ? 1 : kMissed)) return true;
  return now_ns - *other.silent_since_ns < parts_.stay_ms * kNsOfMs;
}

bool JobEnd::HaveOthersFinishedLocked() const {
  const std::int64_t now_ns = parts_.clock.NowNs();
  return std::ranges::none_of(others_, [&](const auto& entry) FOREBAY_REQUIRES(mutex_) {
    return IsAwaitedLocked(entry.second, now_ns);
  });
}

void JobEnd::NoteAnswerLocked(Other& other) {
  other.silent_since_ns.reset();
  other.missed = 0;
}

// While this node has not finished, it pings nobody. The time since a loss counts all the same: the
// readers of a node that was lost long ago have come long ago. An answer to a ping, or none, counts
// for more than what was thought before it.
void JobEnd::LookForDeadLocked(std::int64_t now_ns) {
  for (auto& [node, other] : others_) {
    const bool was_dead = std::exchange(other.is_dead, parts_.is_dead(node));
    if (other.is_dead && !was_dead && !other.silent_since_ns) other.silent_since_ns = now_ns;
    if (!other.is_dead && other.missed == 0) other.silent_since_ns.reset();
    const bool is_lost = other.is_dead && other.silent_since_ns && !other.has_finished;
    if (has_finished_ && is_lost) LogLostLocked(node, other, "it counts as dead");
  }
}

// Those behind this node first, so that the nodes that finish at the same time do not all ask the
// same ones; and those that count as dead last, because each may take a place in the round until
// the deadline of its ping.
std::vector<NodeRank> JobEnd::WhomToAskLocked() const {
  std::vector<NodeRank> asked;
  for (const auto& [node, other] : others_) {
    if (!other.has_finished || !other.knows) asked.push_back(node);
  }
  std::ranges::rotate(asked, std::ranges::upper_bound(asked, parts_.self));
  std::ranges::stable_partition(asked, [this](NodeRank node) FOREBAY_REQUIRES(mutex_) {
    return !others_.at(node).is_dead;
  });
  return asked;
}

void JobEnd::Ask(NodeRank node, const CallRound::Ended& ended) {
  Asked asked{.node = node, .number = 0, .said = 0, .has_finished = false};
  {
    const MutexLock lock(mutex_);
    const Other& other = others_.at(node);
    asked.number = other.number;
    asked.said = other.said;
    asked.has_finished = tells_finished_;
  }
  parts_.ping(node, asked.has_finished,
              [this, asked, ended](const Result<peer::NodeReport>& heard) {
                HeardOf(asked, heard);
                ended();
              });
}

void JobEnd::Tick(bool serves_client_of_lost) {
  const std::int64_t now_ns = parts_.clock.NowNs();
  std::vector<NodeRank> asked;
  SayIfAllFinished();
  {
    const MutexLock lock(mutex_);
    LookForDeadLocked(now_ns);
    if (!has_finished_) return;
    const bool tells_finished = !serves_client_of_lost;
    if (tells_finished != tells_finished_) {
      tells_finished_ = tells_finished;
      for (auto& [node, other] : others_) other.knows = false;
    }
    if (now_ns < next_round_ns_ || round_.is_under_way()) return;
    const std::int64_t round_ms =
        std::max(kAskMs, static_cast<std::int64_t>(others_.size()) * kAskMsPerNode);
    next_round_ns_ = now_ns + round_ms * kNsOfMs;
    asked = WhomToAskLocked();
  }
  const std::size_t count = asked.size();
  round_.Begin(count, [this, asked = std::move(asked)](std::size_t index,
                                                       const CallRound::Ended& ended) {
    Ask(asked[index], ended);
  });
}

void JobEnd::NoteSilentLocked(NodeRank node, Other& other, const Error& error) {
  if (!other.silent_since_ns) other.silent_since_ns = parts_.clock.NowNs();
  ++other.missed;
  // One that may only have been too slow is waited for all the same.
  if (!other.has_finished && !other.is_dead && other.missed < kMissed) return;
  LogLostLocked(node, other, error.message());
}

void JobEnd::LogLostLocked(NodeRank node, Other& other, const std::string& why) {
  if (std::exchange(other.is_logged, true)) return;
  if (other.has_finished || parts_.stay_ms == 0) {
    log::Info("{} does not answer, so this node does not wait for it: {}", parts_.name(node), why);
  } else {
    log::Info("{} does not answer, and has not said that it has finished: {}; this node stays for "
              "its readers until {} s after it was lost (nodes.lost_readers_s)",
              parts_.name(node), why, parts_.stay_ms / 1'000);
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
      NoteAnswerLocked(other);
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

bool JobEnd::SayIfAllFinished() {
  if (!HaveAllFinished()) return false;
  if (!has_said_that_all_finished_.exchange(true)) {
    log::Info("all nodes have finished, or are lost; this one drains once it serves no client of a "
              "lost node");
  }
  return true;
}

void JobEnd::SayAndWakeIfAllFinished() {
  if (SayIfAllFinished()) parts_.wake();
}

}  // namespace forebay::daemon
