// NodeProber with a transport that records what it is asked for: what the protocol finds reaches
// Membership, and the transport gives up requests to dead nodes.
#include "server/probe/node_prober.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/io/testing/manual_clock.h"

namespace forebay::probe::node_prober_test {

constexpr std::int64_t kNsPerMs = 1'000'000;

struct Asked {
  NodeRank to;
  std::optional<NodeRank> target;
  Gossip gossip;
  std::int64_t deadline_ns;
  ProbeTransport::Done done;
};

class RecordedTransport final : public ProbeTransport {
 public:
  void Probe(NodeRank to, std::optional<NodeRank> target, const Gossip& gossip,
             std::int64_t deadline_ns, Done done) override {
    asked.push_back({to, target, gossip, deadline_ns, std::move(done)});
  }
  void GiveUp(NodeRank node) override { given_up.push_back(node); }

  Asked TakeAsked() {
    Asked first = std::move(asked.front());
    asked.pop_front();
    return first;
  }

  std::deque<Asked> asked;
  std::vector<NodeRank> given_up;
};

std::vector<plan::Node> Nodes(std::uint32_t count) {
  std::vector<plan::Node> nodes;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    nodes.push_back({.rank = NodeRank(rank), .weight = 1, .identity = rank});
  }
  return nodes;
}

class NodeProberTest : public testing::Test {
 protected:
  void Tick() {
    clock_.AdvanceNs(1000 * kNsPerMs);
    prober_.Tick();
  }
  // Answers all probes as nodes that live, but those of `silent`, which nobody reaches.
  void AnswerAll(NodeRank silent) {
    while (!transport_.asked.empty()) {
      const Asked asked = transport_.TakeAsked();
      if (asked.to == silent) {
        asked.done(Error(ErrorCode::kDeadlineExceeded, "no answer"));
      } else {
        asked.done(ProbeTransport::Answer{.has_answered = asked.target != silent});
      }
    }
  }

  io::ManualClock clock_;
  plan::Membership nodes_{NodeRank(0), Nodes(5)};
  RecordedTransport transport_;
  NodeProber prober_{{.transport = transport_,
                      .nodes = nodes_,
                      .clock = clock_,
                      .name = [](NodeRank node) { return fmt::format("node {}", node.value()); },
                      .seed = 3}};
};

TEST_F(NodeProberTest, ADeadNodeIsNotAskedAnyMoreAndItsRequestsAreGivenUp) {
  const NodeRank silent(2);
  for (int i = 0; i < 20 && nodes_.Lives(silent); ++i) {
    Tick();
    AnswerAll(silent);
  }
  EXPECT_FALSE(nodes_.Lives(silent));
  EXPECT_EQ(prober_.state(silent), NodeState::kDead);
  EXPECT_EQ(transport_.given_up, std::vector{silent});
  // Each missed probe of a dead node gives up the requests that have come to the connection since.
  for (int i = 0; i < 5; ++i) {
    Tick();
    AnswerAll(silent);
  }
  EXPECT_GE(transport_.given_up.size(), 2U);
  for (const std::uint32_t other : {1U, 3U, 4U}) EXPECT_TRUE(nodes_.Lives(NodeRank(other)));
}

TEST_F(NodeProberTest, ADeadNodeLivesAgainWhenItAnswersThisNode) {
  for (int i = 0; i < 20 && nodes_.Lives(NodeRank(2)); ++i) {
    AnswerAll(NodeRank(2));
    Tick();
  }
  ASSERT_EQ(prober_.state(NodeRank(2)), NodeState::kDead);
  ASSERT_FALSE(nodes_.Lives(NodeRank(2)));
  while (!transport_.asked.empty()) {
    // An answer from before the verdict does not change it.
    transport_.TakeAsked().done(ProbeTransport::Answer{.has_answered = true});
  }
  EXPECT_FALSE(nodes_.Lives(NodeRank(2)));
  // It says to others that it is alive. This node may still be unable to reach it.
  prober_.Hear(NodeRank(1), {.news = {{NodeRank(2), NodeState::kAlive, 1}}});
  EXPECT_FALSE(nodes_.Lives(NodeRank(2)));
  Tick();
  const auto probe = std::ranges::find(transport_.asked, NodeRank(2), &Asked::to);
  ASSERT_NE(probe, transport_.asked.end()) << "so it is probed in the next period";
  probe->done(ProbeTransport::Answer{.has_answered = true});
  EXPECT_TRUE(nodes_.Lives(NodeRank(2)));
}

TEST_F(NodeProberTest, ANodeThatDidNotAnswerARequestIsProbedUntilItDoes) {
  nodes_.SetLives(NodeRank(3), false);  // as fetch and stage do
  for (int i = 0; i < 3; ++i) {
    Tick();
    bool was_asked = false;
    while (!transport_.asked.empty()) {
      const Asked asked = transport_.TakeAsked();
      was_asked = was_asked || asked.to == NodeRank(3);
      // This node cannot reach it, and others do.
      if (asked.to == NodeRank(3)) {
        asked.done(Error(ErrorCode::kUnavailable, "cut"));
      } else {
        asked.done(ProbeTransport::Answer{.has_answered = true});
      }
    }
    EXPECT_TRUE(was_asked);
    EXPECT_FALSE(nodes_.Lives(NodeRank(3)));
    EXPECT_EQ(prober_.state(NodeRank(3)), NodeState::kAlive) << "others reach it";
  }
  Tick();
  while (!transport_.asked.empty()) {
    transport_.TakeAsked().done(ProbeTransport::Answer{.has_answered = true});
  }
  EXPECT_TRUE(nodes_.Lives(NodeRank(3)));
}

TEST_F(NodeProberTest, ANodeThatTheLauncherCallsLostIsNotUsedUntilItAnswersAProbe) {
  const NodeRank lives(3);
  prober_.HearLoss(lives, "the launcher is wrong");
  EXPECT_FALSE(nodes_.Lives(lives));
  Tick();
  EXPECT_NE(std::ranges::find(transport_.asked, lives, &Asked::to), transport_.asked.end());
  while (!transport_.asked.empty()) {
    transport_.TakeAsked().done(ProbeTransport::Answer{.has_answered = true});
  }
  EXPECT_TRUE(nodes_.Lives(lives));
  EXPECT_EQ(prober_.state(lives), NodeState::kAlive);

  const NodeRank lost(2);
  prober_.HearLoss(lost, "the launcher is right");
  for (int i = 0; i < 20 && prober_.state(lost) != NodeState::kDead; ++i) {
    EXPECT_FALSE(nodes_.Lives(lost));
    Tick();
    AnswerAll(lost);
  }
  EXPECT_EQ(prober_.state(lost), NodeState::kDead);
  EXPECT_FALSE(nodes_.Lives(lost));
}

TEST_F(NodeProberTest, AFreePlaceIsNotUsedAndNotProbedUntilANodeHasTakenIt) {
  const NodeRank place(3);
  plan::Membership nodes(NodeRank(0), Nodes(5));
  NodeProber prober({.transport = transport_,
                     .nodes = nodes,
                     .clock = clock_,
                     .name = [](NodeRank) { return std::string("a node"); },
                     .free = {place}});
  const auto tick = [&](const ProbeTransport::Answer& of_place) {
    clock_.AdvanceNs(1000 * kNsPerMs);
    prober.Tick();
    int probes_of_place = 0;
    while (!transport_.asked.empty()) {
      const Asked asked = transport_.TakeAsked();
      probes_of_place += asked.to == place ? 1 : 0;
      asked.done(asked.to == place ? of_place : ProbeTransport::Answer{.has_answered = true});
    }
    return probes_of_place;
  };
  EXPECT_FALSE(nodes.Lives(place));
  for (int period = 0; period < 20; ++period) EXPECT_EQ(tick({}), 0);
  EXPECT_TRUE(transport_.given_up.empty());
  prober.Occupy(place);
  EXPECT_FALSE(nodes.Lives(place));
  EXPECT_EQ(tick({.gossip = {.incarnation = 1}, .has_answered = false}), 1);
  EXPECT_EQ(prober.state(place), NodeState::kAlive);
  EXPECT_FALSE(nodes.Lives(place)) << "it is starting";
  EXPECT_GE(tick({.gossip = {.incarnation = 1}, .has_answered = true}), 1);
  EXPECT_TRUE(nodes.Lives(place));
}

TEST_F(NodeProberTest, ANodeThatTakesThePlaceOfAnotherOneIsNotUsedBeforeItAnswers) {
  const NodeRank place(3);
  prober_.Occupy(place);
  EXPECT_FALSE(nodes_.Lives(place)) << "the former node may have been found dead by others only";
  Tick();
  const auto probe = std::ranges::find(transport_.asked, place, &Asked::to);
  ASSERT_NE(probe, transport_.asked.end());
  probe->done(ProbeTransport::Answer{.has_answered = true});
  EXPECT_TRUE(nodes_.Lives(place));
}

TEST_F(NodeProberTest, ANodeThatRestsIsNotUsedAlthoughItAnswersProbes) {
  constexpr std::int64_t kRestNs = 10'000 * kNsPerMs;
  const std::int64_t until_ns = clock_.NowNs() + kRestNs;
  nodes_.Rest(NodeRank(3), until_ns);
  for (;;) {
    Tick();
    while (!transport_.asked.empty()) {
      transport_.TakeAsked().done(ProbeTransport::Answer{.has_answered = true});
    }
    if (clock_.NowNs() >= until_ns) break;
    EXPECT_FALSE(nodes_.Lives(NodeRank(3)));
  }
  EXPECT_TRUE(nodes_.Lives(NodeRank(3)));
}

// It is asked to help while it is starting, because the protocol takes it for alive.
TEST_F(NodeProberTest, ANodeThatAnswersAsAHelperIsNotUsedBeforeItSaysThatItServes) {
  const NodeRank starts(3);
  const NodeRank lost(2);
  nodes_.SetLives(starts, false);
  int helped = 0;
  for (int i = 0; i < 20; ++i) {
    Tick();
    while (!transport_.asked.empty()) {
      const Asked asked = transport_.TakeAsked();
      helped += asked.to == starts && asked.target ? 1 : 0;
      if (asked.to == lost) {
        asked.done(Error(ErrorCode::kDeadlineExceeded, "no answer"));
      } else {
        const bool has_answered = asked.to != starts && asked.target != lost;
        asked.done(ProbeTransport::Answer{.has_answered = has_answered});
      }
      EXPECT_FALSE(nodes_.Lives(starts)) << i;
    }
  }
  EXPECT_GT(helped, 0);
  EXPECT_EQ(prober_.state(starts), NodeState::kAlive);
  Tick();
  AnswerAll(lost);
  EXPECT_TRUE(nodes_.Lives(starts));
}

TEST_F(NodeProberTest, ABrokenLinkDoesNotKeepTheOthersFromTheirProbes) {
  nodes_.SetLives(NodeRank(3), false);
  std::multiset<NodeRank> probed;
  for (int i = 0; i < 24; ++i) {
    Tick();
    while (!transport_.asked.empty()) {
      const Asked asked = transport_.TakeAsked();
      if (asked.to == NodeRank(3)) {
        asked.done(Error(ErrorCode::kUnavailable, "cut"));
        continue;
      }
      if (!asked.target) probed.insert(asked.to);
      asked.done(ProbeTransport::Answer{.has_answered = true});
    }
  }
  for (const std::uint32_t other : {1U, 2U, 4U}) EXPECT_GE(probed.count(NodeRank(other)), 3U);
}

TEST_F(NodeProberTest, OfManySilentNodesSomeAreProbedInEachPeriod) {
  plan::Membership nodes(NodeRank(0), Nodes(100));
  NodeProber prober({.transport = transport_,
                     .nodes = nodes,
                     .clock = clock_,
                     .name = [](NodeRank) { return std::string("a node"); }});
  for (std::uint32_t node = 1; node < 100; ++node) nodes.SetLives(NodeRank(node), false);
  for (int period = 0; period < 100; ++period) {
    prober.Tick();
    EXPECT_LE(transport_.asked.size(), 7U);
    while (!transport_.asked.empty()) {
      transport_.TakeAsked().done(ProbeTransport::Answer{.has_answered = true});
    }
    clock_.AdvanceNs(1000 * kNsPerMs);
  }
  for (std::uint32_t node = 1; node < 100; ++node) EXPECT_TRUE(nodes.Lives(NodeRank(node)));
}

TEST_F(NodeProberTest, HelpsAnotherNodeAndTellsWhetherTheTargetAnswered) {
  for (const bool answers : {true, false}) {
    std::optional<bool> told;
    prober_.ProbeFor(NodeRank(1), {.news = {{NodeRank(4), NodeState::kSuspected, 0}}}, NodeRank(4),
                     [&](const ProbeTransport::Answer& answer) { told = answer.has_answered; });
    const Asked asked = transport_.TakeAsked();
    EXPECT_EQ(asked.to, NodeRank(4));
    EXPECT_FALSE(asked.target.has_value());
    EXPECT_LT(asked.deadline_ns - clock_.NowNs(), 500 * kNsPerMs) << "the other node waits";
    ASSERT_FALSE(asked.gossip.news.empty());
    EXPECT_EQ(asked.gossip.news[0], (News{NodeRank(4), NodeState::kSuspected, 0}))
        << "the target is told that it is suspected";
    if (answers) {
      asked.done(ProbeTransport::Answer{.has_answered = true});
    } else {
      asked.done(Error(ErrorCode::kDeadlineExceeded, "no answer"));
    }
    EXPECT_EQ(told, answers);
  }
}

}  // namespace forebay::probe::node_prober_test
