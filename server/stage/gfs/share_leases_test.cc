// Leases of shares: whom a node asks, and what a witness grants. CapShareJobTest has whole jobs.
#include "server/stage/gfs/share_leases.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::stage::share_leases_test {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kLease = ShareLeases::kLeaseNs;
constexpr auto kAllLive = [](NodeRank) { return true; };
constexpr auto kNoneLives = [](NodeRank) { return false; };

ShareLeases LeasesOf(std::uint32_t self, std::uint32_t nodes, bool has_returned = false) {
  return {nodes, NodeRank(self), has_returned, 0};
}

TEST(ShareLeasesTest, InAJobOfOneOrTwoNodesNobodyIsAsked) {
  for (const std::uint32_t nodes : {1U, 2U}) {
    ShareLeases leases = LeasesOf(0, nodes);
    EXPECT_THAT(leases.Tick(100 * kSecond, kNoneLives), IsEmpty());
    EXPECT_GT(leases.own_end_ns(), 1'000'000 * kSecond);
    EXPECT_LT(leases.ward_end_ns(), 0);
    EXPECT_FALSE(leases.Grant(NodeRank(nodes - 1), NodeRank(nodes - 1), 0));
  }
}

TEST(ShareLeasesTest, ANodeAsksAllWitnessesAtFirstAndThenOneInTurn) {
  ShareLeases leases = LeasesOf(6, 8);
  const auto first = leases.Tick(0, kNoneLives);
  ASSERT_THAT(first, SizeIs(3)) << "also those that seem to be lost";
  EXPECT_EQ(first[0].witness, NodeRank(7));
  EXPECT_EQ(first[1].witness, NodeRank(0));
  EXPECT_EQ(first[2].witness, NodeRank(1));
  EXPECT_EQ(first[0].share, NodeRank(6));
  leases.Granted(NodeRank(0), NodeRank(6), 0);
  EXPECT_EQ(leases.own_end_ns(), kLease);
  for (const std::uint32_t next : {7U, 0U, 1U, 7U}) {
    const auto asks = leases.Tick(kSecond, kAllLive);
    ASSERT_THAT(asks, SizeIs(1));
    EXPECT_EQ(asks[0].witness, NodeRank(next));
  }
  const auto lives = [](NodeRank node) { return node != NodeRank(0); };
  EXPECT_EQ(leases.Tick(kSecond, lives)[0].witness, NodeRank(1)) << "not the silent one";
  EXPECT_THAT(leases.Tick(kLease - 4 * kSecond, kAllLive), SizeIs(3)) << "it ends soon";
}

TEST(ShareLeasesTest, AnEarlierAnswerThatComesLaterShortensNothing) {
  ShareLeases leases = LeasesOf(0, 4);
  leases.Granted(NodeRank(1), NodeRank(0), 2 * kSecond);
  leases.Granted(NodeRank(1), NodeRank(0), kSecond);
  leases.Granted(NodeRank(2), NodeRank(0), 0);
  EXPECT_EQ(leases.own_end_ns(), 2 * kSecond + kLease);
}

TEST(ShareLeasesTest, WhatWasNotAskedForIsNotBelieved) {
  ShareLeases leases = LeasesOf(0, 8);
  leases.Granted(NodeRank(4), NodeRank(0), kSecond);  // not a witness
  leases.Granted(NodeRank(0), NodeRank(0), kSecond);
  leases.Granted(NodeRank(3), NodeRank(2), kSecond);  // neither its own share nor its ward's
  EXPECT_LT(leases.own_end_ns(), 0);
  EXPECT_LT(leases.ward_end_ns(), 0);
}

TEST(ShareLeasesTest, AWitnessGrantsToTheOwnerAndToNobodyElse) {
  ShareLeases witness = LeasesOf(2, 8);
  EXPECT_TRUE(witness.Grant(NodeRank(0), NodeRank(0), kSecond));
  EXPECT_TRUE(witness.Grant(NodeRank(7), NodeRank(7), kSecond));
  EXPECT_FALSE(witness.Grant(NodeRank(6), NodeRank(6), kSecond)) << "has other witnesses";
  EXPECT_FALSE(witness.Grant(NodeRank(2), NodeRank(2), kSecond)) << "is the owner";
  EXPECT_FALSE(witness.Grant(NodeRank(5), NodeRank(0), 100 * kSecond)) << "is not the heir";
}

TEST(ShareLeasesTest, TheHeirGetsALeaseWhenThatOfTheOwnerHasEndedAndTheOwnerLikewise) {
  ShareLeases witness = LeasesOf(2, 8);
  const NodeRank owner(0);
  const NodeRank heir(1);
  EXPECT_FALSE(witness.Grant(heir, owner, kLease - 1)) << "the owner may just have begun";
  EXPECT_TRUE(witness.Grant(owner, owner, 20 * kSecond));
  EXPECT_FALSE(witness.Grant(heir, owner, 20 * kSecond + kLease - 1));
  const std::int64_t taken = 20 * kSecond + kLease;
  EXPECT_TRUE(witness.Grant(heir, owner, taken));
  EXPECT_TRUE(witness.Grant(heir, owner, taken + kSecond));
  EXPECT_FALSE(witness.Grant(owner, owner, taken + 2 * kSecond)) << "it has come back";
  EXPECT_FALSE(witness.Grant(heir, owner, taken + 3 * kSecond)) << "so the heir gets no more";
  EXPECT_FALSE(witness.Grant(owner, owner, taken + kSecond + kLease - 1));
  EXPECT_TRUE(witness.Grant(owner, owner, taken + kSecond + kLease));
}

TEST(ShareLeasesTest, AWitnessThatHasReturnedGrantsNothingThatItMayHavePromisedBefore) {
  ShareLeases witness = LeasesOf(2, 8, /*has_returned=*/true);
  EXPECT_FALSE(witness.Grant(NodeRank(0), NodeRank(0), kLease - 1));
  EXPECT_FALSE(witness.Grant(NodeRank(7), NodeRank(6), kLease - 1));
  EXPECT_TRUE(witness.Grant(NodeRank(0), NodeRank(0), kLease));
}

TEST(ShareLeasesTest, AnHeirNeedsTheLeaseOfAllWitnesses) {
  ShareLeases heir = LeasesOf(0, 8);  // of the last node
  const auto lives = [](NodeRank node) { return node != NodeRank(7); };
  const std::int64_t now = kLease;
  heir.Granted(NodeRank(1), NodeRank(0), now);
  EXPECT_THAT(heir.Tick(now - 1, lives), SizeIs(1)) << "as a witness it refuses itself";
  const auto asks = heir.Tick(now, lives);
  ASSERT_THAT(asks, SizeIs(3));
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(asks[i].witness, NodeRank(static_cast<std::uint32_t>(i)));
    EXPECT_EQ(asks[i].share, NodeRank(7));
    EXPECT_LT(heir.ward_end_ns(), 0);
    heir.Granted(asks[i].witness, NodeRank(7), now);
  }
  EXPECT_EQ(heir.ward_end_ns(), now + kLease);
  EXPECT_THAT(heir.Tick(now + kSecond, kAllLive), SizeIs(1)) << "it gives back what it has";
}

}  // namespace forebay::stage::share_leases_test
