// Tests CapShare for all nodes of a job, in a simulated network that delays, loses and reorders
// messages while nodes stop, die, are cut off and return, and take each other for dead or alive as
// chance has it: the sum of all rates never exceeds the cap, nor does that of the requests in
// flight.
#include "server/stage/gfs/cap_share.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/stage/testing/capped_job.h"

namespace forebay::stage::cap_share_job_test {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::Gt;

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kSecond = 1'000 * kMs;
constexpr double kJobBytes = CappedJob::kBytes;
constexpr std::uint64_t kNodeRequests = CappedJob::kNodeRequests;
constexpr double kMuch = kJobBytes;  // in a step: more than any node gets
constexpr double kRounding = 1 + 1e-9;

TEST(CapShareJobTest, EqualDemandUsesTheCapAndNoMore) {
  CappedJob job(16, 1);
  job.demand = [](std::uint32_t, std::int64_t) { return kMuch; };
  job.Run(200);  // all have their leases
  const double before = job.used();
  job.Run(2'000);
  EXPECT_GT(job.used() - before, 0.98 * 20 * kJobBytes);
  EXPECT_LE(job.most_in_a_second(), 1.05 * kJobBytes);
  EXPECT_LE(job.highest_rate(), kJobBytes * kRounding);
}

TEST(CapShareJobTest, TheDemandOfOneNodeAloneGetsNearlyAll) {
  for (const std::uint32_t nodes : {2U, 4U, 16U, 32U}) {
    CappedJob job(nodes, nodes);
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
  CappedJob job(2, 3);
  job.demand = [](std::uint32_t i, std::int64_t now) {
    return i == 0 || now >= 10 * kSecond ? kMuch : 0;
  };
  job.Run(1'000 + 500);
  const double before = job.used_of(1);
  job.Run(1'000);
  EXPECT_GT(job.used_of(1) - before, 0.95 * 10 * kJobBytes / 2);
}

TEST(CapShareJobTest, InALargeJobANodeGetsManyShares) {
  CappedJob job(1'000, 4);
  job.demand = [](std::uint32_t i, std::int64_t) { return i == 0 ? kMuch : 0; };
  job.Run(500);
  const double before = job.used_of(0);
  job.Run(500);
  EXPECT_GT(job.used_of(0) - before, 25 * 5 * kJobBytes / 1'000);
  EXPECT_LE(job.highest_rate(), kJobBytes * kRounding);
}

// Returns a job whose nodes want more than they get, 5 s after its start.
std::unique_ptr<CappedJob> BusyJob(std::uint32_t nodes, std::uint64_t seed) {
  auto job = std::make_unique<CappedJob>(nodes, seed);
  job->demand = [](std::uint32_t, std::int64_t) { return kMuch; };
  job->Run(500);
  return job;
}

// Returns what all nodes use in 10 s, as a part of the cap.
double PartUsed(CappedJob& job) {
  const double before = job.used();
  job.Run(1'000);
  return (job.used() - before) / (10 * kJobBytes);
}

// The heir gets all but the fixed part of the share, once the leases of the lost node have ended.
TEST(CapShareJobTest, TheShareOfALostNodePassesOn) {
  const auto job = BusyJob(4, 5);
  job->Lose(2);
  EXPECT_THAT(PartUsed(*job), DoubleNear(0.77, 0.03)) << "until its leases have ended";
  EXPECT_THAT(PartUsed(*job), DoubleNear(15.0 / 16, 0.01));
  EXPECT_THAT(job->rate_of(3), DoubleNear(kJobBytes / 4 * 1.75, 1));
  job->Return(2);
  job->Run(1'000);
  EXPECT_THAT(job->rate_of(2), DoubleNear(kJobBytes / 4, 1));
  EXPECT_THAT(PartUsed(*job), DoubleNear(1, 0.01));
  EXPECT_LE(job->highest_rate(), kJobBytes * kRounding);
  EXPECT_LE(job->most_in_a_second(), 1.05 * kJobBytes);
}

// Nodes that still take the returned node for lost do not keep it from its share.
TEST(CapShareJobTest, ANodeThatReturnsGetsItsShareBackFromANodeThatDoesNotBelieveIt) {
  const auto job = BusyJob(4, 6);
  job->Lose(0);
  job->Run(1'500);
  EXPECT_GT(job->rate_of(1), kJobBytes / 4);
  job->Start(0, /*has_returned=*/true);
  job->Run(1'100);
  EXPECT_THAT(job->rate_of(0), DoubleNear(kJobBytes / 4, 1));
  EXPECT_THAT(job->rate_of(1), DoubleNear(kJobBytes / 4, 1));
  EXPECT_LE(job->highest_rate(), kJobBytes * kRounding);
}

TEST(CapShareJobTest, AStoppedNodeGoesOnWithAFixedPartUntilItsHeirGivesTheShareBack) {
  const auto job = BusyJob(4, 7);
  job->SetStopped(1, true);
  job->believes_alive = [](std::uint32_t, std::uint32_t to) { return to != 1; };
  job->Run(2'000);
  EXPECT_THAT(job->rate_of(2), DoubleNear(kJobBytes / 4 * 1.75, 1));
  job->SetStopped(1, false);
  job->Run(100);
  EXPECT_THAT(job->rate_of(1), DoubleNear(kJobBytes / 16, 1));
  job->Run(1'000);
  EXPECT_THAT(job->rate_of(1), DoubleNear(kJobBytes / 4, 1));
  EXPECT_LE(job->most_in_a_second(), 1.05 * kJobBytes);
}

// The network is cut: the node that reaches nobody does without what the others take.
TEST(CapShareJobTest, ANodeThatIsCutOffUsesAFixedPartOfItsShare) {
  const auto job = BusyJob(4, 8);
  job->reaches = [](std::uint32_t from, std::uint32_t to) { return from != 3 && to != 3; };
  job->believes_alive = job->reaches;
  job->Run(1'500);
  EXPECT_THAT(job->rate_of(3), DoubleNear(kJobBytes / 16, 1));
  EXPECT_THAT(job->rate_of(0), DoubleNear(kJobBytes / 4 * 1.75, 1)) << "the heir of the last node";
  EXPECT_THAT(PartUsed(*job), DoubleNear(1, 0.01));
  EXPECT_LE(job->most_in_a_second(), 1.05 * kJobBytes);
}

// One witness keeps the share of a node for it: here the link to its heir is cut, or two links are.
TEST(CapShareJobTest, ANodeThatReachesAWitnessLosesNothing) {
  const auto job = BusyJob(4, 9);
  job->reaches = [](std::uint32_t from, std::uint32_t to) {
    return std::max(from, to) != 3 || std::min(from, to) == 1;
  };
  job->believes_alive = job->reaches;
  job->Run(3'000);
  EXPECT_THAT(job->rate_of(3), DoubleNear(kJobBytes / 4, 1));
  EXPECT_EQ(job->takes(), 0U);
}

// Documented: the share of a lost node stays unused while one of its witnesses is lost, too.
TEST(CapShareJobTest, OfTwoLostNodesOfFourNoSharePassesOnAndTheOthersKeepTheirs) {
  const auto job = BusyJob(4, 10);
  job->Lose(1);
  job->Lose(2);
  job->Run(1'500);
  EXPECT_THAT(PartUsed(*job), DoubleNear(0.5, 0.01));
  EXPECT_EQ(job->takes(), 0U);
}

TEST(CapShareJobTest, OfTwoNodesEachKeepsItsShare) {
  const auto job = BusyJob(2, 11);
  job->Lose(1);
  job->Run(1'500);
  EXPECT_THAT(PartUsed(*job), DoubleNear(0.5, 0.01));
}

TEST(CapShareJobTest, ANodeAloneGetsTheRequestsOfAllOthersButOneOfEach) {
  CappedJob job(4, 12, /*requests=*/8);
  job.demand_requests = [](std::uint32_t i) { return i == 2 ? kNodeRequests : 0; };
  job.Run(1'000);
  EXPECT_EQ(job.requests_of(2), 5U);
  EXPECT_EQ(job.most_requests(), 5U);
}

// From now on node 0 wants as many requests as it can use, and so do all others while `all_want`,
// which is borrowed.
void DemandRequests(CappedJob& job, const bool& all_want) {
  job.demand_requests = [&all_want](std::uint32_t i) {
    return i == 0 || all_want ? kNodeRequests : 0;
  };
}

TEST(CapShareJobTest, NodesThatNeedTheirRequestsHaveThemAgain) {
  CappedJob job(4, 13, /*requests=*/16);
  bool all_want = false;
  DemandRequests(job, all_want);
  job.Run(1'000);
  EXPECT_EQ(job.requests_of(0), kNodeRequests);
  all_want = true;
  job.Run(1'000);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(job.requests_of(i), 4U) << i;
  EXPECT_EQ(job.most_requests(), 16U);
}

TEST(CapShareJobTest, TheRequestsOfALostNodePassOn) {
  CappedJob job(4, 14, /*requests=*/16);
  job.demand_requests = [](std::uint32_t) { return kNodeRequests; };
  job.Run(500);
  job.Lose(2);
  job.Run(2'000);
  EXPECT_EQ(job.requests_of(3), 7U) << "its own and three of four of the lost node";
  job.Return(2);
  job.Run(1'500);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(job.requests_of(i), 4U) << i;
  EXPECT_EQ(job.most_requests(), 16U);
}

// Each request takes 50 ms at most, so each wait is short; the sum of them makes a node short.
TEST(CapShareJobTest, NodesWhoseRequestsAreShortHaveThemAgain) {
  CappedJob job(2, 15, /*requests=*/8);
  job.request_max_steps = 5;
  bool all_want = false;
  DemandRequests(job, all_want);
  job.Run(1'000);
  EXPECT_EQ(job.requests_of(0), 7U);
  all_want = true;
  job.Run(1'000);
  EXPECT_EQ(job.requests_of(0), 4U);
  EXPECT_EQ(job.requests_of(1), 4U);
}

// The lost node is back, and requests on its part take up to 20 s.
TEST(CapShareJobTest, AnHeirGivesThePartBackAsItsRequestsEnd) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    CappedJob job(4, seed, /*requests=*/16);
    job.request_max_steps = 2'000;
    job.demand_requests = [](std::uint32_t) { return kNodeRequests; };
    job.Run(500);
    job.Lose(2);
    job.Run(4'000);
    EXPECT_EQ(job.requests_of(3), 7U);
    job.Return(2);
    job.Run(4'000);
    for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(job.requests_of(i), 4U) << i;
    EXPECT_LE(job.most_requests(), 16U);
  }
}

// One node borrows all, and then all want theirs, while one answer of ten is lost, or ticks and
// messages are late.
TEST(CapShareJobTest, RequestsThatTakeLongAreNoneTooManyWhereAnswersAreLostOrLate) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    CappedJob job(3, seed, /*requests=*/12);
    job.request_max_steps = 2'000;
    if (seed % 2 == 0) {
      job.answer_loss = 0.1;
    } else {
      job.delay_max_steps = 50;
      job.late_max_steps = 90;
    }
    bool all_want = false;
    std::uint32_t one = 0;
    job.demand_requests = [&](std::uint32_t i) { return all_want || i == one ? kNodeRequests : 0; };
    for (int i = 0; i < 5; ++i) {
      one = static_cast<std::uint32_t>(job.Draw(0, 2));
      all_want = false;
      job.Run(1'500);
      EXPECT_GE(job.requests_of(one), 5U);
      all_want = true;
      job.Run(3'000);
    }
    EXPECT_EQ(job.most_requests(), 12U);
  }
}

// The GFS takes up to 20 s for a request, much longer than a loan that is not renewed.
TEST(CapShareJobTest, RequestsThatTakeLongAreNeverMoreThanTheCap) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    CappedJob job(6, seed, /*requests=*/20);
    job.request_max_steps = 2'000;
    std::vector<std::uint64_t> demands(6, 0);
    job.demand_requests = [&](std::uint32_t i) { return demands[i]; };
    for (int i = 0; i < 100; ++i) {
      demands[static_cast<std::size_t>(job.Draw(0, 5))] =
          static_cast<std::uint64_t>(job.Draw(0, 1) * job.Draw(0, 8));
      const auto node = static_cast<std::uint32_t>(job.Draw(0, 5));
      if (i % 20 == 19) {
        job.Kill(node);
        job.Start(node, /*has_returned=*/true);
      }
      job.Run(job.Draw(1, 200));
    }
    EXPECT_LE(job.most_requests(), 20U);
    EXPECT_GT(job.request_loans(), 20U);
  }
}

// The faults and delays that a job suffers at random.
struct Attack {
  double loss = 0.2;
  std::int64_t delay_max_steps = 400;  // longer than a loan
  std::uint32_t nodes = 12;
  std::int64_t pause_max_steps = 60;  // between two faults
};
struct Exchanged {
  std::uint64_t loans = 0;
  std::uint64_t request_loans = 0;
  std::uint64_t takes = 0;
};

// Nodes die, return, stop, go on, are cut off by directed links, and believe of each other what
// chance says; demands change.
Exchanged AttackAtRandom(const Attack& attack, std::uint64_t seed) {
  const std::uint64_t requests = attack.nodes * 3 + 1;
  CappedJob job(attack.nodes, seed, requests);
  job.loss = attack.loss;
  job.delay_max_steps = attack.delay_max_steps;
  std::vector<double> demands(attack.nodes, 0);
  std::vector<std::vector<bool>> alive(attack.nodes, std::vector<bool>(attack.nodes, true));
  std::vector<std::vector<bool>> linked = alive;
  std::vector<bool> stopped(attack.nodes, false);
  job.demand = [&](std::uint32_t i, std::int64_t) { return demands[i]; };
  job.demand_requests = [&](std::uint32_t i) { return demands[i] > 0 ? kNodeRequests : 0; };
  job.believes_alive = [&](std::uint32_t from, std::uint32_t to) { return alive[from][to]; };
  job.reaches = [&](std::uint32_t from, std::uint32_t to) { return linked[from][to]; };
  std::array<int, 4> done = {};  // kills, stops, beliefs, links
  const auto any = [&] { return static_cast<std::uint32_t>(job.Draw(0, attack.nodes - 1)); };
  // Most nodes notice it.
  const auto falls_silent = [&](std::uint32_t node) {
    for (std::vector<bool>& of_one : alive) of_one[node] = job.Draw(0, 3) == 0;
  };
  for (int i = 0; i < 150; ++i) {
    const std::uint32_t node = any();
    switch (job.Draw(0, 5)) {
      case 0:
        if (job.IsDead(node)) {
          job.Start(node, /*has_returned=*/true);
        } else if (job.Draw(0, 2) == 0) {
          job.Kill(node);
          falls_silent(node);
          ++done[0];
        }
        break;
      case 1:
        stopped[node] = !stopped[node];
        job.SetStopped(node, stopped[node]);
        if (stopped[node]) falls_silent(node);
        ++done[1];
        break;
      case 2:  // one node changes its mind about several
        for (int k = 0; k < 4; ++k) alive[node][any()] = job.Draw(0, 1) == 0;
        ++done[2];
        break;
      case 3: {
        const bool repairs = job.Draw(0, 1) == 0;
        for (std::uint32_t k = 0; k < attack.nodes; ++k) {
          linked[node][k] = repairs || job.Draw(0, 3) > 0;
          linked[k][node] = repairs || job.Draw(0, 3) > 0;
        }
        ++done[3];
        break;
      }
      default:
        demands[node] = kJobBytes / 10'000 * static_cast<double>(job.Draw(0, 2) * job.Draw(0, 100));
    }
    job.Run(job.Draw(1, attack.pause_max_steps));
  }
  EXPECT_THAT(done, Each(Gt(0)));
  EXPECT_LE(job.highest_rate(), kJobBytes * kRounding);
  EXPECT_LE(job.most_in_a_second(), 1.05 * kJobBytes);
  EXPECT_LE(job.most_requests(), requests);
  return {.loans = job.loans(), .request_loans = job.request_loans(), .takes = job.takes()};
}

TEST(CapShareJobTest, TheCapHoldsWhateverIsLostDelayedStoppedKilledCutOrBelieved) {
  // Many messages are lost, or all come late; or few, so that heirs take shares and lend of them.
  const Attack on_messages;
  const Attack on_nodes{
      .loss = 0.01, .delay_max_steps = 5, .nodes = 5, .pause_max_steps = 300};
  Exchanged most_lost;
  Exchanged few_lost;
  const auto add = [](Exchanged& sum, const Exchanged& more) {
    sum.loans += more.loans;
    sum.request_loans += more.request_loans;
    sum.takes += more.takes;
  };
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    add(most_lost, AttackAtRandom(on_messages, seed));
    add(few_lost, AttackAtRandom(on_nodes, seed));
  }
  EXPECT_GT(most_lost.loans, 20U);
  EXPECT_GT(few_lost.loans, 100U);
  EXPECT_GT(most_lost.request_loans, 20U);
  EXPECT_GT(few_lost.request_loans, 100U);
  EXPECT_GT(few_lost.takes, 5U);
}

}  // namespace forebay::stage::cap_share_job_test
