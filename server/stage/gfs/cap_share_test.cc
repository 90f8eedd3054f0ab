// The share of one node: what it saves up, lends, borrows, and has by leases.
#include "server/stage/gfs/cap_share.h"

#include <limits>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::stage::cap_share_test {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kSecond = 1'000 * kMs;
constexpr double kJobBytes = 50e6;
constexpr auto kAllLive = [](NodeRank) { return true; };

CapShareOptions OptionsOf(std::uint32_t self, std::uint32_t nodes, bool has_returned = false) {
  return {.caps = {kJobBytes, 100},
          .node_count = nodes,
          .self = NodeRank(self),
          .has_returned = has_returned};
}

double RateOf(CapShare& share, std::int64_t now_ns, Cap cap = Cap::kBytes) {
  return share.figures(cap, now_ns).rate;
}

// A node, not the last of the ranks, that has had its own lease since `now_ns`.
CapShare WithLease(const CapShareOptions& options, std::int64_t now_ns = 0) {
  CapShare share(options, now_ns);
  const NodeRank witness(options.self.value() + 1);
  share.Answered(witness, {.lease = options.self}, {.is_leased = true}, now_ns, now_ns);
  return share;
}

// The requests for loans in `asks`.
std::vector<CapShare::Ask> ForLoans(std::vector<CapShare::Ask> asks) {
  std::erase_if(asks, [](const CapShare::Ask& ask) { return ask.ask.lease.has_value(); });
  return asks;
}

// Ticks until the node is known to need nothing, so that it lends.
std::int64_t BecomeIdle(CapShare& share) {
  for (int i = 1; i <= 2; ++i) EXPECT_THAT(ForLoans(share.Tick(i * kSecond, kAllLive)), IsEmpty());
  return 2 * kSecond;
}

// Uses what may be used in steps of `amount` for a second.
double UseForASecond(CapShare& share, Cap cap, double amount, std::int64_t from_ns) {
  double used = 0;
  for (std::int64_t now_ns = from_ns; now_ns < from_ns + kSecond; now_ns += kMs) {
    while (share.CanTake(cap, amount, now_ns)) {
      share.Take(cap, amount, now_ns);
      used += amount;
    }
    share.AddWait(cap, kMs);
  }
  return used;
}

TEST(CapShareTest, EveryNodeGetsAnEqualShare) {
  CapShare share = WithLease(OptionsOf(1, 4));
  EXPECT_EQ(RateOf(share, 0), kJobBytes / 4);
  EXPECT_EQ(RateOf(share, 0, Cap::kOpens), 25);
  EXPECT_THAT(UseForASecond(share, Cap::kOpens, 1, 0), DoubleNear(25, 1));
  EXPECT_THAT(UseForASecond(share, Cap::kBytes, 50'000, kSecond), DoubleNear(12.5e6, 700'000));
}

TEST(CapShareTest, WithoutACapEverythingMayBeUsedAtOnce) {
  CapShare share({.caps = {0, 100}, .node_count = 2}, 0);
  EXPECT_FALSE(share.IsCapped(Cap::kBytes));
  share.Take(Cap::kBytes, 1e12, 0);
  EXPECT_TRUE(share.CanTake(Cap::kBytes, 1e12, 0));
  EXPECT_EQ(share.figures(Cap::kBytes, 0).used, 1e12);
  EXPECT_EQ(share.figures(Cap::kBytes, 0).rate, 0);
}

TEST(CapShareTest, FortyMillisecondsAreSavedUpAndNoMore) {
  CapShare share(OptionsOf(0, 1), 0);
  EXPECT_FALSE(share.CanTake(Cap::kBytes, 1, 0));  // nothing is saved at the start
  const std::int64_t later = 3'600 * kSecond;
  EXPECT_TRUE(share.CanTake(Cap::kBytes, CapShare::kBurstSeconds * kJobBytes, later));
  share.Take(Cap::kBytes, CapShare::kBurstSeconds * kJobBytes, later);
  EXPECT_FALSE(share.CanTake(Cap::kBytes, 1000, later));
}

TEST(CapShareTest, ALargeRequestIsPaidAfterwards) {
  CapShare share(OptionsOf(0, 1), 0);
  const std::int64_t full = kSecond;
  EXPECT_TRUE(share.CanTake(Cap::kBytes, 10 * kJobBytes, full));
  share.Take(Cap::kBytes, 10 * kJobBytes, full);
  EXPECT_FALSE(share.CanTake(Cap::kBytes, 1, full + 9'900 * kMs));
  EXPECT_TRUE(share.CanTake(Cap::kBytes, 1, full + 10'100 * kMs));
}

TEST(CapShareTest, WithoutALeaseANodeHasAFixedPartOfItsShare) {
  CapShare share(OptionsOf(1, 4), 0);
  EXPECT_EQ(RateOf(share, 0), kJobBytes / 16);
  EXPECT_FALSE(share.held(0).own);
  share.Answered(NodeRank(2), {.lease = NodeRank(1)}, {.is_leased = true}, kSecond, 2 * kSecond);
  const std::int64_t end = kSecond + ShareLeases::kLeaseNs;
  EXPECT_EQ(RateOf(share, 2 * kSecond), kJobBytes / 4);
  EXPECT_TRUE(share.held(end - 1).own);
  EXPECT_EQ(RateOf(share, end), kJobBytes / 16);
}

TEST(CapShareTest, WhatIsSavedUpIsThatOfTheRateAfterTheLease) {
  CapShare share = WithLease(OptionsOf(1, 4));
  const std::int64_t end = ShareLeases::kLeaseNs;
  share.Take(Cap::kBytes, CapShare::kBurstSeconds * kJobBytes / 16, end);
  EXPECT_FALSE(share.CanTake(Cap::kBytes, 1'000, end));
}

TEST(CapShareTest, TheHeirOfALostNodeHasItsShareButForTheFixedPart) {
  CapShare heir(OptionsOf(1, 3), 0);
  const auto lives = [](NodeRank node) { return node != NodeRank(0); };
  const std::int64_t now = ShareLeases::kLeaseNs;
  heir.Answered(NodeRank(2), {.lease = NodeRank(1)}, {.is_leased = true}, now, now);
  const auto asks = heir.Tick(now, lives);
  const ShareAsk for_ward{.lease = NodeRank(0)};
  ASSERT_THAT(asks, SizeIs(2));
  EXPECT_EQ(asks[1].node, NodeRank(2));
  EXPECT_EQ(asks[1].ask, for_ward);
  EXPECT_EQ(RateOf(heir, now), kJobBytes / 3);
  heir.Answered(NodeRank(2), for_ward, {.is_leased = true}, now, now);
  EXPECT_DOUBLE_EQ(RateOf(heir, now), kJobBytes / 3 * 1.75);
  EXPECT_TRUE(heir.held(now).ward);
  EXPECT_EQ(heir.held(now).ward_rank, NodeRank(0));
  const CapShare::Figures figures = heir.figures(Cap::kBytes, now);
  EXPECT_DOUBLE_EQ(figures.inherited, kJobBytes / 3 * 0.75);
  EXPECT_EQ(figures.inherited_from, NodeRank(0));
  const CapShare::Figures later = heir.figures(Cap::kBytes, now + ShareLeases::kLeaseNs);
  EXPECT_EQ(later.inherited, 0);
  EXPECT_EQ(later.inherited_from, std::nullopt);
}

TEST(CapShareTest, ANodeLendsOnlyWhatItHasForLongerThanALoanLasts) {
  CapShare lender = WithLease(OptionsOf(1, 4));
  const std::int64_t last = ShareLeases::kLeaseNs - CapShare::kLoanNs - 1;
  BecomeIdle(lender);
  EXPECT_EQ(lender.Lend(NodeRank(3), {kJobBytes, 0}, last)[0], kJobBytes / 4 * 15 / 16);
  CapShare late = WithLease(OptionsOf(1, 4));
  BecomeIdle(late);
  EXPECT_EQ(late.Lend(NodeRank(3), {kJobBytes, 0}, last + 1)[0], kJobBytes / 16 * 15 / 16);
  const std::int64_t end = ShareLeases::kLeaseNs;
  EXPECT_EQ(RateOf(late, end - 1), kJobBytes / 4 - kJobBytes / 16 * 15 / 16);
  EXPECT_EQ(RateOf(late, end), kJobBytes / 16);
}

TEST(CapShareTest, AsLongAsItSaysItTakesUntilThereIsEnough) {
  CapShare share = WithLease(OptionsOf(0, 4));
  const std::int64_t wait_ns = share.NsUntil(Cap::kOpens, 1, 0);
  EXPECT_EQ(wait_ns, 40 * kMs);
  EXPECT_FALSE(share.CanTake(Cap::kOpens, 1, wait_ns - kMs));
  EXPECT_TRUE(share.CanTake(Cap::kOpens, 1, wait_ns));
}

TEST(CapShareTest, ADebtOfCenturiesIsAWaitThatAnIntegerHolds) {
  CapShare share({.caps = {1, 0}, .node_count = 16'384}, 0);
  share.Take(Cap::kBytes, 1e9, 0);
  EXPECT_GT(share.NsUntil(Cap::kBytes, 1, 0), 1'000'000 * kSecond);
}

TEST(CapShareTest, ANodeLendsNothingToItself) {
  CapShare share(OptionsOf(0, 2), 0);
  const std::int64_t now = BecomeIdle(share);
  EXPECT_EQ(share.Lend(NodeRank(0), {kJobBytes, 100}, now), CapRates{});
  EXPECT_EQ(RateOf(share, now), kJobBytes / 2);
}

TEST(CapShareTest, ALoanMovesARateAndEndsFirstWhereItIsUsed) {
  CapShare lender(OptionsOf(0, 2), 0);
  CapShare borrower(OptionsOf(1, 2), 0);
  const std::int64_t asked = BecomeIdle(lender);
  const std::int64_t granted = asked + 100 * kMs;
  const CapRates rates = lender.Lend(NodeRank(1), {kJobBytes, 0}, granted);
  EXPECT_EQ(rates[0], kJobBytes / 2 * 15 / 16);
  EXPECT_EQ(rates[1], 0);
  EXPECT_EQ(RateOf(lender, granted), kJobBytes / 32);
  borrower.Borrowed(NodeRank(0), rates, asked, granted + 100 * kMs);
  EXPECT_EQ(RateOf(borrower, granted + 100 * kMs), kJobBytes * 31 / 32);
  EXPECT_EQ(borrower.figures(Cap::kBytes, granted + 100 * kMs).borrowed, rates[0]);
  EXPECT_EQ(RateOf(borrower, asked + CapShare::kLoanNs), kJobBytes / 2);
  EXPECT_EQ(RateOf(lender, asked + CapShare::kLoanNs), kJobBytes / 32);
  EXPECT_EQ(RateOf(lender, granted + CapShare::kLoanNs), kJobBytes / 2);
}

TEST(CapShareTest, AnAnswerThatComesTooLateIsNoLoan) {
  CapShare borrower(OptionsOf(1, 2), 0);
  borrower.Borrowed(NodeRank(0), {1e6, 0}, 0, CapShare::kLoanNs);
  EXPECT_EQ(RateOf(borrower, CapShare::kLoanNs), kJobBytes / 2);
}

TEST(CapShareTest, NobodyIsBelievedToLendMoreThanAShare) {
  CapShare borrower(OptionsOf(1, 4), 0);
  borrower.Borrowed(NodeRank(0), {1e18, 1e18}, 0, 0);
  EXPECT_LT(RateOf(borrower, 0), kJobBytes / 2);
  EXPECT_LT(RateOf(borrower, 0, Cap::kOpens), 50);
  EXPECT_GT(RateOf(borrower, 0), kJobBytes / 4 * 1.75) << "a node may have two shares";
}

TEST(CapShareTest, ANodeThatIsNotANumberOrTooMuchGetsNoMoreThanThereIs) {
  CapShare lender(OptionsOf(0, 2), 0);
  const std::int64_t now = BecomeIdle(lender);
  EXPECT_EQ(lender.Lend(NodeRank(1), {std::numeric_limits<double>::quiet_NaN(), -5}, now),
            CapRates{});
  EXPECT_EQ(lender.Lend(NodeRank(1), {1e300, 1e300}, now),
            (CapRates{kJobBytes / 2 * 15 / 16, 50.0 * 15 / 16}));
}

TEST(CapShareTest, ANodeLendsNothingAtItsStartOrWhileItNeedsItsShare) {
  CapShare lender(OptionsOf(0, 2), 0);
  EXPECT_EQ(lender.Lend(NodeRank(1), {kJobBytes, 0}, 0), CapRates{});
  const std::int64_t idle = BecomeIdle(lender);
  UseForASecond(lender, Cap::kBytes, 100'000, idle);
  lender.Tick(idle + kSecond, kAllLive);
  EXPECT_EQ(lender.Lend(NodeRank(1), {kJobBytes, 0}, idle + kSecond), CapRates{});
  // The opens were not needed.
  EXPECT_GT(lender.Lend(NodeRank(1), {0, 100}, idle + kSecond)[1], 40);
}

TEST(CapShareTest, NodesThatAskShareWhatIsLent) {
  CapShare lender = WithLease(OptionsOf(0, 4));
  const std::int64_t now = BecomeIdle(lender);
  const double spare = kJobBytes / 4 * 15 / 16;
  lender.Lend(NodeRank(1), {0, 0}, now);  // asks, and wants nothing
  EXPECT_EQ(lender.Lend(NodeRank(2), {kJobBytes, 0}, now)[0], spare / 2);
  EXPECT_EQ(lender.Lend(NodeRank(3), {kJobBytes, 0}, now)[0], spare / 3);
  EXPECT_EQ(RateOf(lender, now), kJobBytes / 4 - spare * 5 / 6);
}

TEST(CapShareTest, ARenewalIsCountedOnceAndASmallerOneFreesNothingEarly) {
  CapShare lender(OptionsOf(0, 2), 0);
  std::int64_t now = BecomeIdle(lender);
  const double all = kJobBytes / 2;
  EXPECT_EQ(lender.Lend(NodeRank(1), {kJobBytes, 0}, now)[0], all * 15 / 16);
  EXPECT_EQ(lender.Lend(NodeRank(1), {kJobBytes, 0}, now + kSecond)[0], all * 15 / 16);
  EXPECT_EQ(RateOf(lender, now + kSecond), all / 16);
  EXPECT_EQ(lender.Lend(NodeRank(1), {all / 2, 0}, now + 2 * kSecond)[0], all / 2);
  EXPECT_EQ(RateOf(lender, now + 2 * kSecond), all / 16);
  now += kSecond + CapShare::kLoanNs;  // the two large ones have ended
  EXPECT_EQ(RateOf(lender, now), all / 2);
}

TEST(CapShareTest, LoansToOneNodeAreFew) {
  CapShare lender(OptionsOf(0, 2), 0);
  const std::int64_t now = BecomeIdle(lender);
  int granted = 0;
  for (int i = 0; i < 100; ++i) {
    // Each smaller than the one before, so none takes the place of another.
    const double wanted = kJobBytes / 4 * (1 - i / 1000.0);
    granted += lender.Lend(NodeRank(1), {wanted, 0}, now + i)[0] > 0 ? 1 : 0;
  }
  EXPECT_EQ(granted, 8);
}

TEST(CapShareTest, AReturnedNodeDoesNotUseWhatItMayHaveLentBefore) {
  CapShare share(OptionsOf(0, 2, /*has_returned=*/true), 0);
  EXPECT_EQ(RateOf(share, 0), kJobBytes / 32);
  EXPECT_EQ(share.Lend(NodeRank(1), {kJobBytes, 100}, CapShare::kLoanNs - 1), CapRates{});
  EXPECT_EQ(RateOf(share, CapShare::kLoanNs), kJobBytes / 2);
}

TEST(CapShareTest, ANodeThatIsShortAsksTheLivingInTurnAndRenewsFirst) {
  CapShare share = WithLease(OptionsOf(30, 40));
  BecomeIdle(share);
  UseForASecond(share, Cap::kBytes, 1'000, 2 * kSecond);
  const auto lives = [](NodeRank node) { return node != NodeRank(32); };
  const auto first = ForLoans(share.Tick(3 * kSecond, lives));
  ASSERT_THAT(first, SizeIs(CapShare::kAsksMax));
  EXPECT_EQ(first[0].node, NodeRank(31));
  EXPECT_EQ(first[1].node, NodeRank(33));
  EXPECT_EQ(first[15].node, NodeRank(7));  // 39 is followed by 0
  EXPECT_EQ(first[0].ask.wanted[0], kJobBytes - kJobBytes / 40);
  EXPECT_EQ(first[0].ask.wanted[1], 0);
  share.Borrowed(NodeRank(33), {1e6, 0}, 3 * kSecond, 3 * kSecond);
  UseForASecond(share, Cap::kBytes, 1'000, 3 * kSecond);
  EXPECT_EQ(ForLoans(share.Tick(4 * kSecond, lives))[0].node, NodeRank(8));
  UseForASecond(share, Cap::kBytes, 1'000, 4 * kSecond);
  EXPECT_EQ(ForLoans(share.Tick(5 * kSecond, lives))[0].node, NodeRank(33));
}

}  // namespace forebay::stage::cap_share_test
