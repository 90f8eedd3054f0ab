// `nodes_` has what is known about each node. `topics_` says about which nodes others are to be
// told; what they are told is read from `nodes_` when a message is made, so outdated news is never
// sent.
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

// As in the paper. More helpers are more likely to reach a node, and cost more messages.
constexpr std::size_t kHelpers = 3;
// In a period in which there is news, so many other nodes are probed as well. A refutation must
// reach all nodes before the suspicion ends, and one probe a period would be too slow for that.
constexpr std::size_t kGossipProbes = 2;
// Each piece of news is sent this many times the logarithm (base 2) of the number of nodes.
constexpr std::size_t kSendsFactor = 3;
// News about an incarnation that is higher than the known one by more than this is ignored. A node
// raises its number by one at a time, so only an absurd message has such a number.
constexpr std::uint64_t kIncarnationStepMax = 1 << 20;
// The limit for news that a node hears about itself. It is smaller than the limit for other news,
// so that the number which the node then takes is accepted even by nodes that take it for new.
// A daemon that is started again begins at 0, and has to go beyond all refutations that its place
// has made: with one suspicion in each second, this limit is reached after six days.
constexpr std::uint64_t kOwnIncarnationStepMax = kIncarnationStepMax / 2;
// See IsOwnTurn.
constexpr std::size_t kProbesOfOneMax = 64;
// After so many nodes in a row that did not answer, this node may be the one that is cut off.
constexpr std::size_t kMissedInARowMax = 2;
// Doubted nodes are probed in every second period only, so that all other nodes are probed, too.
constexpr std::uint64_t kDoubtPeriods = 2;
// How many of the nodes that have taken places are probed in a period, and how often each.
constexpr std::size_t kArrivalsMax = 16;
constexpr std::size_t kProbesOfArrivalMax = 10;
// Once in so many periods one of the dead nodes is probed as well: it may be back.
constexpr std::uint64_t kDeadProbePeriods = 5;

std::size_t SendsMax(std::size_t node_count) {
  return kSendsFactor * static_cast<std::size_t>(std::bit_width(node_count));
}

std::int64_t SuspicionMs(const ProberSettings& settings) {
  const double factor = std::max(1.0, std::log10(static_cast<double>(settings.node_count)));
  return static_cast<std::int64_t>(factor * static_cast<double>(settings.suspicion_ms));
}

NodeRank RankOf(std::size_t node) { return NodeRank(static_cast<std::uint32_t>(node)); }

// Whether news replaces what is known: it does if it is about a higher incarnation, or if it is
// worse and about the same one.
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
  for (const NodeRank node : settings.free) {
    FOREBAY_CHECK(node.value() != self_ && node.value() < nodes_.size());
    nodes_[node.value()] = {.state = NodeState::kDead, .is_free = true};
  }
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
  // If answers of the last round are still missing, nobody is suspected because of it.
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
  for (const std::size_t node : NextArrivals()) {
    probes.push_back({.to = RankOf(node), .round = 0, .gossip = GossipFor(RankOf(node))});
  }
  return probes;
}

std::vector<Prober::Probe> Prober::Answered(const Probe& probe, const Gossip& answer,
                                            bool has_answered, std::int64_t now_ms) {
  if (probe.round == round_.number) {
    if (has_answered) round_.target.reset();
    if (!probe.target) missed_in_a_row_ = 0;
    if (probe.target && !has_answered) HelperFailed(now_ms);
  }
  Hear(probe.to, answer, now_ms);
  // Hear has raised the incarnation above that of wrong news. If the answer to a refutation is
  // wrong again, that node does not listen, and gets no second one.
  const bool is_wrong = std::ranges::any_of(answer.news, [this](const News& news) {
    return news.node.value() == self_ && news.state != NodeState::kAlive &&
           news.incarnation < incarnation();
  });
  if (!is_wrong || probe.is_refutation) return {};
  return {{.to = probe.to, .gossip = GossipFor(probe.to), .is_refutation = true}};
}

std::vector<Prober::Probe> Prober::Missed(const Probe& probe, std::int64_t now_ms) {
  if (probe.round != round_.number || !round_.target) return {};
  if (probe.target) {
    HelperFailed(now_ms);
    return {};
  }
  // The silence of a node that is suspected already is no evidence against this node.
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

// A helper that does not report counts like one that did not reach the target. If it is this node
// that is cut off, its suspicions do no harm, because the suspected nodes refute them.
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
  // It is probed again soon: so it hears that it is suspected, and its refutation is heard.
  Doubt(RankOf(node));
}

Gossip Prober::Hear(NodeRank from, const Gossip& gossip, std::int64_t now_ms) {
  const News of_sender{
      .node = from, .state = NodeState::kAlive, .incarnation = gossip.incarnation};
  const Known& known = nodes_[from.value()];
  // A node that speaks about itself is believed, whatever incarnation it names.
  if (from.value() != self_ && Outweighs(of_sender, known.state, known.incarnation)) {
    Believe(of_sender, now_ms);
  }
  for (const News& news : gossip.news) Learn(news, now_ms);
  return GossipFor(from);
}

// The news that the receiver has to refute comes first.
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
    if (topic.node == reader) continue;  // it was told above, or knows best itself
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

void Prober::Occupy(NodeRank node) {
  if (std::exchange(nodes_[node.value()].is_free, false)) ++dead_count_;
  std::erase_if(arrivals_,
                [node](const Arrival& arrival) { return arrival.node == node.value(); });
  arrivals_.push_back({.node = node.value()});
}

std::vector<News> Prober::TakeChanges() { return std::exchange(changes_, {}); }

// News that was heard. The news that a node is dead is taken as a suspicion, which the node can
// refute. Otherwise a node that was cut off for a while, and so reached nobody, would have all
// others taken for dead. This costs no time: in the ordinary course, a node that hears of a death
// has suspected the dead node for nearly as long as the one that has found it dead.
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
  // Somebody has taken the place, of which others know sooner than this node.
  if (known.is_free) ++dead_count_;
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

// Refutes the news. A daemon that was started again hears about its former incarnation here, and
// takes a higher one.
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
    // Otherwise it has refuted the suspicion, or was suspected again with another incarnation.
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

// Returns a doubted node, or the next one of the list.
std::optional<std::size_t> Prober::NextToProbe() {
  while (periods_ % kDoubtPeriods == 0 && !doubted_.empty()) {
    const std::size_t node = doubted_.front();
    doubted_.erase(doubted_.begin());
    if (nodes_[node].state != NodeState::kDead) return node;
  }
  // The rest of this list and the whole next one are searched, because both may begin with this
  // node.
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
  for (;;) {
    const std::size_t node = next_dead_++ % nodes_.size();
    if (nodes_[node].state == NodeState::kDead && !nodes_[node].is_free) return node;
  }
}

// Returns some of the nodes that have taken places, in turn. All nodes of a large job probe such a
// node once; if it does not answer, not all of them do so again.
std::vector<std::size_t> Prober::NextArrivals() {
  std::erase_if(arrivals_, [this](const Arrival& arrival) {
    const bool is_dead = nodes_[arrival.node].state == NodeState::kDead;
    return arrival.probes == kProbesOfArrivalMax || (arrival.probes > 0 && !is_dead);
  });
  std::vector<std::size_t> next;
  for (std::size_t i = std::min(arrivals_.size(), kArrivalsMax); i > 0; --i) {
    Arrival arrival = arrivals_.front();
    arrivals_.pop_front();
    if (arrival.probes++ == 0 || IsOwnTurn()) next.push_back(arrival.node);
    arrivals_.push_back(arrival);
  }
  return next;
}

// Chooses nodes that are alive, at random.
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
