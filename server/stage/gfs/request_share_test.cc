// Tests the requests in flight of one node: what it may begin, lends, borrows, holds on to, and has
// by leases. cap_share_job_test.cc tests all nodes of a job together.
#include "server/stage/gfs/request_share.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::stage::request_share_test {

using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kSecond = 1'000 * kMs;
constexpr auto kAllLive = [](NodeRank) { return true; };

// A node with its leases. Times are those that the test says.
class Node {
 public:
  Node(std::uint32_t self, std::uint32_t nodes, std::uint64_t job, bool has_returned = false,
       std::uint64_t node_max = 8)
      : leases_(nodes, NodeRank(self), has_returned, 0),
        share_({.job = job,
                .node_max = node_max,
                .node_count = nodes,
                .self = NodeRank(self),
                .has_returned = has_returned},
               leases_, 0),
        self_(self) {}

  // From `now_ns` on, this node has the lease of the part of the node before it, for kLeaseNs.
  void GetLeaseOfWard(std::int64_t now_ns) {
    for (std::uint32_t witness = self_; witness < self_ + 3; ++witness) {
      leases_.Granted(NodeRank(witness), NodeRank(self_ - 1), now_ns);
    }
  }
  // From `now_ns` on, this node has the lease of its own part, for kLeaseNs.
  void GetLease(std::int64_t now_ns) {
    leases_.Granted(NodeRank(self_ + 1), NodeRank(self_), now_ns);
  }
  void Begin(std::uint64_t requests, std::int64_t now_ns) {
    for (std::uint64_t i = 0; i < requests; ++i) EXPECT_TRUE(share_.TryBegin(0, now_ns));
    in_flight_ += requests;
  }
  void End(std::uint64_t requests) {
    for (std::uint64_t i = 0; i < requests; ++i) share_.End();
    in_flight_ -= requests;
  }
  // Returns how many more requests may begin.
  std::uint64_t Left(std::int64_t now_ns) const {
    const std::uint64_t usable = share_.figures(now_ns).now;
    return usable > in_flight_ ? usable - in_flight_ : 0;
  }
  // Ticks until the node is known to need nothing, so that it lends. Returns the time then.
  std::int64_t BecomeIdle() {
    for (int i = 1; i <= 2; ++i) EXPECT_THAT(share_.Tick(i * kSecond, kAllLive), IsEmpty());
    return 2 * kSecond;
  }
  // Uses what it has, and would use more from `from_ns` on. Returns what it asks of other nodes a
  // second later.
  std::vector<RequestShare::Ask> WantMore(std::int64_t from_ns) {
    while (share_.TryBegin(0, from_ns)) ++in_flight_;
    return share_.Tick(from_ns + kSecond, kAllLive);
  }
  // In a job of two nodes: needs more than its part, and borrows three requests of node 1 at 2 s.
  void BorrowThree() {
    ASSERT_THAT(WantMore(kSecond), SizeIs(1));
    share_.Borrowed(NodeRank(1), 3, 2 * kSecond, 2 * kSecond);
  }
  RequestShare& operator*() { return share_; }
  RequestShare* operator->() { return &share_; }

 private:
  ShareLeases leases_;
  RequestShare share_;
  const std::uint32_t self_;
  std::uint64_t in_flight_ = 0;
};

TEST(RequestShareTest, TheCapIsDividedAmongTheNodes) {
  std::uint64_t sum = 0;
  for (std::uint32_t self = 0; self < 4; ++self) {
    Node node(self, 4, 10);
    sum += node->figures(0).node;
  }
  EXPECT_EQ(sum, 10U);
  EXPECT_EQ(Node(0, 4, 10)->figures(0).node, 3U);
  EXPECT_EQ(Node(3, 4, 10)->figures(0).node, 2U);
}

TEST(RequestShareTest, WithoutACapThereIsNoLimitHere) {
  Node node(0, 4, 0);
  EXPECT_FALSE(node->IsCapped());
  node.Begin(8, 0);
  EXPECT_THAT(node->Tick(kSecond, kAllLive), IsEmpty());
  EXPECT_EQ(node->Lend(NodeRank(1), {.wanted = 4}, 5 * kSecond), 0U);
}

TEST(RequestShareTest, ANodeHasNoMoreInFlightThanItsPart) {
  Node node(0, 2, 6);
  EXPECT_EQ(node.Left(0), 3U);
  node.Begin(3, 0);
  EXPECT_FALSE(node->TryBegin(0, 0));
  node.End(1);
  EXPECT_FALSE(node->TryBegin(/*kept=*/1, 0)) << "one is kept for others";
  EXPECT_TRUE(node->TryBegin(0, 0));
  EXPECT_EQ(node->figures(0).begun, 4U);
}

TEST(RequestShareTest, WithoutALeaseANodeHasAQuarterOfItsPartAndAtLeastOne) {
  for (const auto& [job, fixed] : {std::pair(32U, 2U), std::pair(36U, 3U), std::pair(4U, 1U)}) {
    Node node(1, 4, job);
    EXPECT_EQ(node->figures(0).now, fixed) << job;
    node.GetLease(0);
    EXPECT_EQ(node->figures(0).now, job / 4) << job;
    EXPECT_EQ(node->figures(ShareLeases::kLeaseNs).now, fixed) << job;
  }
}

TEST(RequestShareTest, ANodeLendsWhatItDoesNotUseButForOne) {
  Node lender(0, 2, 16);
  EXPECT_EQ(lender->Lend(NodeRank(1), {.wanted = 8}, 0), 0U) << "it may need its part itself";
  const std::int64_t now = lender.BecomeIdle();
  EXPECT_EQ(lender->Lend(NodeRank(0), {.wanted = 8}, now), 0U) << "itself";
  EXPECT_EQ(lender->Lend(NodeRank(1), {.wanted = 3}, now), 3U);
  EXPECT_EQ(lender->Lend(NodeRank(1), {.wanted = 16}, now), 7U) << "in the place of the first";
  EXPECT_EQ(lender->figures(now).now, 1U);
  EXPECT_EQ(lender.Left(now), 1U);
  EXPECT_EQ(lender->figures(now + RequestShare::kLoanNs).now, 8U);
}

TEST(RequestShareTest, WhatANodeUsesItKeeps) {
  Node lender(0, 2, 16);
  lender.Begin(5, 0);
  const std::int64_t now = lender.BecomeIdle();
  EXPECT_EQ(lender->Lend(NodeRank(1), {.wanted = 8}, now), 3U);
}

TEST(RequestShareTest, NodesThatAskShareWhatIsLentAndEachGetsOneAtLeast) {
  Node lender(0, 8, 32);
  lender.GetLease(0);
  const std::int64_t now = lender.BecomeIdle();
  EXPECT_EQ(lender->Lend(NodeRank(2), {.wanted = 1}, now), 1U);
  EXPECT_EQ(lender->Lend(NodeRank(3), {.wanted = 8}, now), 1U) << "half of three, rounded down";
  EXPECT_EQ(lender->Lend(NodeRank(4), {.wanted = 8}, now), 1U);
  EXPECT_EQ(lender->Lend(NodeRank(5), {.wanted = 8}, now), 0U);
  EXPECT_EQ(lender->figures(now).lent, 3U);
}

TEST(RequestShareTest, ANodeLendsOnlyWhatItHasForLongerThanALoanLasts) {
  Node lender(1, 4, 32);
  lender.GetLease(0);
  lender.BecomeIdle();
  const std::int64_t late = ShareLeases::kLeaseNs - RequestShare::kLoanNs;
  EXPECT_EQ(lender->Lend(NodeRank(3), {.wanted = 8}, late), 1U) << "of two without a lease";
}

TEST(RequestShareTest, ANodeThatIsShortAsksAndBorrows) {
  Node node(0, 4, 8);
  node.GetLease(0);
  const auto asks = node.WantMore(kSecond);
  ASSERT_THAT(asks, SizeIs(3));
  EXPECT_EQ(asks[0].node, NodeRank(1));
  EXPECT_EQ(asks[0].ask, (RequestLoanAsk{.wanted = 3})) << "the others keep one each";
  node->Borrowed(NodeRank(1), 1, 2 * kSecond, 2 * kSecond + 5 * kMs);
  EXPECT_EQ(node.Left(2 * kSecond + 5 * kMs), 1U);
  EXPECT_EQ(node->figures(2 * kSecond + 5 * kMs).borrowed, 1U);
  EXPECT_EQ(node.Left(2 * kSecond + RequestShare::kLoanNs), 0U) << "the loan has ended";
  EXPECT_GT(node->figures(2 * kSecond).waited_ns, 0);
}

TEST(RequestShareTest, OfSeveralLoansANodeTakesNoMoreThanItCanUse) {
  Node node(0, 4, 40, false, /*node_max=*/12);
  node.GetLease(0);
  node.WantMore(kSecond);
  node->Borrowed(NodeRank(1), 9, 2 * kSecond, 2 * kSecond);
  node->Borrowed(NodeRank(2), 9, 2 * kSecond, 2 * kSecond);
  EXPECT_EQ(node->figures(2 * kSecond).borrowed, 2U);
  EXPECT_EQ(node->Lend(NodeRank(3), {.wanted = 1}, 2 * kSecond), 0U) << "it needs its own part";
}

// Two requests of this node are on the loan of node 1 when it has to be renewed.
TEST(RequestShareTest, ARenewalSaysWhatIsInFlightAndTheLoanCountsForThatUntilTheAnswer) {
  Node node(0, 2, 8);
  node.BorrowThree();
  node.Begin(3, 2 * kSecond);
  node.End(1);
  const auto asks = node->Tick(3 * kSecond, kAllLive);
  ASSERT_THAT(asks, SizeIs(1));
  EXPECT_EQ(asks[0].ask.held, 2U);
  EXPECT_EQ(node.Left(3 * kSecond), 0U) << "the lender may not extend the third";
  node->Borrowed(NodeRank(1), 3, 3 * kSecond, 3 * kSecond + kMs);
  EXPECT_EQ(node.Left(3 * kSecond + kMs), 1U);
  EXPECT_EQ(node->figures(5 * kSecond).borrowed, 3U);
}

// Only requests that take longer than the rest of the loan can be too many then.
TEST(RequestShareTest, NothingBeginsInTheLastHalfSecondOfALoan) {
  Node node(0, 2, 8);
  node.BorrowThree();
  const std::int64_t end = 2 * kSecond + RequestShare::kLoanNs;
  EXPECT_TRUE(node->TryBegin(0, end - 501 * kMs));
  EXPECT_FALSE(node->TryBegin(0, end - 500 * kMs));
}

// No renewal got through. Then one does, and the lender learns what is still in flight.
TEST(RequestShareTest, WhatIsHeldIsToldAlsoAfterTheLoanHasEnded) {
  Node node(0, 2, 8);
  node.BorrowThree();
  node.Begin(3, 2 * kSecond);
  for (const std::int64_t second : {3, 4, 20}) {
    const auto asks = node->Tick(second * kSecond, kAllLive);
    ASSERT_THAT(asks, SizeIs(1)) << second;
    EXPECT_EQ(asks[0].ask.held, 3U) << second;
  }
  node->Borrowed(NodeRank(1), 0, 20 * kSecond, 20 * kSecond + kMs);
  node.End(1);
  EXPECT_EQ(node->Tick(21 * kSecond, kAllLive)[0].ask.held, 2U);
}

TEST(RequestShareTest, ALoanThatIsNotNeededIsGivenUpAndNotRenewed) {
  Node node(0, 2, 8);
  node.BorrowThree();
  node.End(4);
  EXPECT_THAT(node->Tick(3 * kSecond, kAllLive), IsEmpty());
  EXPECT_EQ(node->figures(3 * kSecond).now, 4U);
}

// A demand that was given up does not make the node ask for ever.
TEST(RequestShareTest, ANodeIsShortOnlyAsLongAsARequestWaits) {
  Node node(0, 2, 8);
  ASSERT_THAT(node.WantMore(kSecond), SizeIs(1));
  node.End(1);
  EXPECT_THAT(node->Tick(3 * kSecond, kAllLive), IsEmpty());
  EXPECT_EQ(node->figures(3 * kSecond).waited_ns, kSecond);
}

// The node may have one request. Each takes 100 ms, and the next one waits meanwhile.
TEST(RequestShareTest, ManyShortWaitsMakeANodeShort) {
  Node node(1, 4, 8);  // without a lease: one of two
  for (std::int64_t now = 0; now < kSecond; now += 100 * kMs) {
    node.Begin(1, now);
    EXPECT_FALSE(node->TryBegin(0, now));
    node.End(1);
  }
  node.Begin(1, kSecond);
  EXPECT_THAT(node->Tick(kSecond, kAllLive), SizeIs(3));
  EXPECT_EQ(node->figures(kSecond).waited_ns, kSecond);
}

TEST(RequestShareTest, ALenderThatIsShortItselfStillDoesWithoutWhatIsHeld) {
  Node lender(0, 2, 16);
  std::int64_t now = lender.BecomeIdle();
  ASSERT_EQ(lender->Lend(NodeRank(1), {.wanted = 6}, now), 6U);
  lender.WantMore(now);  // it has two left
  now += 2 * kSecond;
  EXPECT_EQ(lender->Lend(NodeRank(1), {.wanted = 6, .held = 4}, now), 0U);
  now = 2 * kSecond + RequestShare::kLoanNs;  // the first loan has ended
  EXPECT_EQ(lender.Left(now), 2U);
  lender.Begin(1, now);
  EXPECT_EQ(lender->Lend(NodeRank(1), {.wanted = 6, .held = 6}, now), 0U);
  EXPECT_EQ(lender->figures(now).lent, 5U) << "what it had lent, and has left";
}

// The heir (node 2) had the part of node 1, and three requests on it are in flight.
TEST(RequestShareTest, ANodeThatIsBackDoesWithoutWhatItsHeirStillHolds) {
  Node node(1, 4, 16);
  EXPECT_EQ(node->Lend(NodeRank(3), {.held_as_heir = 3}, 0), 0U);
  node.GetLease(0);
  EXPECT_EQ(node->figures(0).now, 4U) << "node 3 is not its heir";
  EXPECT_EQ(node->Lend(NodeRank(2), {.held_as_heir = 3}, 0), 0U);
  EXPECT_EQ(node->figures(0).now, 1U) << "its fixed part is its own";
  EXPECT_EQ(node->Lend(NodeRank(2), {.held_as_heir = 1}, kSecond), 0U);
  EXPECT_EQ(node->figures(kSecond).now, 3U);
  EXPECT_EQ(node->figures(kSecond + RequestShare::kLoanNs).now, 4U);
}

TEST(RequestShareTest, WhatTheHeirHoldsIsNotLent) {
  Node node(1, 4, 16);
  node.GetLease(0);
  const std::int64_t now = node.BecomeIdle();
  node.GetLease(now);
  node->Lend(NodeRank(2), {.held_as_heir = 3}, now);
  EXPECT_EQ(node->Lend(NodeRank(3), {.wanted = 3}, now), 0U);
  EXPECT_EQ(node->Lend(NodeRank(3), {.wanted = 3}, now + RequestShare::kLoanNs), 3U);
}

TEST(RequestShareTest, AReturnedHeirTellsItsWardThatEarlierLoansMayBeOfItsPart) {
  Node heir(1, 4, 16, /*has_returned=*/true);
  const RequestLoanAsk all{.held_as_heir = 3};
  EXPECT_EQ(heir->Tick(kSecond, kAllLive).back().ask, all);
  heir->Lend(NodeRank(3), {.held = 2}, 2 * kSecond);
  EXPECT_EQ(heir->Tick(2 * kSecond, kAllLive).back().ask, all);
  const std::int64_t later = RequestShare::kLoanNs + kSecond;
  EXPECT_EQ(heir->Tick(later, kAllLive).back().ask, (RequestLoanAsk{.held_as_heir = 2}))
      << "two on loan, and one of its own, of which one is covered";
}

TEST(RequestShareTest, AnHeirTellsItsWardWhatItHoldsBeforeItsLeaseEndsAndAfter) {
  Node heir(1, 4, 16);
  heir.GetLease(0);
  heir.GetLeaseOfWard(0);
  heir->Tick(kSecond, kAllLive);
  EXPECT_EQ(heir->figures(kSecond).now, 7U);
  EXPECT_EQ(heir->figures(kSecond).inherited, 3U);
  heir.Begin(6, kSecond);
  heir.GetLease(5 * kSecond);
  const std::int64_t end = ShareLeases::kLeaseNs;
  EXPECT_THAT(heir->Tick(end - 3 * kSecond, kAllLive), IsEmpty());
  for (const std::int64_t now : {end - 2 * kSecond, end + kSecond}) {
    const auto asks = heir->Tick(now, kAllLive);  // it looks for loans, too
    ASSERT_THAT(asks, Not(IsEmpty()));
    EXPECT_EQ(asks.back().node, NodeRank(0));
    EXPECT_EQ(asks.back().ask, (RequestLoanAsk{.held_as_heir = 2}));
    EXPECT_EQ(heir.Left(now), 0U);
  }
  heir.End(3);
  for (const auto& ask : heir->Tick(end + 2 * kSecond, kAllLive)) {
    EXPECT_EQ(ask.ask.held_as_heir, 0U);
  }
  EXPECT_EQ(heir.Left(end + 2 * kSecond), 1U);
}

// Two of its requests on the loan are in flight when the lender needs its part again.
TEST(RequestShareTest, OnALoanThatIsNotExtendedNothingBegins) {
  Node node(0, 2, 8);
  node.BorrowThree();
  node.Begin(2, 2 * kSecond);
  node->Tick(3 * kSecond, kAllLive);
  auto asks = node->Tick(4 * kSecond, kAllLive);
  ASSERT_THAT(asks, SizeIs(1));
  EXPECT_EQ(asks[0].ask.held, 2U);
  node->Borrowed(NodeRank(1), 0, 4 * kSecond, 4 * kSecond);
  node.End(1);
  EXPECT_EQ(node.Left(4 * kSecond), 0U) << "its own part is in use";
  asks = node->Tick(5 * kSecond, kAllLive);
  ASSERT_THAT(asks, SizeIs(1));
  EXPECT_EQ(asks[0].ask.held, 1U);
  node.End(2);
  EXPECT_EQ(node.Left(5 * kSecond), 1U);
}

TEST(RequestShareTest, WhatIsHeldIsAskedForAlsoOfANodeThatSeemsToBeLost) {
  Node node(0, 2, 8);
  node.BorrowThree();
  node.Begin(3, 2 * kSecond);
  node->Tick(3 * kSecond, kAllLive);
  const auto none_lives = [](NodeRank) { return false; };
  EXPECT_THAT(node->Tick(4 * kSecond, none_lives), SizeIs(1));
  node.End(7);
  EXPECT_THAT(node->Tick(5 * kSecond, none_lives), IsEmpty());
}

TEST(RequestShareTest, AnAnswerToAnEarlierRequestIsDropped) {
  Node node(0, 2, 8);
  ASSERT_THAT(node.WantMore(kSecond), SizeIs(1));
  ASSERT_THAT(node.WantMore(2 * kSecond), SizeIs(1));
  node->Borrowed(NodeRank(1), 3, 2 * kSecond, 3 * kSecond);
  EXPECT_EQ(node->figures(3 * kSecond).borrowed, 0U);
  node->Borrowed(NodeRank(1), 2, 3 * kSecond, 3 * kSecond);
  EXPECT_EQ(node->figures(3 * kSecond).borrowed, 2U);
  node->Borrowed(NodeRank(1), 4, 3 * kSecond, 3 * kSecond);
  EXPECT_EQ(node->figures(3 * kSecond).borrowed, 2U) << "answered already";
}

TEST(RequestShareTest, AnAnswerThatComesTooLateIsNoLoan) {
  Node node(0, 2, 8);
  ASSERT_THAT(node.WantMore(kSecond), SizeIs(1));
  const std::int64_t late = 2 * kSecond + RequestShare::kLoanNs;
  node->Borrowed(NodeRank(1), 3, 2 * kSecond, late);
  EXPECT_EQ(node->figures(late).borrowed, 0U);
}

// The killed daemon may have lent all but one, and those that borrowed say so.
TEST(RequestShareTest, AReturnedNodeUsesOneRequestAndBelievesWhatOthersHoldOfIt) {
  Node node(0, 2, 16, /*has_returned=*/true);
  EXPECT_EQ(node.Left(0), 1U);
  EXPECT_EQ(node->Lend(NodeRank(1), {.wanted = 8, .held = 3}, kSecond), 0U);
  EXPECT_EQ(node->figures(kSecond).lent, 3U);
  EXPECT_EQ(node.Left(kSecond), 1U);
  EXPECT_EQ(node.Left(RequestShare::kLoanNs), 5U);
}

TEST(RequestShareTest, AReturnedNodeLendsNothingUntilEarlierLoansHaveEnded) {
  Node node(0, 2, 16, /*has_returned=*/true);
  const std::int64_t now = node.BecomeIdle();
  EXPECT_EQ(node->Lend(NodeRank(1), {.wanted = 4}, now), 0U);
  EXPECT_EQ(node->Lend(NodeRank(1), {.wanted = 4}, RequestShare::kLoanNs), 4U);
}

TEST(RequestShareTest, LoansToOneNodeAreFew) {
  Node lender(0, 2, 200);
  const std::int64_t now = lender.BecomeIdle();
  int granted = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    // Each smaller than the one before, so none takes the place of another.
    granted += lender->Lend(NodeRank(1), {.wanted = 90 - i}, now) > 0 ? 1 : 0;
  }
  EXPECT_EQ(granted, 8);
}

TEST(RequestShareTest, LoansThatANodeHasAreAsManyAsItCanRenewAtOnce) {
  Node node(0, 100, 300, false, /*node_max=*/64);
  for (std::int64_t second = 1; second < 5; ++second) {
    const auto asks = node.WantMore(second * kSecond);
    EXPECT_LE(asks.size(), RequestShare::kLoansMax);
    const std::int64_t now = (second + 1) * kSecond;
    for (const auto& ask : asks) node->Borrowed(ask.node, 1, now, now);
    EXPECT_EQ(node->figures(now).borrowed, RequestShare::kLoansMax);
  }
}

}  // namespace forebay::stage::request_share_test
