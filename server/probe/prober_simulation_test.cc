// Jobs of many nodes in a simulated network: who is found dead, how soon, and at what cost.
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "server/probe/prober.h"
#include "server/probe/testing/simulated_nodes.h"

namespace forebay::probe::prober_simulation_test {

// Runs until all nodes that are not stopped take `rank` for dead; returns the time in ms.
std::int64_t TimeUntilDead(SimulatedNodes& nodes, std::size_t rank, std::size_t others) {
  const std::int64_t began_ms = nodes.now_ms();
  while (nodes.TakenForDeadBy(rank) < others && nodes.now_ms() - began_ms < 120'000) {
    nodes.RunFor(100);
  }
  return nodes.now_ms() - began_ms;
}

TEST(ProberSimulationTest, InAQuietNetworkNobodyIsTakenForDead) {
  SimulatedNodes nodes({.nodes = 64});
  nodes.RunFor(120'000);
  EXPECT_TRUE(nodes.wrong_verdicts().empty());
  // One probe and one answer of each node in each second, whatever the number of nodes.
  EXPECT_NEAR(static_cast<double>(nodes.messages()) / 64 / 120, 2.0, 0.05);
}

TEST(ProberSimulationTest, AKilledNodeIsFoundByAllAndNobodyElseIs) {
  for (const std::size_t count : {2U, 4U, 64U, 1024U}) {
    SimulatedNodes nodes({.nodes = count, .seed = count});
    nodes.RunFor(5'000);
    nodes.Stop(1);
    const std::int64_t taken_ms = TimeUntilDead(nodes, 1, count - 1);
    // Somebody probes it within some periods, suspects it after another one, and waits for its
    // refutation; then the news has to reach all.
    EXPECT_LT(taken_ms, count <= 64 ? 15'000 : 35'000) << count;
    EXPECT_GT(taken_ms, 5'000) << count << ": it had no time to refute it";
    nodes.RunFor(60'000);
    EXPECT_EQ(nodes.TakenForDeadBy(1), count - 1) << count;
    EXPECT_TRUE(nodes.wrong_verdicts().empty()) << count;
  }
}

TEST(ProberSimulationTest, AQuarterOfTheNodesDieAtOnce) {
  SimulatedNodes nodes({.nodes = 256});
  nodes.RunFor(5'000);
  for (std::size_t rank = 0; rank < 256; rank += 4) nodes.Stop(rank);
  nodes.RunFor(60'000);
  for (std::size_t rank = 0; rank < 256; ++rank) {
    EXPECT_EQ(nodes.TakenForDeadBy(rank), rank % 4 == 0 ? 192U : 0U) << rank;
  }
  EXPECT_TRUE(nodes.wrong_verdicts().empty());
}

TEST(ProberSimulationTest, AStoppedNodeThatGoesOnIsAliveAgainForAll) {
  SimulatedNodes nodes({.nodes = 32});
  nodes.RunFor(5'000);
  nodes.Stop(7);
  nodes.RunFor(20'000);
  EXPECT_EQ(nodes.TakenForDeadBy(7), 31U);
  nodes.Continue(7);
  nodes.RunFor(20'000);
  EXPECT_EQ(nodes.TakenForDeadBy(7), 0U);
  for (std::size_t rank = 0; rank < 32; ++rank) {
    const NodeState state = nodes.node(7).state(NodeRank(static_cast<std::uint32_t>(rank)));
    EXPECT_EQ(state, NodeState::kAlive) << rank;
  }
}

TEST(ProberSimulationTest, AKilledNodeThatIsStartedAgainIsAliveForAll) {
  SimulatedNodes nodes({.nodes = 32});
  nodes.RunFor(5'000);
  nodes.Stop(7);
  nodes.RunFor(20'000);
  nodes.Restart(7);
  nodes.RunFor(20'000);
  EXPECT_EQ(nodes.TakenForDeadBy(7), 0U);
  EXPECT_GT(nodes.node(7).incarnation(), 0U) << "its former life outweighs what it says";
}

TEST(ProberSimulationTest, FreePlacesCostNoMessage) {
  std::set<std::size_t> free;
  for (std::size_t rank = 0; rank < 64; rank += 4) free.insert(rank);
  SimulatedNodes nodes({.nodes = 64, .free = free});
  std::size_t messages_to_free = 0;
  nodes.SetLinks([&](std::size_t, std::size_t to) {
    messages_to_free += free.count(to);
    return true;
  });
  nodes.RunFor(120'000);
  EXPECT_EQ(messages_to_free, 0U);
  EXPECT_NEAR(static_cast<double>(nodes.messages()) / 48 / 120, 2.0, 0.05);
  EXPECT_TRUE(nodes.wrong_verdicts().empty());
  for (std::size_t rank = 0; rank < 64; ++rank) {
    EXPECT_EQ(nodes.TakenForDeadBy(rank), free.contains(rank) ? 48U : 0U) << rank;
  }
}

// Everybody has the same view of the place and of the others, the new node too.
void ExpectAllAlive(SimulatedNodes& nodes, std::size_t count) {
  for (std::size_t rank = 0; rank < count; ++rank) {
    EXPECT_EQ(nodes.TakenForDeadBy(rank), 0U) << rank;
  }
  EXPECT_TRUE(nodes.wrong_verdicts().empty());
}

TEST(ProberSimulationTest, ANodeThatTakesAFreePlaceIsAliveForAll) {
  SimulatedNodes nodes({.nodes = 64, .free = {40}});
  nodes.RunFor(5'000);
  ASSERT_EQ(nodes.TakenForDeadBy(40), 63U);
  nodes.Occupy(40, /*told=*/64);
  nodes.RunFor(2'000);
  ExpectAllAlive(nodes, 64);
  EXPECT_EQ(nodes.node(40).incarnation(), 1U) << "it has refuted that nobody is there";
  nodes.RunFor(60'000);
  ExpectAllAlive(nodes, 64);
  // It is one of them: its loss is found.
  nodes.Stop(40);
  EXPECT_LT(TimeUntilDead(nodes, 40, 63), 30'000);
}

TEST(ProberSimulationTest, ANodeThatTakesThePlaceOfAKilledOneIsAliveForAll) {
  SimulatedNodes nodes({.nodes = 64});
  nodes.RunFor(5'000);
  // The node has been suspected three times.
  for (std::uint64_t incarnation = 0; incarnation < 3; ++incarnation) {
    const News news = {NodeRank(40), NodeState::kSuspected, incarnation};
    nodes.node(40).Hear(NodeRank(1), {.news = {news}}, nodes.now_ms());
  }
  nodes.RunFor(20'000);
  nodes.Stop(40);
  TimeUntilDead(nodes, 40, 63);
  ASSERT_EQ(nodes.TakenForDeadBy(40), 63U);
  nodes.Occupy(40, /*told=*/64);
  EXPECT_EQ(nodes.node(40).incarnation(), 0U);
  nodes.RunFor(2'000);
  ExpectAllAlive(nodes, 64);
  EXPECT_EQ(nodes.node(40).incarnation(), 4U) << "the number of its predecessor was 3";
  nodes.RunFor(60'000);
  ExpectAllAlive(nodes, 64);
}

TEST(ProberSimulationTest, NodesThatWereNotToldHearOfANodeThatHasTakenAPlace) {
  SimulatedNodes nodes({.nodes = 64, .free = {40, 41}});
  nodes.RunFor(5'000);
  nodes.Occupy(40, /*told=*/3);
  nodes.RunFor(15'000);
  EXPECT_EQ(nodes.TakenForDeadBy(40), 0U);
  EXPECT_EQ(nodes.TakenForDeadBy(41), 63U) << "the other place is still free";
}

TEST(ProberSimulationTest, ALinkThatIsBrokenBetweenTwoNodesKillsNobody) {
  SimulatedNodes nodes({.nodes = 8});
  nodes.SetLinks([](std::size_t from, std::size_t to) { return from != 2 || to != 5; });
  nodes.RunFor(120'000);
  EXPECT_TRUE(nodes.wrong_verdicts().empty());
}

TEST(ProberSimulationTest, ALossyNetworkKillsNobody) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SimulatedNodes nodes({.nodes = 64, .loss = 0.05, .seed = seed});
    nodes.RunFor(300'000);
    EXPECT_TRUE(nodes.wrong_verdicts().empty()) << "seed " << seed;
  }
}

// One answer of twenty comes too late, as on machines that do too much.
TEST(ProberSimulationTest, SlowNodesAreSuspectedAndRefuteIt) {
  for (const std::size_t count : {2U, 4U, 64U}) {
    SimulatedNodes nodes({.nodes = count, .latency_ms_max = 300, .seed = count});
    nodes.RunFor(300'000);
    EXPECT_TRUE(nodes.wrong_verdicts().empty()) << count << " nodes";
    std::uint64_t refutations = 0;
    for (std::size_t rank = 0; rank < count; ++rank) refutations += nodes.node(rank).incarnation();
    EXPECT_GT(refutations, 0U) << "nobody was suspected, so nothing was shown";
  }
}

// It takes all others for dead, because it reaches none of them. That is not believed by others
// when it is back: only it and they had no contact.
TEST(ProberSimulationTest, ANodeThatWasCutOffConvincesNobodyThatOthersAreDead) {
  for (const std::int64_t cut_ms : {9'000, 12'000, 15'000, 20'000, 40'000}) {
    SimulatedNodes nodes({.nodes = 16, .seed = static_cast<std::uint64_t>(cut_ms)});
    nodes.RunFor(5'000);
    nodes.SetLinks([](std::size_t from, std::size_t to) { return (from == 0) == (to == 0); });
    nodes.RunFor(cut_ms);
    nodes.SetLinks(nullptr);
    nodes.RunFor(60'000);
    for (const SimulatedNodes::Verdict& verdict : nodes.wrong_verdicts()) {
      EXPECT_TRUE(verdict.by == 0 || verdict.of == 0)
          << cut_ms << " ms: node " << verdict.of << " by node " << verdict.by;
    }
    for (std::size_t rank = 0; rank < 16; ++rank) EXPECT_EQ(nodes.TakenForDeadBy(rank), 0U);
  }
}

TEST(ProberSimulationTest, HalvesThatAreCutOffFindEachOtherAgain) {
  SimulatedNodes nodes({.nodes = 32});
  nodes.RunFor(5'000);
  nodes.SetLinks([](std::size_t from, std::size_t to) { return (from < 16) == (to < 16); });
  nodes.RunFor(60'000);
  for (std::size_t rank = 0; rank < 32; ++rank) {
    EXPECT_EQ(nodes.TakenForDeadBy(rank), 16U) << rank << ": each half goes on without the other";
  }
  nodes.SetLinks(nullptr);
  nodes.RunFor(60'000);
  for (std::size_t rank = 0; rank < 32; ++rank) EXPECT_EQ(nodes.TakenForDeadBy(rank), 0U) << rank;
}

TEST(ProberSimulationTest, MessagesOfANodeDoNotGrowWithTheJob) {
  std::vector<double> messages;
  std::vector<double> news;
  for (const std::size_t count : {16U, 256U, 4096U}) {
    SimulatedNodes nodes({.nodes = count});
    nodes.SetSize([](const Gossip& gossip) { return gossip.news.size(); });
    nodes.RunFor(5'000);
    nodes.Stop(3);  // so that there is news
    nodes.RunFor(60'000);
    const double node_seconds = static_cast<double>(count) * 65;
    messages.push_back(static_cast<double>(nodes.messages()) / node_seconds);
    news.push_back(static_cast<double>(nodes.bytes()) / node_seconds);
  }
  EXPECT_LT(messages.back(), 1.1 * messages.front());
  // At most two pieces of news, suspicion and death, each some 3 log2(n) times in 60 s.
  EXPECT_LT(news.back(), 2.0 * 3 * 13 / 60 * 1.2);
}

}  // namespace forebay::probe::prober_simulation_test
