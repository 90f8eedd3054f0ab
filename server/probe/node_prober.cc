// Each step of the protocol takes the mutex, asks Prober what to send, and sends it without the
// mutex, because the transport may call back at once.
#include "server/probe/node_prober.h"

#include <utility>

#include "server/io/log.h"

namespace forebay::probe {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
// How many nodes that did not answer a request of this node are probed in a period. If there are
// more, the link of this node is broken rather than theirs, and they are probed in turn.
constexpr std::size_t kSilentProbesMax = 4;

}  // namespace

NodeProber::NodeProber(const NodeProberParts& parts)
    : parts_(parts),
      prober_({.self = parts.nodes.self(),
               .node_count = parts.nodes.nodes().size(),
               .free = parts.free,
               .period_ms = parts.period_ms,
               .suspicion_ms = parts.suspicion_ms,
               .seed = parts.seed}) {
  for (const NodeRank node : parts.free) parts.nodes.SetLives(node, false);
}

void NodeProber::Tick() {
  std::vector<Prober::Probe> probes;
  std::vector<News> changes;
  {
    const MutexLock lock(mutex_);
    // The caller may be a little early, and may call for other reasons.
    if (NowMs() < next_ms_) return;
    next_ms_ = NowMs() + parts_.period_ms - parts_.period_ms / 20;
    probes = ProbesOfSilentLocked();
    for (Prober::Probe& probe : prober_.BeginPeriod(NowMs())) probes.push_back(std::move(probe));
    changes = TakeChangesLocked();
  }
  Announce(changes);
  for (Prober::Probe& probe : probes) Send(std::move(probe));
}

void NodeProber::HearLoss(NodeRank node, std::string_view how) {
  log::Warn("the launcher says that {} has ended ({}); it is not used until it answers a probe",
            parts_.name(node), how);
  parts_.nodes.SetLives(node, false);
}

void NodeProber::Occupy(NodeRank node) {
  const MutexLock lock(mutex_);
  prober_.Occupy(node);
  parts_.nodes.SetLives(node, false);
}

// These are the nodes of which a room has told Membership that they did not answer a request, or
// the launcher that they have ended.
std::vector<Prober::Probe> NodeProber::ProbesOfSilentLocked() {
  std::vector<Prober::Probe> probes;
  const std::size_t count = parts_.nodes.nodes().size();
  const std::size_t begin = next_silent_;
  for (std::size_t i = 0; i < count && probes.size() < kSilentProbesMax; ++i) {
    next_silent_ = (begin + i + 1) % count;
    const NodeRank node = parts_.nodes.nodes()[(begin + i) % count].rank;
    if (parts_.nodes.Lives(node) || prober_.state(node) == NodeState::kDead) continue;
    if (parts_.nodes.IsResting(node, parts_.clock.NowNs())) continue;
    if (!prober_.IsOwnTurn()) continue;
    probes.push_back({.to = node, .round = 0, .gossip = prober_.GossipFor(node)});
  }
  return probes;
}

void NodeProber::Send(Prober::Probe probe) {
  // A helper needs time for a probe of its own. The last fifth is left for delays.
  const std::int64_t answer_ms =
      probe.target ? (parts_.period_ms - parts_.answer_ms) * 4 / 5 : parts_.answer_ms;
  const std::int64_t deadline_ns = parts_.clock.NowNs() + answer_ms * kNsPerMs;
  const NodeRank to = probe.to;
  const std::optional<NodeRank> target = probe.target;
  const Gossip gossip = std::exchange(probe.gossip, {});
  parts_.transport.Probe(to, target, gossip, deadline_ns,
                         [this, probe = std::move(probe)](
                             const Result<ProbeTransport::Answer>& answer) {
                           Ended(probe, answer);
                         });
}

void NodeProber::Ended(const Prober::Probe& probe, const Result<ProbeTransport::Answer>& answer) {
  std::vector<Prober::Probe> probes;
  std::vector<News> changes;
  bool is_back = false;
  bool is_dead = false;
  {
    const MutexLock lock(mutex_);
    if (answer.has_value()) {
      probes = prober_.Answered(probe, answer->gossip, answer->has_answered, NowMs());
    } else {
      probes = prober_.Missed(probe, NowMs());
      // In a period of its own, with helpers, the protocol finds out whether the node is lost.
      if (probe.round == 0) prober_.Doubt(probe.to);
    }
    changes = TakeChangesLocked();
    is_dead = prober_.state(probe.to) == NodeState::kDead;
    // An answer that was sent before the node was found dead is no reason to use it, and a node
    // that is starting does not supply anything yet: the report of a helper does not say whether
    // the helper itself serves. One that rests answers probes, and is too slow for requests.
    is_back = answer.has_value() && answer->has_answered && !probe.target && !is_dead &&
              !parts_.nodes.Lives(probe.to) &&
              !parts_.nodes.IsResting(probe.to, parts_.clock.NowNs());
    if (is_back) {
      parts_.nodes.SetLives(probe.to, true);
      // It may have begun to rest after it was asked above.
      is_back = !parts_.nodes.IsResting(probe.to, parts_.clock.NowNs());
      if (!is_back) parts_.nodes.SetLives(probe.to, false);
    }
  }
  Announce(changes);
  if (is_back) log::Info("{} answers again", parts_.name(probe.to));
  // Some requests may have come to the connection only after the node was found dead.
  if (is_dead && !answer.has_value()) parts_.transport.GiveUp(probe.to);
  for (Prober::Probe& next : probes) Send(std::move(next));
}

Gossip NodeProber::Hear(NodeRank from, const Gossip& gossip) {
  const MutexLock lock(mutex_);
  // Changes are announced by Tick, because the other node waits for this answer.
  return prober_.Hear(from, gossip, NowMs());
}

void NodeProber::ProbeFor(NodeRank from, const Gossip& gossip, NodeRank target,
                          std::function<void(const ProbeTransport::Answer&)> done) {
  Gossip for_target;
  Gossip answer;
  {
    const MutexLock lock(mutex_);
    answer = prober_.Hear(from, gossip, NowMs());
    for_target = prober_.GossipFor(target);
  }
  // The node that asks waits for 4/5 of period_ms - answer_ms, so half of it leaves time to report.
  const std::int64_t deadline_ns =
      parts_.clock.NowNs() + (parts_.period_ms - parts_.answer_ms) / 2 * kNsPerMs;
  parts_.transport.Probe(
      target, {}, for_target, deadline_ns,
      [this, target, answer = std::move(answer),
       done = std::move(done)](const Result<ProbeTransport::Answer>& heard) {
        done({.gossip = answer, .has_answered = heard.has_value()});
        if (heard.has_value()) Ended({.to = target, .round = 0}, heard);
      });
}

NodeState NodeProber::state(NodeRank node) {
  const MutexLock lock(mutex_);
  return prober_.state(node);
}

// Membership changes together with the protocol, under the mutex, so an older answer cannot undo
// newer news. A node that has refuted its death is used again once it has answered this node.
std::vector<News> NodeProber::TakeChangesLocked() {
  std::vector<News> changes = prober_.TakeChanges();
  for (const News& change : changes) {
    if (change.state == NodeState::kDead) parts_.nodes.SetLives(change.node, false);
  }
  return changes;
}

void NodeProber::Announce(const std::vector<News>& changes) {
  for (const News& change : changes) {
    if (change.state == NodeState::kDead) {
      log::Warn("{} does not answer probes, and counts as dead; its groups are read by their next "
                "nodes",
                parts_.name(change.node));
      parts_.transport.GiveUp(change.node);
    } else {
      log::Info("{} counts as dead no longer", parts_.name(change.node));
    }
  }
}

}  // namespace forebay::probe
