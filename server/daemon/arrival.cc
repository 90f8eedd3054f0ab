// Everything is repeated until it has succeeded, and nothing depends on when: a node that does not
// know yet who is in a place finds nobody there.
#include "server/daemon/arrival.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/io/log.h"
#include "server/rendezvous/node_file.h"

namespace forebay::daemon {
namespace {

constexpr std::int64_t kTellAgainNs = 1'000'000'000;
// The node that was in the place of this one is told less often, because it seldom answers.
constexpr std::int64_t kTellBeforeNs = 10'000'000'000;
// For so long, a place that was taken is not given to another node: the first one is starting.
constexpr std::int64_t kHeldNs = 60'000'000'000;
// Nodes that are told at a time, so that the calls are no flood. A job of 16,384 nodes knows the
// new one after about a minute.
constexpr std::size_t kToldAtATimeMax = 256;
// So many refusals of one node, one in each second, are said once in the log.
constexpr std::size_t kRefusalsSaid = 20;

using rendezvous::NodeEntry;

// The entry of the node that joins, or wants to.
Result<NodeEntry> EntryOf(const peer::JoinAsked& asked) {
  FOREBAY_ASSIGN(rendezvous::NodeFile file, rendezvous::Decode(asked.entry));
  if (file.kind == rendezvous::NodeFileKind::kAnswer && file.nodes.size() == 1) {
    return std::move(file.nodes.front());
  }
  return Error(ErrorCode::kInvalidArgument,
               "a node that joins the job has sent another file than its own entry");
}

}  // namespace

void Arrival::BeginToTell(bool had_node) {
  has_begun_ = true;
  const MutexLock lock(mutex_);
  tells_before_ = had_node;
}

void Arrival::Begin(std::function<bool()> has_staged, bool had_node) {
  BeginToTell(had_node);
  has_staged_ = std::move(has_staged);
  parts_.nodes.SetYields(plan::YieldReason::kArrives, true);
  log::Info("this node has joined the job, as {}; it takes over the part of its place from the "
            "other nodes",
            parts_.table.Name(parts_.nodes.self()));
}

Result<peer::JoinAnswer> Arrival::Hear(const peer::JoinAsked& asked) {
  FOREBAY_ASSIGN(const NodeEntry node, EntryOf(asked));
  const MutexLock lock(hear_mutex_);
  if (!asked.takes_place) {
    if (asked.first < parts_.table.size()) return ListFor(node, asked.first);
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the job has {} places, and the list is asked for from rank {} on",
                             parts_.table.size(), asked.first));
  }
  FOREBAY_TRY(Take(node));
  return peer::JoinAnswer{};
}

// Whether a node has taken the place just now. It does not answer before it serves.
bool Arrival::IsHeld(NodeRank place) {
  const auto held = held_until_ns_.find(place);
  return held != held_until_ns_.end() && parts_.clock.NowNs() < held->second;
}

// As many places as fit into one message, but at least one. A place that was taken just now is free
// only for the node that has taken it, and may have been started again.
peer::JoinAnswer Arrival::ListFor(const NodeEntry& node, std::uint32_t first) {
  const std::vector<NodeEntry> all = parts_.table.All();
  peer::JoinAnswer answer{.nodes = {}, .node_count = static_cast<std::uint32_t>(all.size()),
                          .free = {}};
  rendezvous::NodeFile page{.kind = rendezvous::NodeFileKind::kComplete,
                            .node_count = answer.node_count};
  std::size_t bytes = 0;
  for (std::size_t i = first; i < all.size(); ++i) {
    const NodeEntry& place = all[i];
    bytes += rendezvous::Encode({.nodes = {place}}).size();
    if (bytes > limits::kJoinPageBytes && !page.nodes.empty()) break;
    page.nodes.push_back(place);
    if (place.rank == parts_.nodes.self()) continue;
    const bool is_lost = place.is_free() || parts_.is_dead(place.rank);
    const bool is_own = place.identity == node.identity;
    if (is_lost && (is_own || !IsHeld(place.rank))) answer.free.push_back(place.rank);
  }
  answer.nodes = rendezvous::Encode(page);
  return answer;
}

// Told again, a node has nothing to do. The node that joins has asked another one which places are
// free, so it is enough here that the node before it does not answer this one. It may count as
// alive again, because the new node has said so to others by its probes.
Status Arrival::Take(const NodeEntry& node) {
  const std::vector<NodeEntry> all = parts_.table.All();
  FOREBAY_TRY(rendezvous::CheckMayTake(all, node));
  const NodeEntry& place = all[node.rank.value()];
  if (place == node) return {};
  if (node.rank == parts_.nodes.self()) {
    parts_.replaced(node);
    return {};
  }
  const bool is_lost = place.is_free() || !parts_.nodes.Lives(place.rank);
  const bool is_own = place.identity == node.identity;
  if (!is_lost || (!is_own && IsHeld(place.rank))) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{} cannot join the job in the place of {}, which {} {}",
                             node.identity.Text(), place.Text(),
                             is_lost ? "has only just joined, as is known to" : "answers",
                             parts_.table.Name(parts_.nodes.self())));
  }
  log::Info("{} joins the job at {}, in the place of {}", node.Text(), node.address.Text(),
            place.Text());
  FOREBAY_TRY(parts_.taken(node));
  held_until_ns_[node.rank] = parts_.clock.NowNs() + kHeldNs;
  return {};
}

void Arrival::Tick() {
  if (!has_begun_) return;
  if (has_staged_ && has_staged_()) {
    has_staged_ = nullptr;
    parts_.nodes.SetYields(plan::YieldReason::kArrives, false);
    log::Info("this node has taken over the part of its place, as far as its tiers have room, and "
              "reads the GFS for others from now on");
  }
  TellOthers(parts_.clock.NowNs());
  TellTheOneBefore(parts_.clock.NowNs());
}

// A node that is dead to this one is told when it answers again.
std::vector<NodeRank> Arrival::WhomToTell() {
  const auto& nodes = parts_.nodes.nodes();
  next_again_ = (next_again_ + 1) % nodes.size();
  std::vector<NodeRank> found;
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodeRank node = nodes[i].rank;
    if (node == parts_.nodes.self() || under_way_.count(node) != 0) continue;
    if (parts_.is_dead(node)) {
      told_.erase(node);
      continue;
    }
    if (told_.count(node) != 0 && i != next_again_) continue;
    if (under_way_.size() >= kToldAtATimeMax) continue;
    found.push_back(node);
    under_way_.insert(node);
  }
  return found;
}

// Nodes may disagree for a moment about who answers, and all of a large job refuse this one until
// they have found that the node before is lost. One that goes on to refuse means that two nodes
// have taken one place, which somebody has to end.
void Arrival::NoteTold(NodeRank node, const Status& told) {
  const bool is_refused =
      !told.has_value() && told.error().code() == ErrorCode::kFailedPrecondition;
  bool is_said = false;
  {
    const MutexLock lock(mutex_);
    under_way_.erase(node);
    if (told.has_value()) {
      told_.insert(node);
      refusals_.erase(node);
    }
    if (is_refused) {
      told_.erase(node);
      is_said = ++refusals_[node] >= kRefusalsSaid && !std::exchange(has_said_refusal_, true);
    }
  }
  if (!is_said) return;
  log::Warn("another node does not take this one for the node in its place, and reads what it has "
            "elsewhere; if another node is there, stop one of the two daemons: {}",
            told.error().message());
}

// It counted as dead, and may only have stood still. If it went on, two nodes would use one share
// of the caps, and others would take both for finished when one of them has.
void Arrival::TellTheOneBefore(std::int64_t now_ns) {
  if (now_ns < next_before_ns_) return;
  next_before_ns_ = now_ns + kTellBeforeNs;
  {
    const MutexLock lock(mutex_);
    if (!tells_before_) return;
  }
  const NodeRank self = parts_.nodes.self();
  parts_.tell(self, parts_.table.At(self), [this](const Status& told) {
    const MutexLock lock(mutex_);
    if (!told.has_value()) return;
    tells_before_ = false;
    has_told_before_ = true;
  });
}

bool Arrival::HasToldTheOneBefore() {
  const MutexLock lock(mutex_);
  return has_told_before_;
}

void Arrival::TellOthers(std::int64_t now_ns) {
  if (now_ns < next_round_ns_) return;
  next_round_ns_ = now_ns + kTellAgainNs;
  const NodeEntry own = parts_.table.At(parts_.nodes.self());
  for (const NodeRank node : WhomToTell()) {
    parts_.tell(node, own, [this, node](const Status& told) { NoteTold(node, told); });
  }
}

}  // namespace forebay::daemon
