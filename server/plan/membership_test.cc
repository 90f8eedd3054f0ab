// Membership: exactly one node reads a group, whichever nodes are alive.
#include "server/plan/membership.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/mix64.h"

namespace forebay::plan::membership_test {

std::vector<Node> Nodes(std::uint32_t count) {
  std::vector<Node> nodes;
  for (std::uint32_t rank = 0; rank < count; ++rank) nodes.push_back({NodeRank(rank), 1});
  return nodes;
}

std::uint64_t Key(std::uint64_t group) { return GroupKey(7, group); }

TEST(Membership, OneNodeReadsEverythingAndAsksNobody) {
  const Membership alone;
  EXPECT_TRUE(alone.is_alone());
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(alone.Reads(Key(i)));
    EXPECT_FALSE(alone.FirstToAsk(Key(i)).has_value());
  }
}

TEST(Membership, ExactlyOneNodeReadsAGroupAndAllOthersAskIt) {
  for (std::uint64_t i = 0; i < 200; ++i) {
    const NodeRank owner = Membership(NodeRank(0), Nodes(5)).Ranked(Key(i)).front();
    for (std::uint32_t self = 0; self < 5; ++self) {
      const Membership seen(NodeRank(self), Nodes(5));
      EXPECT_EQ(seen.Reads(Key(i)), owner == NodeRank(self));
      EXPECT_EQ(seen.FirstToAsk(Key(i)).value_or(NodeRank(self)), owner);
    }
  }
}

TEST(Membership, ANodeThatIsGoneIsNotAskedAndItsFirstSubstituteReads) {
  constexpr std::uint32_t kCount = 4;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::vector<NodeRank> ranked = Membership(NodeRank(0), Nodes(kCount)).Ranked(Key(i));
    for (std::uint32_t self = 0; self < kCount; ++self) {
      Membership seen(NodeRank(self), Nodes(kCount));
      if (NodeRank(self) == ranked[0]) continue;
      seen.SetLives(ranked[0], false);
      EXPECT_EQ(seen.Reads(Key(i)), NodeRank(self) == ranked[1]);
      EXPECT_EQ(seen.FirstToAsk(Key(i)).value_or(NodeRank(self)), ranked[1]);
      seen.SetLives(ranked[0], true);
      EXPECT_EQ(seen.FirstToAsk(Key(i)), ranked[0]) << "it came back";
    }
  }
}

TEST(Membership, ANodeThatYieldsAsksTheNodesBehindItAndGoesOnToReadOtherwise) {
  constexpr std::uint32_t kCount = 4;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::vector<NodeRank> ranked = Membership(NodeRank(0), Nodes(kCount)).Ranked(Key(i));
    for (std::uint32_t self = 0; self < kCount; ++self) {
      Membership seen(NodeRank(self), Nodes(kCount));
      EXPECT_EQ(seen.FirstSupplier(Key(i)), seen.FirstToAsk(Key(i)));
      seen.SetYields(YieldReason::kSlowGfs, true);
      const bool is_owner = NodeRank(self) == ranked[0];
      EXPECT_EQ(seen.FirstSupplier(Key(i)), ranked[is_owner ? 1 : 0]);
      EXPECT_EQ(seen.FirstSource(Key(i)), ranked[is_owner ? 1 : 0]);
      const auto here = std::ranges::find(ranked, NodeRank(self));
      for (auto node = ranked.begin(); node != ranked.end(); ++node) {
        EXPECT_EQ(seen.IsBehind(Key(i), *node), here < node);
      }
      // Placement does not change for so short a time.
      EXPECT_EQ(seen.Reads(Key(i)), is_owner);
      // If all others refuse, it reads itself.
      EXPECT_FALSE(seen.FirstSupplier(Key(i), ranked).has_value());
      seen.SetYields(YieldReason::kSlowGfs, false);
      EXPECT_EQ(seen.FirstSupplier(Key(i)), seen.FirstToAsk(Key(i)));
    }
  }
}

TEST(Membership, ANodeYieldsAsLongAsItHasAReason) {
  Membership seen(NodeRank(0), Nodes(2));
  EXPECT_FALSE(seen.Yields());
  seen.SetYields(YieldReason::kArrives, true);
  EXPECT_TRUE(seen.Yields());
  EXPECT_TRUE(seen.YieldsFor(YieldReason::kArrives));
  EXPECT_FALSE(seen.YieldsFor(YieldReason::kSlowGfs));
  seen.SetYields(YieldReason::kSlowGfs, true);
  seen.SetYields(YieldReason::kArrives, false);
  EXPECT_TRUE(seen.Yields());
  EXPECT_FALSE(seen.YieldsFor(YieldReason::kArrives));
  EXPECT_TRUE(seen.YieldsFor(YieldReason::kSlowGfs));
  seen.SetYields(YieldReason::kSlowGfs, false);
  seen.SetYields(YieldReason::kSlowGfs, false);
  EXPECT_FALSE(seen.Yields());
}

TEST(Membership, ANodeThatLeavesIsReplacedAndStaysASourceOfItsFirstSubstitute) {
  constexpr std::uint32_t kCount = 4;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::vector<NodeRank> ranked = Membership(NodeRank(0), Nodes(kCount)).Ranked(Key(i));
    for (std::uint32_t self = 0; self < kCount; ++self) {
      Membership seen(NodeRank(self), Nodes(kCount));
      seen.SetLeaves(ranked[0], true);
      if (NodeRank(self) == ranked[0]) {
        EXPECT_TRUE(seen.Reads(Key(i))) << "it supplies others until it ends";
        continue;
      }
      const bool is_first = NodeRank(self) == ranked[1];
      EXPECT_EQ(seen.Reads(Key(i)), is_first);
      EXPECT_EQ(seen.FirstToAsk(Key(i)).value_or(NodeRank(self)), ranked[1]);
      EXPECT_EQ(seen.FirstSource(Key(i)), is_first ? ranked[0] : ranked[1]);
      EXPECT_TRUE(seen.Lives(ranked[0]));
      const NodeRank asked[] = {ranked[0]};
      EXPECT_EQ(seen.FirstSource(Key(i), asked).has_value(), !is_first);
      // It has ended.
      seen.SetLives(ranked[0], false);
      EXPECT_EQ(seen.FirstSource(Key(i)).has_value(), !is_first);
      seen.SetLives(ranked[0], true);
      seen.SetLeaves(ranked[0], false);
      EXPECT_EQ(seen.FirstToAsk(Key(i)), ranked[0]);
      EXPECT_EQ(seen.FirstSource(Key(i)), ranked[0]);
    }
  }
}

TEST(Membership, ANodeThatLeavesIsNoSubstitute) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::vector<NodeRank> ranked = Membership(NodeRank(0), Nodes(4)).Ranked(Key(i));
    Membership seen(ranked[0], Nodes(4));
    seen.SetLeaves(ranked[1], true);
    EXPECT_EQ(seen.NextSubstitute(Key(i)), ranked[2]);
  }
}

// This node is the third of the ranking, behind one or two that leave, are dead or rest.
TEST(Membership, AGroupIsTakenOverOnlyFromANodeThatLeavesAndAnswers) {
  constexpr std::int64_t kNow = 50;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::vector<NodeRank> ranked = Membership(NodeRank(0), Nodes(4)).Ranked(Key(i));
    const auto takes_over = [&](const auto& happened) {
      Membership seen(ranked[2], Nodes(4));
      happened(seen);
      return seen.TakesOver(Key(i), kNow);
    };
    EXPECT_FALSE(takes_over([](Membership&) {}));
    EXPECT_FALSE(takes_over([&](Membership& seen) {
      for (const NodeRank dead : {ranked[0], ranked[1]}) seen.SetLives(dead, false);
    })) << "it reads the group, but nobody leaves";
    EXPECT_FALSE(takes_over([&](Membership& seen) { seen.SetLeaves(ranked[0], true); }))
        << "that is up to the second node";
    EXPECT_FALSE(takes_over([&](Membership& seen) {
      seen.SetLives(ranked[0], false);
      seen.SetLeaves(ranked[3], true);
    })) << "the node behind has nothing to do with it";
    EXPECT_TRUE(takes_over([&](Membership& seen) {
      for (const NodeRank leaves : {ranked[0], ranked[1]}) seen.SetLeaves(leaves, true);
    }));
    for (const std::size_t leaves : {0U, 1U}) {
      const NodeRank other = ranked[1 - leaves];
      const auto with_other = [&](const auto& happened) {
        return takes_over([&](Membership& seen) {
          seen.SetLeaves(ranked[leaves], true);
          happened(seen);
        });
      };
      EXPECT_TRUE(with_other([&](Membership& seen) { seen.SetLives(other, false); })) << leaves;
      EXPECT_FALSE(with_other([&](Membership& seen) { seen.Rest(other, kNow + 1); }))
          << "it comes back: " << leaves;
      EXPECT_TRUE(with_other([&](Membership& seen) { seen.Rest(other, kNow); })) << leaves;
      EXPECT_TRUE(with_other([&](Membership& seen) {
        seen.Rest(other, Membership::kForEver);
      })) << leaves;
      EXPECT_FALSE(with_other([&](Membership& seen) {
        seen.SetLives(other, false);
        seen.SetLives(ranked[leaves], false);
      })) << "nobody has it: " << leaves;
    }
  }
}

TEST(Membership, WhoeverWasAskedIsNotAskedAgainAndThisNodeReadsAfterAllBeforeIt) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Membership seen(NodeRank(2), Nodes(6));
    std::vector<NodeRank> asked;
    while (const auto next = seen.FirstToAsk(Key(i), asked)) asked.push_back(*next);
    const std::vector<NodeRank> ranked = seen.Ranked(Key(i));
    const auto self = std::ranges::find(ranked, NodeRank(2));
    EXPECT_EQ(asked, std::vector<NodeRank>(ranked.begin(), self));
  }
}

TEST(Membership, TheNextSubstitutesAreTheNextNodesThatLiveBehindThisOne) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    Membership seen(NodeRank(2), Nodes(6));
    const std::vector<NodeRank> ranked = seen.Ranked(Key(i));
    const auto self = std::ranges::find(ranked, NodeRank(2));
    const std::vector<NodeRank> behind(self + 1, ranked.end());
    std::vector<NodeRank> asked;
    while (const auto next = seen.NextSubstitute(Key(i), asked)) asked.push_back(*next);
    EXPECT_EQ(asked, behind);
    if (behind.size() < 2) continue;
    seen.SetLives(behind[0], false);
    EXPECT_EQ(seen.NextSubstitute(Key(i)), behind[1]);
  }
  EXPECT_FALSE(Membership().NextSubstitute(Key(1)).has_value());
}

// Each node has a random opinion of the others. A request goes from node to node, as each of them
// knows better, towards the owner and never back, until a node reads.
TEST(Membership, RequestsEndAlthoughNodesDisagreeAboutWhichAreAlive) {
  constexpr std::uint32_t kCount = 7;
  std::uint64_t state = 42;
  int handed_on = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    std::vector<std::unique_ptr<Membership>> views;
    for (std::uint32_t self = 0; self < kCount; ++self) {
      views.push_back(std::make_unique<Membership>(NodeRank(self), Nodes(kCount)));
      const std::uint64_t dead = NextWord64(state);
      for (std::uint32_t node = 0; node < kCount; ++node) {
        views.back()->SetLives(NodeRank(node), (dead >> node & 1) == 0);
      }
    }
    const std::vector<NodeRank> ranked = views[0]->Ranked(Key(i));
    auto at = ranked.end() - 1;
    while (const auto next = views[at->value()]->FirstToAsk(Key(i))) {
      const auto to = std::ranges::find(ranked, *next);
      ASSERT_LT(to, at);
      EXPECT_FALSE(views[at->value()]->Reads(Key(i)));
      at = to;
      ++handed_on;
    }
    EXPECT_TRUE(views[at->value()]->Reads(Key(i)));
  }
  EXPECT_GT(handed_on, 200);
}

TEST(Membership, ANodeNeverThinksOfItselfAsGone) {
  Membership seen(NodeRank(1), Nodes(2));
  seen.SetLives(NodeRank(1), false);
  EXPECT_TRUE(seen.Lives(NodeRank(1)));
}

TEST(Membership, ANodeThatRestsIsNotUsedAndItsTimeIsKnown) {
  Membership seen(NodeRank(0), Nodes(3));
  EXPECT_FALSE(seen.IsResting(NodeRank(1), 0));
  seen.Rest(NodeRank(1), 100);
  EXPECT_FALSE(seen.Lives(NodeRank(1)));
  EXPECT_TRUE(seen.Lives(NodeRank(2)));
  EXPECT_TRUE(seen.IsResting(NodeRank(1), 99));
  EXPECT_FALSE(seen.IsResting(NodeRank(1), 100));
  EXPECT_FALSE(seen.RestsForEver(NodeRank(1)));
  seen.SetLives(NodeRank(1), true);
  EXPECT_TRUE(seen.Lives(NodeRank(1)));
  seen.Rest(NodeRank(2), Membership::kForEver);
  EXPECT_TRUE(seen.RestsForEver(NodeRank(2)));
  EXPECT_TRUE(seen.IsResting(NodeRank(2), Membership::kForEver - 1));
}

TEST(Membership, ARestThatEndsLeavesItToOthersWhetherTheNodeLives) {
  Membership seen(NodeRank(0), Nodes(3));
  seen.Rest(NodeRank(2), Membership::kForEver);
  seen.EndRest(NodeRank(2));
  EXPECT_FALSE(seen.IsResting(NodeRank(2), 0));
  EXPECT_FALSE(seen.RestsForEver(NodeRank(2)));
  EXPECT_FALSE(seen.Lives(NodeRank(2)));
  seen.EndRest(NodeRank(1));
  EXPECT_TRUE(seen.Lives(NodeRank(1)));
}

TEST(Membership, TheLastNodeThatLivesReadsEverything) {
  Membership seen(NodeRank(2), Nodes(3));
  seen.SetLives(NodeRank(0), false);
  seen.SetLives(NodeRank(1), false);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_TRUE(seen.Reads(Key(i)));
}

}  // namespace forebay::plan::membership_test
