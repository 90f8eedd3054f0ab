// The table of what is known about each node is the only truth; `topics_` says of which nodes
// others are to be told, and what they are told is read from the table when a message is made. So
// news that were outdated while they waited are never sent.
#include "server/probe/prober.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/mix64.h"

namespace forebay::probe {
namespace {

// The paper has three: more find a node alive whose own connection to this one fails, and cost as
// many messages.
constexpr std::size_t kHelpers = 3;
// So many other nodes are probed, too, in periods in which there are news, to spread them faster
// than one probe and its answer do: an objection must reach all nodes before the suspicion ends.
constexpr std::size_t kGossipProbes = 2;
// Each piece of news is sent this many times the logarithm (base 2) of the number of nodes.
constexpr std::size_t kSendsFactor = 3;
// More is not believed at once. A node raises its incarnation by one at a time, so it takes a job
// of years to come that far; one absurd number in a message must not use up all that there are.
constexpr std::uint64_t kIncarnationStepMax = 1 << 20;
// A node believes less of itself, so that all others believe what it makes of it.
constexpr std::uint64_t kOwnIncarnationStepMax = 1 << 10;
// Nodes that are dead, or silent, are probed by so many others in a second, and not by all nodes of
// a large job.
constexpr std::size_t kProbesOfOneMax = 64;
// After so many probes in a row that were missed, this node may be the one that is cut off or slow.
constexpr std::size_t kMissedInARowMax = 2;
// A doubted node is probed in every second period only, so the others come to their turn, too.
constexpr std::uint64_t kDoubtPeriods = 2;
// Once in so many periods, a dead node is probed, too: it may be back, or the link to it.
constexpr std::uint64_t kDeadProbePeriods = 5;

std::size_t SendsMax(std::size_t node_count) {
  return kSendsFactor * static_cast<std::size_t>(std::bit_width(node_count));
}

std::int64_t SuspicionMs(const ProberSettings& settings) {
  const double factor = std::max(1.0, std::log10(static_cast<double>(settings.node_count)));
  return static_cast<std::int64_t>(factor * static_cast<double>(settings.suspicion_ms));
}

NodeRank RankOf(std::size_t node) { return NodeRank(static_cast<std::uint32_t>(node)); }

// Whether news outweigh what is known. For the same incarnation, the worse news do; a node is heard
// alive with a higher incarnation only from itself, so that outweighs all that was said before.
bool Outweighs(const News& news, NodeState state, std::uint64_t incarnation) {
  return news.incarnation != incarnation ? news.incarnation > incarnation : news.state > state;
}

}  // namespace

Prober::Prober(const ProberSettings& settings)
    : self_(settings.self.value()),
      period_ms_(settings.period_ms),
      suspicion_ms_(SuspicionMs(settings)),
      sends_max_(SendsMax(settings.node_count)),
      random_(settings.seed),
      nodes_(settings.node_count),
      order_(settings.node_count, NextWord64(random_)) {
  FOREBAY_CHECK(self_ < nodes_.size());
}

std::vector<Prober::Probe> Prober::BeginPeriod(std::int64_t now_ms) {
  if (began_ms_ && now_ms - *began_ms_ > 2 * period_ms_) {
    // This process stood still, so others had no chance to be heard.
    const std::int64_t lost_ms = now_ms - *began_ms_ - period_ms_;
    for (Suspicion& suspicion : suspicions_) suspicion.until_ms += lost_ms;
  }
  began_ms_ = now_ms;
  ++periods_;
  EndSuspicions(now_ms);
  // A round of which not all answers are known yet is forgotten: whoever was slow, nothing follows.
  round_ = {.number = periods_, .target = NextToProbe()};
  std::vector<Probe> probes;
  if (round_.target) {
    const NodeRank to = RankOf(*round_.target);
    probes.push_back({.to = to, .round = periods_, .gossip = GossipFor(to)});
  }
  if (!topics_.empty()) {
    for (const std::size_t node : ChooseOthers(kGossipProbes, round_.target)) {
      probes.push_back({.to = RankOf(node), .round = 0, .gossip = GossipFor(RankOf(node))});
    }
  }
  if (periods_ % kDeadProbePeriods == 0) {
    if (const std::optional<std::size_t> dead = NextDead()) {
      probes.push_back({.to = RankOf(*dead), .round = 0, .gossip = GossipFor(RankOf(*dead))});
    }
  }
  return probes;
}

void Prober::Answered(const Probe& probe, const Gossip& answer, bool has_answered,
                      std::int64_t now_ms) {
  if (probe.round == round_.number) {
    if (has_answered) round_.target.reset();
    if (!probe.target) missed_in_a_row_ = 0;
    if (probe.target && !has_answered) HelperFailed(now_ms);
  }
  Hear(probe.to, answer, now_ms);
}

std::vector<Prober::Probe> Prober::Missed(const Probe& probe, std::int64_t now_ms) {
  if (probe.round != round_.number || !round_.target) return {};
  if (probe.target) {
    HelperFailed(now_ms);
    return {};
  }
  // That a suspected node is silent says nothing about this one.
  if (state(probe.to) == NodeState::kAlive) ++missed_in_a_row_;
  std::vector<Probe> probes;
  for (const std::size_t helper : ChooseOthers(kHelpers, round_.target)) {
    const NodeRank to = RankOf(helper);
    probes.push_back(
        {.to = to, .target = probe.to, .round = probe.round, .gossip = GossipFor(to)});
  }
  round_.helpers = probes.size();
  if (probes.empty()) SuspectTarget(now_ms);
  return probes;
}

// A helper that is silent itself counts like one that did not reach the target. If it is this node
// that is cut off, its suspicions do no harm: the others are told of them, and object.
void Prober::HelperFailed(std::int64_t now_ms) {
  if (!round_.target || round_.helpers == 0) return;
  if (--round_.helpers == 0) SuspectTarget(now_ms);
}

void Prober::SuspectTarget(std::int64_t now_ms) {
  const std::size_t node = *round_.target;
  round_.target.reset();
  if (nodes_[node].state == NodeState::kAlive) {
    Believe({.node = RankOf(node),
             .state = NodeState::kSuspected,
             .incarnation = nodes_[node].incarnation},
            now_ms);
  }
  // It is probed again soon, so it hears what is said of it, and its answer is heard.
  Doubt(RankOf(node));
}

Gossip Prober::Hear(NodeRank from, const Gossip& gossip, std::int64_t now_ms) {
  const News of_sender{
      .node = from, .state = NodeState::kAlive, .incarnation = gossip.incarnation};
  const Known& known = nodes_[from.value()];
  // What a node says of itself is believed, whatever the number.
  if (from.value() != self_ && Outweighs(of_sender, known.state, known.incarnation)) {
    Believe(of_sender, now_ms);
  }
  for (const News& news : gossip.news) Learn(news, now_ms);
  return GossipFor(from);
}

// The node that gets the message comes first if it has something to object to.
Gossip Prober::GossipFor(NodeRank to) {
  Gossip gossip{.incarnation = incarnation()};
  const std::size_t reader = to.value();
  if (state(to) != NodeState::kAlive) gossip.news.push_back(NewsOf(reader));
  // Those that were sent least often are the ones that fewest nodes know.
  const std::size_t count = std::min(topics_.size(), limits::kGossipNewsMax - 1);
  std::ranges::partial_sort(topics_, topics_.begin() + static_cast<std::ptrdiff_t>(count), {},
                            &Topic::sent);
  for (std::size_t i = 0; i < count; ++i) {
    Topic& topic = topics_[i];
    if (topic.node == reader) continue;  // it has been told, or knows best
    gossip.news.push_back(NewsOf(topic.node));
    ++topic.sent;
  }
  std::erase_if(topics_, [this](const Topic& topic) { return topic.sent >= sends_max_; });
  return gossip;
}

void Prober::Doubt(NodeRank node) {
  if (state(node) == NodeState::kDead || std::ranges::count(doubted_, node.value()) > 0) return;
  doubted_.push_back(node.value());
}

std::vector<News> Prober::TakeChanges() { return std::exchange(changes_, {}); }

// News of others. A death that is heard of is taken for a suspicion: the node is told, and may
// object. Otherwise a node that was cut off for a while would have all others taken for dead,
// because it could reach none of them. That costs no time, because whoever hears of a death in the
// ordinary course has suspected the node for nearly as long as the one that has found it dead.
void Prober::Learn(News news, std::int64_t now_ms) {
  if (news.node.value() == self_) return LearnAboutSelf(news);
  const Known& known = nodes_[news.node.value()];
  if (news.incarnation > known.incarnation + kIncarnationStepMax) return;
  if (news.state == NodeState::kDead) news.state = NodeState::kSuspected;
  if (Outweighs(news, known.state, known.incarnation)) Believe(news, now_ms);
}

void Prober::Believe(const News& news, std::int64_t now_ms) {
  const std::size_t node = news.node.value();
  Known& known = nodes_[node];
  const bool was_dead = known.state == NodeState::kDead;
  known = {.state = news.state, .incarnation = news.incarnation};
  if (news.state == NodeState::kSuspected) {
    suspicions_.push_back(
        {.node = node, .incarnation = news.incarnation, .until_ms = now_ms + suspicion_ms_});
  }
  const bool is_dead = news.state == NodeState::kDead;
  if (is_dead != was_dead) {
    if (is_dead) {
      ++dead_count_;
    } else {
      --dead_count_;
    }
    changes_.push_back(news);
  }
  PassOn(node);
}

// A node that was started again hears of its former incarnation, too, and goes beyond it.
void Prober::LearnAboutSelf(const News& news) {
  Known& self = nodes_[self_];
  if (!Outweighs(news, self.state, self.incarnation)) return;
  if (news.incarnation > self.incarnation + kOwnIncarnationStepMax) return;
  self.incarnation = news.incarnation + 1;
  PassOn(self_);
}

void Prober::PassOn(std::size_t node) {
  std::erase_if(topics_, [node](const Topic& topic) { return topic.node == node; });
  topics_.push_back({.node = node});
}

void Prober::EndSuspicions(std::int64_t now_ms) {
  for (Suspicion& suspicion : std::exchange(suspicions_, {})) {
    const Known& known = nodes_[suspicion.node];
    // Otherwise it has objected, or somebody else has found it dead.
    if (known.state != NodeState::kSuspected || known.incarnation != suspicion.incarnation) {
      continue;
    }
    const bool is_over = suspicion.until_ms <= now_ms;
    if (is_over && (missed_in_a_row_ < kMissedInARowMax || suspicion.is_extended)) {
      Believe({.node = RankOf(suspicion.node),
               .state = NodeState::kDead,
               .incarnation = suspicion.incarnation},
              now_ms);
      continue;
    }
    if (is_over) {
      suspicion.is_extended = true;
      suspicion.until_ms = now_ms + suspicion_ms_;
    }
    suspicions_.push_back(suspicion);
  }
}

// A doubted node, or the next of the list.
std::optional<std::size_t> Prober::NextToProbe() {
  while (periods_ % kDoubtPeriods == 0 && !doubted_.empty()) {
    const std::size_t node = doubted_.front();
    doubted_.erase(doubted_.begin());
    if (nodes_[node].state != NodeState::kDead) return node;
  }
  // The rest of this list and all of the next one: between them stands this node twice, perhaps.
  for (std::size_t i = 0; i < 2 * nodes_.size(); ++i) {
    if (next_in_order_ == nodes_.size()) {
      order_ = KeyedPermutation(nodes_.size(), NextWord64(random_));
      next_in_order_ = 0;
    }
    const std::size_t node = order_.Forward(next_in_order_++);
    if (node != self_ && nodes_[node].state != NodeState::kDead) return node;
  }
  return std::nullopt;
}

bool Prober::IsOwnTurn() { return NextWord64(random_) % nodes_.size() < kProbesOfOneMax; }

std::optional<std::size_t> Prober::NextDead() {
  if (dead_count_ == 0 || !IsOwnTurn()) return std::nullopt;
  while (nodes_[next_dead_ % nodes_.size()].state != NodeState::kDead) ++next_dead_;
  return next_dead_++ % nodes_.size();
}

// At random.
std::vector<std::size_t> Prober::ChooseOthers(std::size_t count,
                                              std::optional<std::size_t> except) {
  std::vector<std::size_t> others;
  const KeyedPermutation draws(nodes_.size(), NextWord64(random_));
  for (std::size_t i = 0; i < nodes_.size() && others.size() < count; ++i) {
    const std::size_t node = draws.Forward(i);
    if (node == self_ || node == except || nodes_[node].state != NodeState::kAlive) continue;
    others.push_back(node);
  }
  return others;
}

News Prober::NewsOf(std::size_t node) const {
  return {.node = RankOf(node),
          .state = nodes_[node].state,
          .incarnation = nodes_[node].incarnation};
}

}  // namespace forebay::probe
