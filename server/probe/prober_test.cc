// Prober, step by step: what one node sends, and what it concludes.
#include "server/probe/prober.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/limits.h"

namespace forebay::probe::prober_test {

constexpr std::int64_t kPeriodMs = 1000;
constexpr std::int64_t kSuspicionMs = 5000;

ProberSettings Settings(std::size_t nodes) {
  return {.self = NodeRank(0),
          .node_count = nodes,
          .period_ms = kPeriodMs,
          .suspicion_ms = kSuspicionMs,
          .seed = 1};
}

class ProberTest : public testing::Test {
 protected:
  // Begins the next period.
  std::vector<Prober::Probe> Next() {
    now_ms_ += kPeriodMs;
    return prober_.BeginPeriod(now_ms_);
  }
  // The next period, in which the node that is probed does not answer, nor do helpers reach it.
  NodeRank MissNext() {
    const Prober::Probe probe = Next().at(0);
    Miss(probe);
    return probe.to;
  }
  void Miss(const Prober::Probe& probe) {
    for (const Prober::Probe& helped : prober_.Missed(probe, now_ms_)) {
      prober_.Answered(helped, {}, /*has_answered=*/false, now_ms_);
    }
  }
  // Periods in which everybody answers who is not suspected or dead.
  void AnswerFor(std::int64_t ms) {
    for (const std::int64_t end_ms = now_ms_ + ms; now_ms_ < end_ms;) {
      for (const Prober::Probe& probe : Next()) {
        if (prober_.state(probe.to) == NodeState::kAlive) {
          prober_.Answered(probe, {}, /*has_answered=*/true, now_ms_);
        } else {
          Miss(probe);
        }
      }
    }
  }
  // This node has suspected it for long enough.
  void FindDead(NodeRank node) {
    prober_.Hear(NodeRank(3), {.news = {{node, NodeState::kSuspected, 0}}}, now_ms_);
    AnswerFor(kSuspicionMs + kPeriodMs);
    ASSERT_EQ(prober_.state(node), NodeState::kDead);
  }

  std::int64_t now_ms_ = 0;
  Prober prober_{Settings(6)};
};

TEST_F(ProberTest, ComesToEachNodeOnceInARound) {
  for (int round = 0; round < 3; ++round) {
    std::set<NodeRank> probed;
    for (int i = 0; i < 5; ++i) {
      const std::vector<Prober::Probe> probes = Next();
      ASSERT_EQ(probes.size(), 1U);
      probed.insert(probes[0].to);
      prober_.Answered(probes[0], {}, true, now_ms_);
    }
    EXPECT_EQ(probed.size(), 5U);
    EXPECT_FALSE(probed.contains(NodeRank(0)));
  }
}

TEST_F(ProberTest, AMissedProbeIsRepeatedByThreeOthers) {
  const Prober::Probe probe = Next().at(0);
  const std::vector<Prober::Probe> helped = prober_.Missed(probe, now_ms_);
  ASSERT_EQ(helped.size(), 3U);
  std::set<NodeRank> helpers;
  for (const Prober::Probe& help : helped) {
    EXPECT_EQ(help.target, probe.to);
    helpers.insert(help.to);
  }
  EXPECT_EQ(helpers.size(), 3U);
  EXPECT_FALSE(helpers.contains(probe.to));
  // One is silent, one does not reach it, and one does, so it is not suspected.
  EXPECT_TRUE(prober_.Missed(helped[0], now_ms_).empty()) << "helpers have no helpers";
  prober_.Answered(helped[1], {}, /*has_answered=*/false, now_ms_);
  prober_.Answered(helped[2], {}, /*has_answered=*/true, now_ms_);
  Next();
  EXPECT_EQ(prober_.state(probe.to), NodeState::kAlive);
}

TEST_F(ProberTest, WhoIsReachedByNobodyIsSuspectedAndThenDead) {
  const NodeRank node = MissNext();
  EXPECT_EQ(prober_.state(node), NodeState::kSuspected);
  EXPECT_TRUE(prober_.TakeChanges().empty()) << "a suspicion changes nothing yet";
  AnswerFor(kSuspicionMs - kPeriodMs);
  EXPECT_EQ(prober_.state(node), NodeState::kSuspected);
  AnswerFor(kPeriodMs);
  EXPECT_EQ(prober_.state(node), NodeState::kDead);
  const std::vector<News> changes = prober_.TakeChanges();
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0], (News{node, NodeState::kDead, 0}));
}

TEST_F(ProberTest, ASuspectedNodeThatRefutesThatLives) {
  const NodeRank node = MissNext();
  ASSERT_EQ(prober_.state(node), NodeState::kSuspected);
  // A message with the suspected incarnation refutes nothing, because it may be older than the
  // suspicion.
  prober_.Hear(node, {.incarnation = 0}, now_ms_);
  EXPECT_EQ(prober_.state(node), NodeState::kSuspected);
  prober_.Hear(node, {.incarnation = 1}, now_ms_);
  EXPECT_EQ(prober_.state(node), NodeState::kAlive);
  AnswerFor(2 * kSuspicionMs);
  EXPECT_EQ(prober_.state(node), NodeState::kAlive);
  EXPECT_TRUE(prober_.TakeChanges().empty());
}

TEST_F(ProberTest, ANodeRefutesWhatIsSaidOfIt) {
  const Gossip answer = prober_.Hear(
      NodeRank(3), {.news = {{NodeRank(0), NodeState::kSuspected, 0}}}, now_ms_);
  EXPECT_EQ(answer.incarnation, 1U);
  EXPECT_EQ(std::ranges::count(answer.news, News{NodeRank(0), NodeState::kAlive, 1}), 1);
  // Older news are settled by that.
  prober_.Hear(NodeRank(4), {.news = {{NodeRank(0), NodeState::kDead, 0}}}, now_ms_);
  EXPECT_EQ(prober_.incarnation(), 1U);
}

TEST_F(ProberTest, AnAnswerThatCallsThisNodeDeadIsRefutedAtOnceAndOnce) {
  const Prober::Probe probe = Next().at(0);
  const Gossip wrong = {.news = {{NodeRank(0), NodeState::kDead, 4}}};
  const std::vector<Prober::Probe> refutations = prober_.Answered(probe, wrong, true, now_ms_);
  ASSERT_EQ(refutations.size(), 1U);
  EXPECT_EQ(refutations[0].to, probe.to);
  EXPECT_EQ(refutations[0].gossip.incarnation, 5U);
  EXPECT_FALSE(refutations[0].target.has_value());
  // A node that says so again and again gets no endless stream of probes.
  const Gossip again = {.news = {{NodeRank(0), NodeState::kDead, 5}}};
  EXPECT_TRUE(prober_.Answered(refutations[0], again, true, now_ms_).empty());
  EXPECT_EQ(prober_.incarnation(), 6U);
  // No answer to it makes nobody suspect that node.
  EXPECT_TRUE(prober_.Missed(refutations[0], now_ms_).empty());
  EXPECT_EQ(prober_.state(probe.to), NodeState::kAlive);
}

TEST_F(ProberTest, EachAnswerThatCallsThisNodeDeadIsRefuted) {
  const Gossip wrong = {.news = {{NodeRank(0), NodeState::kSuspected, 0}}};
  for (const std::uint32_t node : {1U, 2U, 3U}) {
    const Prober::Probe probe = {.to = NodeRank(node)};
    EXPECT_EQ(prober_.Answered(probe, wrong, true, now_ms_).size(), 1U) << node;
  }
  EXPECT_EQ(prober_.incarnation(), 1U);
  const Gossip right = {.news = {{NodeRank(0), NodeState::kAlive, 1}}};
  EXPECT_TRUE(prober_.Answered({.to = NodeRank(4)}, right, true, now_ms_).empty());
}

TEST_F(ProberTest, ANodeThatWasStartedAgainGoesBeyondItsFormerIncarnation) {
  prober_.Hear(NodeRank(3), {.news = {{NodeRank(0), NodeState::kAlive, 7}}}, now_ms_);
  EXPECT_EQ(prober_.incarnation(), 8U);
}

// Days of one suspicion after the other, which the node refutes, and then its daemon is killed.
TEST_F(ProberTest, ANodeThatWasStartedAgainGoesBeyondManyRefutations) {
  constexpr std::uint64_t kRefutations = 300'000;
  const NodeRank node(2);
  Prober before({.self = node, .node_count = 6});
  Gossip answer;
  for (std::uint64_t i = 0; i < kRefutations; ++i) {
    answer = before.Hear(NodeRank(0), {.news = {{node, NodeState::kSuspected, i}}}, now_ms_);
  }
  ASSERT_EQ(answer.incarnation, kRefutations);
  prober_.Hear(node, answer, now_ms_);
  Prober again({.self = node, .node_count = 6});
  prober_.Hear(NodeRank(3), {.news = {{node, NodeState::kSuspected, kRefutations}}}, now_ms_);
  AnswerFor(kSuspicionMs + kPeriodMs);
  ASSERT_EQ(prober_.state(node), NodeState::kDead);
  const Gossip refutation = again.Hear(NodeRank(0), prober_.GossipFor(node), now_ms_);
  prober_.Hear(node, refutation, now_ms_);
  EXPECT_EQ(prober_.state(node), NodeState::kAlive);
  // A third node that has heard nothing of it since its own start hears it from another one.
  Prober third({.self = NodeRank(4), .node_count = 6});
  third.Hear(NodeRank(0), {.news = {{node, NodeState::kSuspected, 0}}}, now_ms_);
  ASSERT_EQ(third.state(node), NodeState::kSuspected);
  third.Hear(NodeRank(0), prober_.GossipFor(NodeRank(4)), now_ms_);
  EXPECT_EQ(third.state(node), NodeState::kAlive);
}

TEST_F(ProberTest, WhoIsTakenForDeadIsToldSoFirst) {
  FindDead(NodeRank(2));
  for (int i = 0; i < 100; ++i) prober_.GossipFor(NodeRank(4));  // nobody else needs it any more
  EXPECT_TRUE(prober_.GossipFor(NodeRank(4)).news.empty());
  const Gossip answer = prober_.Hear(NodeRank(2), {.incarnation = 0}, now_ms_);
  ASSERT_FALSE(answer.news.empty());
  EXPECT_EQ(answer.news[0], (News{NodeRank(2), NodeState::kDead, 0}));
  prober_.Hear(NodeRank(2), {.incarnation = 1}, now_ms_);
  EXPECT_EQ(prober_.state(NodeRank(2)), NodeState::kAlive);
  EXPECT_EQ(prober_.TakeChanges().size(), 2U);
}

TEST_F(ProberTest, ADeathThatIsHeardOfIsASuspicion) {
  for (int i = 0; i < 10; ++i) {
    prober_.Hear(NodeRank(1), {.news = {{NodeRank(2), NodeState::kDead, 3}}}, now_ms_);
    EXPECT_EQ(prober_.state(NodeRank(2)), NodeState::kSuspected) << "often is no proof, either";
  }
  AnswerFor(kSuspicionMs + kPeriodMs);
  EXPECT_EQ(prober_.state(NodeRank(2)), NodeState::kDead);
  prober_.Hear(NodeRank(1), {.news = {{NodeRank(2), NodeState::kDead, 4}}}, now_ms_);
  EXPECT_EQ(prober_.state(NodeRank(2)), NodeState::kSuspected) << "it lived after that";
}

TEST_F(ProberTest, AnAbsurdIncarnationIsNotBelieved) {
  constexpr std::uint64_t kOwnStepMax = 1 << 19;
  prober_.Hear(NodeRank(1), {.news = {{NodeRank(0), NodeState::kDead, limits::kIncarnationMax},
                                      {NodeRank(2), NodeState::kAlive, limits::kIncarnationMax}}},
               now_ms_);
  EXPECT_EQ(prober_.incarnation(), 0U);
  prober_.Hear(NodeRank(1), {.news = {{NodeRank(2), NodeState::kSuspected, 0}}}, now_ms_);
  EXPECT_EQ(prober_.state(NodeRank(2)), NodeState::kSuspected);
  // The incarnation that a node takes after such news is accepted by others, whether they hear it
  // from the node or from a third one.
  prober_.Hear(NodeRank(1), {.news = {{NodeRank(0), NodeState::kDead, kOwnStepMax + 1}}},
               now_ms_);
  EXPECT_EQ(prober_.incarnation(), 0U);
  prober_.Hear(NodeRank(1), {.news = {{NodeRank(0), NodeState::kDead, kOwnStepMax}}}, now_ms_);
  EXPECT_EQ(prober_.incarnation(), kOwnStepMax + 1);
  prober_.Hear(NodeRank(1), {.news = {{NodeRank(3), NodeState::kAlive, kOwnStepMax + 1}}},
               now_ms_);
  prober_.Hear(NodeRank(1), {.news = {{NodeRank(3), NodeState::kSuspected, kOwnStepMax}}},
               now_ms_);
  EXPECT_EQ(prober_.state(NodeRank(3)), NodeState::kAlive);
  prober_.Hear(NodeRank(2), {.incarnation = limits::kIncarnationMax}, now_ms_);
  EXPECT_EQ(prober_.state(NodeRank(2)), NodeState::kAlive);
}

TEST_F(ProberTest, OfTwoPiecesOfNewsTheHigherIncarnationCountsAndThenTheWorse) {
  const auto hear = [this](NodeState state, std::uint64_t incarnation) {
    prober_.Hear(NodeRank(1), {.news = {{NodeRank(2), state, incarnation}}}, now_ms_);
    return prober_.state(NodeRank(2));
  };
  EXPECT_EQ(hear(NodeState::kSuspected, 3), NodeState::kSuspected);
  EXPECT_EQ(hear(NodeState::kAlive, 3), NodeState::kSuspected);
  EXPECT_EQ(hear(NodeState::kSuspected, 2), NodeState::kSuspected);
  EXPECT_EQ(hear(NodeState::kAlive, 2), NodeState::kSuspected);
  AnswerFor(kSuspicionMs + kPeriodMs);
  EXPECT_EQ(hear(NodeState::kSuspected, 3), NodeState::kDead);
  EXPECT_EQ(hear(NodeState::kAlive, 4), NodeState::kAlive);
}

TEST_F(ProberTest, NewsGoToTwoMoreNodesInEachPeriod) {
  prober_.Hear(NodeRank(3), {.news = {{NodeRank(2), NodeState::kSuspected, 0}}}, now_ms_);
  const std::vector<Prober::Probe> probes = Next();
  ASSERT_EQ(probes.size(), 3U);
  std::set<NodeRank> told;
  for (const Prober::Probe& probe : probes) told.insert(probe.to);
  EXPECT_EQ(told.size(), 3U);
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_NE(probes[i].to, NodeRank(2));
    EXPECT_FALSE(probes[i].gossip.news.empty());
    EXPECT_TRUE(prober_.Missed(probes[i], now_ms_).empty());
    EXPECT_EQ(prober_.state(probes[i].to), NodeState::kAlive) << "that they miss it is no proof";
  }
  for (int i = 0; i < 10; ++i) prober_.GossipFor(NodeRank(4));  // until it is no news any more
  AnswerFor(kPeriodMs);
  EXPECT_EQ(Next().size(), 1U);
}

TEST_F(ProberTest, NewsArePassedOnALimitedNumberOfTimes) {
  prober_.Hear(NodeRank(3), {.news = {{NodeRank(2), NodeState::kSuspected, 0}}}, now_ms_);
  int sent = 0;
  for (int i = 0; i < 100; ++i) {
    sent += static_cast<int>(prober_.GossipFor(NodeRank(4)).news.size());
  }
  EXPECT_EQ(sent, 3 * 3 - 1);  // 3 times the bits of six nodes; the answer to node 3 was the first
}

TEST(Prober, AMessageHasALimitedNumberOfNewsAndAllComeToTheirTurn) {
  Prober prober(Settings(200));
  std::vector<News> news;
  for (std::uint32_t node = 1; node <= 100; ++node) {
    news.push_back({NodeRank(node), NodeState::kSuspected, 0});
  }
  prober.Hear(NodeRank(150), {.news = news}, 0);
  std::set<NodeRank> told;
  for (int i = 0; i < 10; ++i) {
    const Gossip gossip = prober.GossipFor(NodeRank(160));
    EXPECT_LE(gossip.news.size(), limits::kGossipNewsMax);
    for (const News& one : gossip.news) told.insert(one.node);
  }
  EXPECT_EQ(told.size(), 100U);
}

TEST_F(ProberTest, WhatIsHeardAfterThePeriodHasNoEffect) {
  const Prober::Probe late = Next().at(0);
  const std::vector<Prober::Probe> helped = prober_.Missed(late, now_ms_);
  prober_.Answered(helped.at(0), {}, /*has_answered=*/false, now_ms_);
  prober_.Answered(helped.at(1), {}, /*has_answered=*/false, now_ms_);
  const Prober::Probe next = Next().at(0);
  prober_.Answered(helped.at(2), {}, /*has_answered=*/false, now_ms_);
  EXPECT_TRUE(prober_.Missed(late, now_ms_).empty());
  EXPECT_EQ(prober_.state(late.to), NodeState::kAlive) << "not all were heard in time";
  EXPECT_EQ(prober_.state(next.to), NodeState::kAlive);
}

TEST_F(ProberTest, ASuspectedNodeGetsTheTimeInWhichThisProcessStoodStill) {
  const NodeRank node = MissNext();
  AnswerFor(kSuspicionMs - 2 * kPeriodMs);
  now_ms_ += 20 * kPeriodMs;
  AnswerFor(kPeriodMs);
  EXPECT_EQ(prober_.state(node), NodeState::kSuspected);
  AnswerFor(kPeriodMs);
  EXPECT_EQ(prober_.state(node), NodeState::kDead);
}

TEST_F(ProberTest, WhoReachesNobodyWaitsLonger) {
  const NodeRank node = MissNext();
  for (std::int64_t ms = 0; ms < kSuspicionMs; ms += kPeriodMs) MissNext();
  EXPECT_EQ(prober_.state(node), NodeState::kSuspected);
  for (std::int64_t ms = 0; ms < kSuspicionMs; ms += kPeriodMs) MissNext();
  EXPECT_EQ(prober_.state(node), NodeState::kDead) << "all others may be dead";
}

TEST_F(ProberTest, ADoubtedNodeIsProbedSoonAndTheOthersComeToTheirTurn) {
  std::multiset<NodeRank> probed;
  for (int period = 0; period < 20; ++period) {
    prober_.Doubt(NodeRank(4));
    prober_.Doubt(NodeRank(4));  // once is enough
    const std::vector<Prober::Probe> probes = Next();
    ASSERT_EQ(probes.size(), 1U);
    probed.insert(probes[0].to);
    prober_.Answered(probes[0], {}, true, now_ms_);
  }
  EXPECT_GE(probed.count(NodeRank(4)), 10U);
  for (const std::uint32_t other : {1U, 2U, 3U, 5U}) EXPECT_EQ(probed.count(NodeRank(other)), 2U);
}

TEST_F(ProberTest, ADeadNodeIsProbedOnceInFivePeriodsAndThatChangesNothing) {
  FindDead(NodeRank(2));
  int probes_of_dead = 0;
  for (int period = 0; period < 20; ++period) {
    for (const Prober::Probe& probe : Next()) {
      if (probe.to == NodeRank(2)) {
        ++probes_of_dead;
        EXPECT_TRUE(prober_.Missed(probe, now_ms_).empty());
        continue;
      }
      prober_.Answered(probe, {}, true, now_ms_);
    }
  }
  EXPECT_EQ(probes_of_dead, 4);
}

// How often each node is probed in the next periods, if those answer that are neither suspected nor
// dead.
std::map<NodeRank, int> ProbesIn(Prober& prober, int periods, std::int64_t& now_ms) {
  std::map<NodeRank, int> probes_of;
  for (int period = 0; period < periods; ++period) {
    now_ms += kPeriodMs;
    for (const Prober::Probe& probe : prober.BeginPeriod(now_ms)) {
      ++probes_of[probe.to];
      if (prober.state(probe.to) == NodeState::kAlive) {
        prober.Answered(probe, {}, true, now_ms);
        continue;
      }
      for (const Prober::Probe& helped : prober.Missed(probe, now_ms)) {
        prober.Answered(helped, {}, /*has_answered=*/false, now_ms);
      }
    }
  }
  return probes_of;
}

ProberSettings WithFree(std::size_t nodes, std::vector<NodeRank> free) {
  ProberSettings settings = Settings(nodes);
  settings.free = std::move(free);
  return settings;
}

TEST(Prober, AFreePlaceIsDeadWithoutNewsOrProbes) {
  Prober prober(WithFree(6, {NodeRank(2), NodeRank(4)}));
  EXPECT_TRUE(prober.TakeChanges().empty());
  prober.Doubt(NodeRank(2));
  std::int64_t now_ms = 0;
  const std::map<NodeRank, int> probes_of = ProbesIn(prober, 30, now_ms);
  EXPECT_EQ(prober.state(NodeRank(2)), NodeState::kDead);
  EXPECT_EQ(probes_of, (std::map<NodeRank, int>{
                           {NodeRank(1), 10}, {NodeRank(3), 10}, {NodeRank(5), 10}}));
  EXPECT_TRUE(prober.GossipFor(NodeRank(1)).news.empty());
  // Nor is it a helper.
  now_ms += kPeriodMs;
  const Prober::Probe probe = prober.BeginPeriod(now_ms).at(0);
  const std::vector<Prober::Probe> helped = prober.Missed(probe, now_ms);
  EXPECT_EQ(helped.size(), 2U);
  for (const Prober::Probe& help : helped) {
    EXPECT_EQ(prober.state(help.to), NodeState::kAlive);
  }
  // A dead node is probed among free places.
  prober.Hear(NodeRank(1), {.news = {{NodeRank(5), NodeState::kSuspected, 0}}}, now_ms);
  ProbesIn(prober, 10, now_ms);
  ASSERT_EQ(prober.state(NodeRank(5)), NodeState::kDead);
  EXPECT_EQ(ProbesIn(prober, 20, now_ms).at(NodeRank(5)), 4);
}

TEST(Prober, AllPlacesButOneMayBeFree) {
  Prober prober(WithFree(3, {NodeRank(1), NodeRank(2)}));
  for (std::int64_t period = 1; period <= 20; ++period) {
    EXPECT_TRUE(prober.BeginPeriod(period * kPeriodMs).empty());
  }
}

TEST(Prober, ANodeThatTakesAPlaceIsToldThatItCountsAsDeadUntilItAnswers) {
  Prober prober(WithFree(6, {NodeRank(2)}));
  prober.Occupy(NodeRank(2));
  std::optional<Prober::Probe> told;
  for (std::int64_t period = 1; period <= 3; ++period) {
    for (const Prober::Probe& probe : prober.BeginPeriod(period * kPeriodMs)) {
      if (probe.to == NodeRank(2)) told = probe;
    }
    ASSERT_TRUE(told.has_value()) << period;
    EXPECT_EQ(told->round, 0U) << "nobody is suspected because of it";
    ASSERT_FALSE(told->gossip.news.empty());
    EXPECT_EQ(told->gossip.news[0], (News{NodeRank(2), NodeState::kDead, 0}));
    if (period < 3) told.reset();
  }
  prober.Answered(*told, {.incarnation = 1}, true, 3 * kPeriodMs);
  EXPECT_EQ(prober.state(NodeRank(2)), NodeState::kAlive);
  EXPECT_EQ(prober.TakeChanges(), (std::vector<News>{{NodeRank(2), NodeState::kAlive, 1}}));
  // Now it is probed like all others.
  for (int i = 0; i < 100; ++i) prober.GossipFor(NodeRank(3));  // until it is no news any more
  std::int64_t now_ms = 3 * kPeriodMs;
  EXPECT_NEAR(ProbesIn(prober, 25, now_ms).at(NodeRank(2)), 5, 1);
}

TEST(Prober, ANodeThatTakesAPlaceAndNeverAnswersIsProbedAsADeadOne) {
  Prober prober(WithFree(6, {NodeRank(2), NodeRank(4)}));
  prober.Occupy(NodeRank(2));
  prober.Occupy(NodeRank(2));  // once is enough
  std::int64_t now_ms = 0;
  EXPECT_EQ(ProbesIn(prober, 10, now_ms).at(NodeRank(2)), 10 + 2);
  EXPECT_EQ(ProbesIn(prober, 20, now_ms).at(NodeRank(2)), 4);
  prober.Occupy(NodeRank(2));  // another node tries it
  EXPECT_EQ(ProbesIn(prober, 20, now_ms).at(NodeRank(2)), 10 + 4);
}

TEST_F(ProberTest, ANodeThatTakesThePlaceOfADeadOneIsProbedAtOnce) {
  FindDead(NodeRank(2));
  prober_.Occupy(NodeRank(2));
  const std::vector<Prober::Probe> probes = Next();
  const auto told = std::ranges::find(probes, NodeRank(2), &Prober::Probe::to);
  ASSERT_NE(told, probes.end());
  EXPECT_EQ(told->gossip.news.at(0), (News{NodeRank(2), NodeState::kDead, 0}));
}

// Here it is not known yet that the former node is lost.
TEST(Prober, ANodeThatTakesThePlaceOfOneThatCountsAsAliveIsProbedOnce) {
  Prober prober(Settings(6));
  prober.Occupy(NodeRank(2));
  std::int64_t now_ms = 0;
  EXPECT_EQ(ProbesIn(prober, 25, now_ms).at(NodeRank(2)), 1 + 5);
  EXPECT_EQ(prober.state(NodeRank(2)), NodeState::kAlive);
}

TEST(Prober, AFreePlaceOfWhichOthersHaveNewsIsFreeNoLonger) {
  Prober prober(WithFree(6, {NodeRank(2)}));
  prober.Hear(NodeRank(1), {.news = {{NodeRank(2), NodeState::kAlive, 1}}}, 0);
  EXPECT_EQ(prober.state(NodeRank(2)), NodeState::kAlive);
  prober.Hear(NodeRank(1), {.news = {{NodeRank(2), NodeState::kSuspected, 1}}}, 0);
  std::int64_t now_ms = 0;
  ProbesIn(prober, 10, now_ms);
  ASSERT_EQ(prober.state(NodeRank(2)), NodeState::kDead);
  EXPECT_EQ(ProbesIn(prober, 20, now_ms).at(NodeRank(2)), 4) << "it may be back";
}

TEST(Prober, OfManyNodesThatTakePlacesSomeAreProbedInEachPeriod) {
  std::vector<NodeRank> free;
  for (std::uint32_t rank = 10; rank < 50; ++rank) free.emplace_back(rank);
  Prober prober(WithFree(50, free));
  for (const NodeRank node : free) prober.Occupy(node);
  std::set<NodeRank> told;
  for (std::int64_t period = 1; period <= 3; ++period) {
    const std::vector<Prober::Probe> probes = prober.BeginPeriod(period * kPeriodMs);
    EXPECT_EQ(probes.size(), 1U + 16U);
    for (const Prober::Probe& probe : probes) told.insert(probe.to);
  }
  for (const NodeRank node : free) EXPECT_TRUE(told.contains(node)) << node.value();
}

// Each of its nodes probes it once, and 64 of them on average go on to do so.
TEST(Prober, ANodeThatTakesAPlaceOfALargeJobIsNotFlooded) {
  constexpr std::uint32_t kNodes = 4096;
  int first = 0;
  int later = 0;
  for (std::uint32_t self = 0; self < 100; ++self) {
    ProberSettings settings = WithFree(kNodes, {NodeRank(4000)});
    settings.self = NodeRank(self);
    settings.seed = self;
    Prober prober(settings);
    prober.Occupy(NodeRank(4000));
    std::int64_t now_ms = 0;
    first += ProbesIn(prober, 1, now_ms)[NodeRank(4000)];
    later += ProbesIn(prober, 3, now_ms)[NodeRank(4000)];
  }
  EXPECT_EQ(first, 100);
  EXPECT_LT(later, 20);  // 100 * 3 * 64 / 4096 is 4.7
}

TEST(Prober, OneOfTwoNodesProbesTheOtherInEachPeriod) {
  Prober prober(Settings(2));
  for (std::int64_t period = 1; period <= 20; ++period) {
    const std::vector<Prober::Probe> probes = prober.BeginPeriod(period * kPeriodMs);
    ASSERT_EQ(probes.size(), 1U);
    EXPECT_EQ(probes[0].to, NodeRank(1));
    prober.Answered(probes[0], {}, true, period * kPeriodMs);
  }
}

TEST(Prober, ANodeThatIsAloneProbesNobody) {
  Prober prober(Settings(1));
  EXPECT_TRUE(prober.BeginPeriod(1000).empty());
}

}  // namespace forebay::probe::prober_test
