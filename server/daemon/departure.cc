// Everything is repeated: the node that leaves asks the others until all have answered that they
// have taken over, and they forget that it leaves if it is silent. So no message has to arrive at a
// certain time, and none is stored.
#include "server/daemon/departure.h"

#include <algorithm>
#include <utility>

#include "server/io/log.h"

namespace forebay::daemon {
namespace {

constexpr std::int64_t kMsInNs = 1'000'000;
// The others are asked once in the larger of these times, so that a large job is not flooded.
constexpr std::int64_t kRoundMs = 1'000;
constexpr std::int64_t kRoundMsPerNode = 5;
// For so many rounds, but a minute at least, others believe that a node leaves. When it has left,
// they have noticed long before that it does not answer.
constexpr std::int64_t kRoundsBelieved = 10;
constexpr std::int64_t kBelievedMsMin = 60'000;

std::int64_t RoundMs(const plan::Membership& nodes) {
  return std::max(kRoundMs, kRoundMsPerNode * static_cast<std::int64_t>(nodes.nodes().size()));
}

}  // namespace

void Departure::Begin(std::int64_t time_ms) {
  {
    const MutexLock lock(mutex_);
    deadline_ns_ = parts_.clock.NowNs() + time_ms * kMsInNs;
  }
  log::Info("this node leaves the job: it hands over to the other nodes what it has, and ends "
            "within {} s",
            time_ms / 1'000);
  parts_.wake();
}

bool Departure::IsLeaving(NodeRank node) const {
  const MutexLock lock(mutex_);
  if (node == parts_.nodes.self()) return deadline_ns_.has_value();
  return leaving_until_ns_.count(node) != 0;
}

peer::LeaveAnswer Departure::Hear(NodeRank node, std::int64_t time_ms) {
  bool is_new = false, is_newly_left_out = false;
  peer::LeaveAnswer answer;
  {
    const MutexLock lock(mutex_);
    is_new = leaving_until_ns_.count(node) == 0;
    leaving_until_ns_[node] = parts_.clock.NowNs() + time_ms * kMsInNs;
    if (is_new) {
      parts_.nodes.SetLeaves(node, true);
      begins_ = true;
      has_taken_over_ = false;
    }
    answer.has_taken_over = has_taken_over_;
    // A node that leaves itself takes nothing over from anybody.
    answer.has_left_out = parts_.nodes.RestsForEver(node) && !deadline_ns_;
    // Its wrong bytes may come to light during the hand-over only.
    is_newly_left_out = answer.has_left_out && left_out_.insert(node).second;
  }
  if (is_newly_left_out) {
    log::Warn("{} leaves the job; this node has left it out because of wrong bytes: it takes "
              "nothing over from it any more, and reads its part from the GFS",
              parts_.name(node));
  } else if (is_new) {
    log::Info("{} leaves the job; this node takes over its part of what it has", parts_.name(node));
  }
  if (is_new) parts_.wake();
  return answer;
}

void Departure::Forget(NodeRank node) {
  const MutexLock lock(mutex_);
  left_out_.erase(node);
  answers_.erase(node);
  if (leaving_until_ns_.erase(node) > 0) parts_.nodes.SetLeaves(node, false);
}

void Departure::Tick() {
  const std::int64_t now_ns = parts_.clock.NowNs();
  TakeOver(now_ns);
  TellOthers(now_ns);
}

void Departure::TakeOver(std::int64_t now_ns) {
  bool begins = false;
  {
    const MutexLock lock(mutex_);
    if (deadline_ns_) {
      // This node leaves itself, so it takes nothing over: it would only hand that over again. But
      // it answers so only when the others know that it leaves, because the node that asks relies
      // on them.
      has_taken_over_ = HasToldAllLocked();
    }
    std::size_t silent = 0;
    for (auto entry = leaving_until_ns_.begin(); entry != leaving_until_ns_.end();) {
      const auto [node, until_ns] = *entry;
      if (now_ns < until_ns) {
        silent += IsSilentForNow(node) ? 1 : 0;
        ++entry;
        continue;
      }
      // It has ended, and does not answer any more; or it was killed, and may have come back.
      parts_.nodes.SetLeaves(node, false);
      left_out_.erase(node);
      entry = leaving_until_ns_.erase(entry);
    }
    if (deadline_ns_ || has_taken_over_) return;
    // There is nobody to get extents from.
    if (begins_ && silent > 0 && silent == leaving_until_ns_.size()) return;
    // A pass leaves out what silent nodes have, also those that become silent while it is under
    // way. It is begun once more when none is silent any more.
    begins = begins_ || (has_left_out_ && silent == 0);
    has_left_out_ = silent > 0;
    begins_ = false;
  }
  // Without the mutex, which is not needed for it.
  const bool is_done = take_over_ == nullptr || take_over_(begins);
  const MutexLock lock(mutex_);
  // A further node may have come meanwhile.
  has_taken_over_ = is_done && !begins_ && !has_left_out_;
}

// Whether a node is not asked for extents at present, but will be: it rests, or a request to it was
// not answered, and it does not count as dead.
bool Departure::IsSilentForNow(NodeRank node) const {
  return !parts_.nodes.Lives(node) && !parts_.nodes.RestsForEver(node) && !parts_.is_dead(node);
}

// A call without an answer may not have arrived.
bool Departure::HasToldAllLocked() const {
  return std::ranges::all_of(parts_.nodes.nodes(), [this](const plan::Node& node)
                                                       FOREBAY_REQUIRES(mutex_) {
    return node.rank == parts_.nodes.self() || given_up_.count(node.rank) != 0 ||
           answers_.count(node.rank) != 0;
  });
}

// Called once in each round. Returns the other nodes that are not dead. A node is given up only if
// it is still dead one round later: a message that it lives may be on its way.
std::vector<NodeRank> Departure::LookForDead() {
  std::vector<NodeRank> others;
  std::set<NodeRank> dead;
  given_up_.clear();
  for (const plan::Node& node : parts_.nodes.nodes()) {
    if (node.rank == parts_.nodes.self()) continue;
    if (!parts_.is_dead(node.rank)) {
      others.push_back(node.rank);
      continue;
    }
    dead.insert(node.rank);
    if (dead_.count(node.rank) != 0) given_up_.insert(node.rank);
  }
  dead_ = std::move(dead);
  return others;
}

void Departure::TellOthers(std::int64_t now_ns) {
  std::vector<NodeRank> awaited;
  {
    const MutexLock lock(mutex_);
    if (!deadline_ns_ || is_over_) return;
    for (const plan::Node& node : parts_.nodes.nodes()) {
      const auto answer = answers_.find(node.rank);
      // A node that has left this one out takes nothing over from it.
      const bool has_ended = answer != answers_.end() && (answer->second.has_taken_over ||
                                                          answer->second.has_left_out);
      const bool is_awaited =
          node.rank != parts_.nodes.self() && given_up_.count(node.rank) == 0 && !has_ended;
      if (is_awaited) awaited.push_back(node.rank);
    }
    // An answer that is under way may be newer: a further node may leave.
    is_over_ = (awaited.empty() && !round_.is_under_way()) || now_ns >= *deadline_ns_;
  }
  if (is_over_) LogEnd(awaited);
  if (is_over_ || now_ns < next_round_ns_ || round_.is_under_way()) return;
  const std::int64_t round_ms = RoundMs(parts_.nodes);
  next_round_ns_ = now_ns + round_ms * kMsInNs;
  const std::int64_t believed_ms = std::max(kBelievedMsMin, kRoundsBelieved * round_ms);
  // Also those that have taken over: they would forget that this node leaves.
  std::vector<NodeRank> others = LookForDead();
  const std::size_t count = others.size();
  round_.Begin(count, [this, believed_ms, others = std::move(others)](
                          std::size_t index, const CallRound::Ended& ended) {
    parts_.tell(others[index], believed_ms,
                [this, node = others[index], ended](const Result<peer::LeaveAnswer>& answer) {
                  NoteAnswer(node, answer);
                  ended();
                });
  });
}

// A node that does not answer is asked again, until it is given up.
void Departure::NoteAnswer(NodeRank node, const Result<peer::LeaveAnswer>& answer) {
  if (!answer.has_value()) return;
  const MutexLock lock(mutex_);
  answers_[node] = *answer;  // it has not taken over any more if a further node leaves
}

void Departure::LogEnd(const std::vector<NodeRank>& awaited) const {
  std::vector<NodeRank> left_out_by;
  {
    const MutexLock lock(mutex_);
    for (const auto& [node, answer] : answers_) {
      if (answer.has_left_out) left_out_by.push_back(node);
    }
  }
  if (!left_out_by.empty()) {
    log::Warn("draining: {} nodes, {} among them, have left this node out because of wrong bytes: "
              "they take nothing over from it, and read their part from the GFS",
              left_out_by.size(), parts_.name(left_out_by.front()));
  }
  if (!awaited.empty()) {
    log::Warn("draining: {} nodes, {} among them, have not taken over yet what this node has, and "
              "read it from the GFS; --hand-over-s gives them more time",
              awaited.size(), parts_.name(awaited.front()));
    return;
  }
  log::Info("draining: {} have taken over what they have room for, or do not answer",
            left_out_by.empty() ? "the other nodes" : "all others");
}

}  // namespace forebay::daemon
