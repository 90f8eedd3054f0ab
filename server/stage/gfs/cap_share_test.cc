// Shares of a cap, one by one and for a whole job in a simulated network that delays, loses and
// reorders messages while nodes stop, die and return: the sum of all rates never exceeds the cap.
#include "server/stage/gfs/cap_share.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::stage::cap_share_test {

using ::testing::DoubleNear;
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

// Ticks until the node is known to need nothing, so that it lends.
std::int64_t BecomeIdle(CapShare& share) {
  for (int i = 1; i <= 2; ++i) EXPECT_THAT(share.Tick(i * kSecond, kAllLive), IsEmpty());
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

TEST(CapShareTest, EveryNodeBeginsWithAnEqualShare) {
  CapShare share(OptionsOf(1, 4), 0);
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

TEST(CapShareTest, AFiftyMillisecondsAreSavedUpAndNoMore) {
  CapShare share(OptionsOf(0, 1), 0);
  EXPECT_FALSE(share.CanTake(Cap::kBytes, 1, 0));  // nothing is saved at the start
  const std::int64_t later = 3'600 * kSecond;
  EXPECT_TRUE(share.CanTake(Cap::kBytes, 0.05 * kJobBytes, later));
  share.Take(Cap::kBytes, 0.05 * kJobBytes, later);
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

TEST(CapShareTest, AsLongAsItSaysItTakesUntilThereIsEnough) {
  CapShare share(OptionsOf(0, 4), 0);
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
  CapShare lender(OptionsOf(0, 4), 0);
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
  CapShare share(OptionsOf(30, 40), 0);
  BecomeIdle(share);
  UseForASecond(share, Cap::kBytes, 1'000, 2 * kSecond);
  const auto lives = [](NodeRank node) { return node != NodeRank(32); };
  const auto first = share.Tick(3 * kSecond, lives);
  ASSERT_THAT(first, SizeIs(CapShare::kAsksMax));
  EXPECT_EQ(first[0].lender, NodeRank(31));
  EXPECT_EQ(first[1].lender, NodeRank(33));
  EXPECT_EQ(first[15].lender, NodeRank(7));  // 39 is followed by 0
  EXPECT_EQ(first[0].wanted[0], kJobBytes - kJobBytes / 40);
  EXPECT_EQ(first[0].wanted[1], 0);
  share.Borrowed(NodeRank(33), {1e6, 0}, 3 * kSecond, 3 * kSecond);
  UseForASecond(share, Cap::kBytes, 1'000, 3 * kSecond);
  EXPECT_EQ(share.Tick(4 * kSecond, lives)[0].lender, NodeRank(8));
  UseForASecond(share, Cap::kBytes, 1'000, 4 * kSecond);
  EXPECT_EQ(share.Tick(5 * kSecond, lives)[0].lender, NodeRank(33));
}

// A job in a network, in steps of 10 ms.
class Job {
 public:
  static constexpr std::int64_t kStep = 10 * kMs;
  static constexpr double kAmount = kJobBytes / 100'000;  // of one request

  Job(std::uint32_t nodes, std::uint64_t seed) : random_(seed), nodes_(nodes) {
    for (std::uint32_t i = 0; i < nodes; ++i) Start(i, false);
    for (std::uint32_t i = 0; i < nodes; ++i) nodes_[i].tick_at = Draw(0, 100) * kStep;
  }

  // Bytes that node `i` wants in each step; as much as it gets if it is large.
  std::function<double(std::uint32_t node, std::int64_t now)> demand;
  double loss = 0;
  std::int64_t delay_max_steps = 10;

  void Kill(std::uint32_t i) { nodes_[i].share.reset(); }
  void Start(std::uint32_t i, bool has_returned) {
    nodes_[i].share = std::make_unique<CapShare>(
        OptionsOf(i, static_cast<std::uint32_t>(nodes_.size()), has_returned), now_);
    nodes_[i].wants = 0;
  }
  void SetStopped(std::uint32_t i, bool stopped) { nodes_[i].stopped = stopped; }
  bool IsDead(std::uint32_t i) const { return nodes_[i].share == nullptr; }

  void Run(std::int64_t steps) {
    for (std::int64_t i = 0; i < steps; ++i) Step();
  }
  double used_of(std::uint32_t i) const { return nodes_[i].used; }
  std::int64_t now() const { return now_; }
  double most_in_a_second() const { return most_in_a_second_; }
  double highest_rate() const { return highest_rate_; }
  std::uint64_t loans() const { return loans_; }
  std::int64_t Draw(std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
  }

 private:
  struct Node {
    std::unique_ptr<CapShare> share;  // null: dead
    bool stopped = false;
    std::int64_t tick_at = 0;
    double wants = 0;
    double used = 0;
  };
  struct Message {
    std::int64_t at = 0;
    std::uint64_t number = 0;  // of equal times
    std::function<void()> deliver;
    bool operator<(const Message& other) const {
      return std::pair(at, number) > std::pair(other.at, other.number);
    }
  };

  void Send(std::function<void()> deliver) {
    if (std::uniform_real_distribution<>(0, 1)(random_) < loss) return;
    messages_.push({.at = now_ + Draw(0, delay_max_steps) * kStep,
                    .number = next_message_++,
                    .deliver = std::move(deliver)});
  }
  bool Hears(std::uint32_t i) const { return nodes_[i].share && !nodes_[i].stopped; }

  void Tick(std::uint32_t i) {
    const std::int64_t asked = now_;
    for (const CapShare::Ask& ask : nodes_[i].share->Tick(now_, kAllLive)) {
      const std::uint32_t to = ask.lender.value();
      Send([this, i, to, asked, wanted = ask.wanted] {
        if (!Hears(to)) return;
        const CapRates rates = nodes_[to].share->Lend(NodeRank(i), wanted, now_);
        loans_ += rates[0] > 0 ? 1 : 0;
        Send([this, i, to, asked, rates] {
          if (Hears(i)) nodes_[i].share->Borrowed(NodeRank(to), rates, asked, now_);
        });
      });
    }
  }

  void Step() {
    now_ += kStep;
    while (!messages_.empty() && messages_.top().at <= now_) {
      const Message message = messages_.top();
      messages_.pop();
      message.deliver();
    }
    double used = 0;
    double rates = 0;
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      Node& node = nodes_[i];
      if (!Hears(i)) continue;
      node.wants = std::min(node.wants + demand(i, now_), kJobBytes);
      while (node.wants >= kAmount && node.share->CanTake(Cap::kBytes, kAmount, now_)) {
        node.share->Take(Cap::kBytes, kAmount, now_);
        node.wants -= kAmount;
        node.used += kAmount;
        used += kAmount;
      }
      if (node.wants >= kAmount) node.share->AddWait(Cap::kBytes, kStep);
      if (now_ >= node.tick_at) {
        Tick(i);
        node.tick_at = now_ + kSecond;
      }
    }
    // A node that stands still has its rate all the same.
    for (const Node& node : nodes_) {
      if (node.share) rates += node.share->figures(Cap::kBytes, now_).rate;
    }
    highest_rate_ = std::max(highest_rate_, rates);
    last_second_.push_back(used);
    in_last_second_ += used;
    if (last_second_.size() > kSecond / kStep) {
      in_last_second_ -= last_second_.front();
      last_second_.pop_front();
    }
    most_in_a_second_ = std::max(most_in_a_second_, in_last_second_);
  }

  std::mt19937_64 random_;
  std::vector<Node> nodes_;
  std::priority_queue<Message> messages_;
  std::uint64_t next_message_ = 0;
  std::int64_t now_ = 0;
  std::deque<double> last_second_;
  double in_last_second_ = 0;
  double most_in_a_second_ = 0;
  double highest_rate_ = 0;
  std::uint64_t loans_ = 0;
};

constexpr double kMuch = kJobBytes;  // in a step: more than any node gets
constexpr double kRounding = 1 + 1e-9;

TEST(CapShareJobTest, EqualDemandUsesTheCapAndNoMore) {
  Job job(16, 1);
  job.demand = [](std::uint32_t, std::int64_t) { return kMuch; };
  job.Run(2'000);
  double used = 0;
  for (std::uint32_t i = 0; i < 16; ++i) used += job.used_of(i);
  EXPECT_GT(used, 0.98 * 20 * kJobBytes);
  EXPECT_LE(job.most_in_a_second(), 1.05 * kJobBytes);
  EXPECT_LE(job.highest_rate(), kJobBytes * kRounding);
}

TEST(CapShareJobTest, TheDemandOfOneNodeAloneGetsNearlyAll) {
  for (const std::uint32_t nodes : {2U, 4U, 16U, 32U}) {
    Job job(nodes, nodes);
    job.demand = [](std::uint32_t i, std::int64_t) { return i == 0 ? kMuch : 0; };
    job.Run(1'000);  // the others become known to be idle, and are asked in turn
    const double before = job.used_of(0);
    job.Run(2'000);
    EXPECT_GT(job.used_of(0) - before, 0.9 * 20 * kJobBytes) << nodes;
    EXPECT_LE(job.most_in_a_second(), 1.05 * kJobBytes) << nodes;
    EXPECT_LE(job.highest_rate(), kJobBytes * kRounding) << nodes;
  }
}

TEST(CapShareJobTest, ANodeThatNeedsItsShareHasItAgainWhenItsLoansHaveEnded) {
  Job job(2, 3);
  job.demand = [](std::uint32_t i, std::int64_t now) {
    return i == 0 || now >= 10 * kSecond ? kMuch : 0;
  };
  job.Run(1'000 + 500);
  const double before = job.used_of(1);
  job.Run(1'000);
  EXPECT_GT(job.used_of(1) - before, 0.95 * 10 * kJobBytes / 2);
}

TEST(CapShareJobTest, InALargeJobANodeGetsManyShares) {
  Job job(1'000, 4);
  job.demand = [](std::uint32_t i, std::int64_t) { return i == 0 ? kMuch : 0; };
  job.Run(500);
  const double before = job.used_of(0);
  job.Run(500);
  EXPECT_GT(job.used_of(0) - before, 25 * 5 * kJobBytes / 1'000);
  EXPECT_LE(job.highest_rate(), kJobBytes * kRounding);
}

TEST(CapShareJobTest, ALostNodesShareIsUsedByNobody) {
  Job job(4, 5);
  job.demand = [](std::uint32_t, std::int64_t) { return kMuch; };
  job.Run(500);
  job.Kill(2);
  std::vector<double> before;
  for (std::uint32_t i = 0; i < 4; ++i) before.push_back(job.used_of(i));
  job.Run(1'000);
  double used = 0;
  for (std::uint32_t i = 0; i < 4; ++i) used += job.used_of(i) - before[i];
  EXPECT_THAT(used, DoubleNear(0.75 * 10 * kJobBytes, 0.02 * 10 * kJobBytes));
}

TEST(CapShareJobTest, TheCapHoldsWhateverIsLostDelayedStoppedKilledOrReturns) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    Job job(12, seed);
    job.loss = 0.2;
    job.delay_max_steps = 400;  // longer than a loan
    std::vector<double> demands(12, 0);
    job.demand = [&](std::uint32_t i, std::int64_t) { return demands[i]; };
    int kills = 0;
    int stops = 0;
    std::vector<bool> stopped(12, false);
    for (int i = 0; i < 150; ++i) {
      const auto node = static_cast<std::uint32_t>(job.Draw(0, 11));
      switch (job.Draw(0, 3)) {
        case 0:
          if (job.IsDead(node)) {
            job.Start(node, /*has_returned=*/true);
          } else if (job.Draw(0, 3) == 0) {
            job.Kill(node);
            ++kills;
          }
          break;
        case 1:
          stopped[node] = !stopped[node];
          job.SetStopped(node, stopped[node]);
          ++stops;
          break;
        default:
          demands[node] =
              kJobBytes / 10'000 * static_cast<double>(job.Draw(0, 1) * job.Draw(0, 100));
      }
      job.Run(job.Draw(1, 60));
    }
    EXPECT_GT(kills, 0);
    EXPECT_GT(stops, 0);
    EXPECT_GT(job.loans(), 20U);
    EXPECT_LE(job.highest_rate(), kJobBytes * kRounding);
    EXPECT_LE(job.most_in_a_second(), 1.05 * kJobBytes);
  }
}

}  // namespace forebay::stage::cap_share_test
