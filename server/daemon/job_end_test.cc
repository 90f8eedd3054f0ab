// When a node may end that has finished: after all others that answer, and not before the readers
// of those that are lost have had time to come.
#include "server/daemon/job_end.h"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/io/testing/manual_clock.h"

namespace forebay::daemon {
namespace {

const Error kSilent(ErrorCode::kUnavailable, "no answer");
const Error kCancelled(ErrorCode::kCancelled, "the daemon is shutting down");

class JobEndTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSecondNs = 1'000'000'000;
  // A second passes. The nodes answer as `answers_` says; those that are not there are silent.
  void Tick(bool serves_client_of_lost = false) {
    clock_.AdvanceNs(kSecondNs);
    told_.clear();
    end_.Tick(serves_client_of_lost);
    for (auto& [node, heard] : std::exchange(asked_, {})) {
      ++pings_[node];
      heard(answers_.contains(node) ? Result<peer::NodeReport>({.has_finished = answers_[node]})
                                    : Result<peer::NodeReport>(kSilent));
    }
  }

  io::ManualClock clock_;
  std::map<NodeRank, JobEndParts::Heard> asked_;
  std::map<NodeRank, int> pings_;
  std::map<NodeRank, bool> told_;  // in the last round: whether this node has finished
  std::map<NodeRank, bool> answers_ = {{NodeRank(1), false}, {NodeRank(2), false}};
  std::set<NodeRank> dead_;
  int wakes_ = 0;
  JobEnd end_{{.clock = clock_,
               .others = {NodeRank(1), NodeRank(2)},
               .ping =
                   [this](NodeRank to, bool has_finished, JobEndParts::Heard heard) {
                     asked_[to] = std::move(heard);
                     told_[to] = has_finished;
                   },
               .is_dead = [this](NodeRank node) { return dead_.contains(node); },
               .name = [](NodeRank node) { return std::to_string(node.value()); },
               .wake = [this] { ++wakes_; },
               .stay_ms = 30'000}};
};

TEST_F(JobEndTest, ANodeThatHasNotFinishedAsksNobody) {
  Tick();
  EXPECT_TRUE(pings_.empty());
  end_.Hear(NodeRank(1), true);
  end_.Hear(NodeRank(2), true);
  EXPECT_FALSE(end_.HaveAllFinished());
  EXPECT_EQ(wakes_, 0);
}

TEST_F(JobEndTest, ANodeThatHasFinishedWaitsForTheOthers) {
  end_.Finish();
  Tick();
  EXPECT_FALSE(end_.HaveAllFinished());
  answers_[NodeRank(1)] = true;
  Tick();
  EXPECT_FALSE(end_.HaveAllFinished());
  answers_[NodeRank(2)] = true;
  Tick();
  EXPECT_TRUE(end_.HaveAllFinished());
  EXPECT_EQ(wakes_, 1);
  EXPECT_EQ(pings_[NodeRank(1)], 2) << "not asked again once it had finished";
  EXPECT_TRUE(told_.at(NodeRank(2)));
}

TEST_F(JobEndTest, ANodeThatSaysSoUnaskedHasFinishedOnceItKnowsOfThisOne) {
  end_.Finish();
  Tick();
  end_.Hear(NodeRank(1), true);
  EXPECT_FALSE(end_.HaveAllFinished());
  end_.Hear(NodeRank(2), true);
  EXPECT_TRUE(end_.HaveAllFinished());
  EXPECT_EQ(wakes_, 1);
}

// Otherwise they would take this one for lost.
TEST_F(JobEndTest, ANodeDoesNotEndBeforeItHasToldTheOthers) {
  end_.Hear(NodeRank(1), true);
  end_.Hear(NodeRank(2), true);
  answers_ = {{NodeRank(1), true}, {NodeRank(2), true}};
  end_.Finish();
  EXPECT_FALSE(end_.HaveAllFinished());
  Tick();
  EXPECT_EQ(told_, (std::map<NodeRank, bool>{{NodeRank(1), true}, {NodeRank(2), true}}));
  EXPECT_TRUE(end_.HaveAllFinished());
}

TEST_F(JobEndTest, ANodeThatHasSaidSoAndIsSilentHasEnded) {
  end_.Finish();
  end_.Hear(NodeRank(1), true);
  answers_ = {{NodeRank(2), true}};
  Tick();
  EXPECT_TRUE(end_.HaveAllFinished());
}

TEST_F(JobEndTest, ANodeStaysForTheReadersOfOneThatIsLostAndHasNotFinished) {
  end_.Finish();
  answers_ = {{NodeRank(1), true}};
  Tick();
  for (int second = 1; second < 30; ++second) {
    Tick();
    ASSERT_FALSE(end_.HaveAllFinished()) << second;
  }
  EXPECT_EQ(wakes_, 0);
  Tick();
  EXPECT_TRUE(end_.HaveAllFinished());
  EXPECT_GT(wakes_, 0);
}

TEST_F(JobEndTest, ANodeThatAnswersAgainIsWaitedFor) {
  end_.Finish();
  answers_ = {{NodeRank(1), true}};
  for (int second = 0; second < 20; ++second) Tick();
  answers_[NodeRank(2)] = false;
  Tick();
  answers_.erase(NodeRank(2));
  for (int second = 0; second < 30; ++second) Tick();
  EXPECT_FALSE(end_.HaveAllFinished()) << "the time counts from the last loss";
  Tick();
  EXPECT_TRUE(end_.HaveAllFinished());
}

TEST_F(JobEndTest, TheReadersOfANodeThatWasLostLongAgoHaveCome) {
  dead_ = {NodeRank(2)};
  for (int second = 0; second <= 30; ++second) Tick();
  answers_ = {{NodeRank(1), true}};
  end_.Finish();
  Tick();
  EXPECT_TRUE(end_.HaveAllFinished());
}

TEST_F(JobEndTest, ANodeThatWasTakenForDeadIsLostFromItsLastLossOn) {
  dead_ = {NodeRank(2)};
  for (int second = 0; second <= 30; ++second) Tick();
  dead_.clear();
  Tick();
  answers_ = {{NodeRank(1), true}};
  end_.Finish();
  Tick();
  EXPECT_FALSE(end_.HaveAllFinished());
}

TEST_F(JobEndTest, ANodeThatServesAClientOfALostOneTellsTheOthers) {
  answers_ = {{NodeRank(1), true}, {NodeRank(2), false}};
  end_.Finish();
  Tick();
  Tick(/*serves_client_of_lost=*/true);
  EXPECT_EQ(told_, (std::map<NodeRank, bool>{{NodeRank(1), false}, {NodeRank(2), false}}));
  answers_[NodeRank(2)] = true;
  Tick(/*serves_client_of_lost=*/true);
  // They must hear that it has finished after all before it ends.
  clock_.AdvanceNs(1);
  end_.Tick(/*serves_client_of_lost=*/false);
  EXPECT_FALSE(end_.HaveAllFinished());
  Tick();
  EXPECT_EQ(told_, (std::map<NodeRank, bool>{{NodeRank(1), true}, {NodeRank(2), true}}));
  EXPECT_TRUE(end_.HaveAllFinished());
}

TEST_F(JobEndTest, ANodeThatHasFinishedNoMoreIsWaitedFor) {
  answers_ = {{NodeRank(1), true}, {NodeRank(2), false}};
  end_.Finish();
  Tick();
  answers_ = {{NodeRank(1), false}, {NodeRank(2), true}};
  end_.Hear(NodeRank(1), false);
  Tick();
  EXPECT_FALSE(end_.HaveAllFinished());
  end_.Hear(NodeRank(1), true);
  EXPECT_TRUE(end_.HaveAllFinished());
}

TEST_F(JobEndTest, AnAnswerFromBeforeItSaidSoDoesNotCount) {
  end_.Finish();
  clock_.AdvanceNs(kSecondNs);
  end_.Tick(false);
  end_.Hear(NodeRank(1), true);
  end_.Hear(NodeRank(2), true);
  for (const auto& [node, heard] : std::exchange(asked_, {})) {
    heard(peer::NodeReport{.has_finished = false});
  }
  EXPECT_TRUE(end_.HaveAllFinished());
}

TEST_F(JobEndTest, TheNextRoundBeginsWhenTheLastOneHasEnded) {
  end_.Finish();
  clock_.AdvanceNs(kSecondNs);
  end_.Tick(false);
  const auto first = std::exchange(asked_, {});
  EXPECT_EQ(first.size(), 2U);
  Tick();
  EXPECT_TRUE(pings_.empty());
  for (const auto& [node, heard] : first) heard(peer::NodeReport{.has_finished = true});
  EXPECT_TRUE(end_.HaveAllFinished());
}

TEST_F(JobEndTest, ANodeThatComesInThePlaceOfAnotherIsWaitedFor) {
  end_.Finish();
  answers_ = {{NodeRank(1), true}};
  for (int second = 0; second <= 30; ++second) Tick();
  EXPECT_TRUE(end_.HaveAllFinished()) << "node 2 was lost long ago";
  end_.Expect(NodeRank(2));
  EXPECT_FALSE(end_.HaveAllFinished());
  answers_[NodeRank(2)] = false;
  for (int second = 0; second <= 30; ++second) Tick();
  EXPECT_FALSE(end_.HaveAllFinished());
  answers_[NodeRank(2)] = true;
  Tick();
  EXPECT_TRUE(end_.HaveAllFinished());
  // Also if the node before it had finished and has ended.
  end_.Expect(NodeRank(1));
  EXPECT_FALSE(end_.HaveAllFinished());
  Tick();
  EXPECT_TRUE(end_.HaveAllFinished());
}

TEST_F(JobEndTest, ANodeThatComesInAPlaceThatWasFreeIsWaitedFor) {
  answers_ = {{NodeRank(1), true}, {NodeRank(2), true}, {NodeRank(3), false}};
  end_.Expect(NodeRank(3));
  end_.Finish();
  Tick();
  EXPECT_FALSE(end_.HaveAllFinished());
  end_.Hear(NodeRank(3), true);
  EXPECT_TRUE(end_.HaveAllFinished());
  EXPECT_EQ(pings_[NodeRank(3)], 1);
}

TEST_F(JobEndTest, AnAnswerOfTheNodeThatWasInThePlaceBeforeDoesNotCount) {
  for (const Result<peer::NodeReport>& late :
       {Result<peer::NodeReport>({.has_finished = true}), Result<peer::NodeReport>(kSilent)}) {
    end_.Finish();
    clock_.AdvanceNs(kSecondNs);
    end_.Tick(false);
    ASSERT_TRUE(asked_.contains(NodeRank(2)));
    end_.Expect(NodeRank(2));
    ::testing::internal::CaptureStdout();
    for (const auto& [node, heard] : std::exchange(asked_, {})) heard(late);
    EXPECT_EQ(::testing::internal::GetCapturedStdout().find("2 does not answer"),
              std::string::npos);
    clock_.AdvanceNs(100 * kSecondNs);
    EXPECT_FALSE(end_.HaveAllFinished()) << "the node that has come has not said anything yet";
    Tick();
    EXPECT_EQ(told_.count(NodeRank(2)), 1U);
  }
}

// Where many nodes are pinged at a time, a ping may come too late to one that lives. In these tests
// node 1 still reads. All other nodes have finished, and say so at once, unless they are silent.
class JobEndOfManyTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  static constexpr std::int64_t kSecondNs = 1'000'000'000;
  static constexpr NodeRank kReading{1};

  void Start(std::int64_t stay_ms) {
    std::vector<NodeRank> others;
    for (std::uint32_t rank = 1; rank < GetParam(); ++rank) others.emplace_back(rank);
    end_ = std::make_unique<JobEnd>(
        JobEndParts{.clock = clock_,
                    .others = std::move(others),
                    .ping =
                        [this](NodeRank to, bool, const JobEndParts::Heard& heard) {
                          pings_of_reading_ += to == kReading ? 1 : 0;
                          if (to == kReading && is_silent_) return heard(kSilent);
                          heard(peer::NodeReport{.has_finished = to != kReading});
                        },
                    .is_dead = [this](NodeRank node) { return node == kReading && is_dead_; },
                    .name = [](NodeRank node) { return std::to_string(node.value()); },
                    .wake = [] {},
                    .stay_ms = stay_ms});
    end_->Finish();
  }
  void Tick() {
    clock_.AdvanceNs(kSecondNs);
    end_->Tick(/*serves_client_of_lost=*/false);
  }
  void TickUntilPinged(int times) {
    while (pings_of_reading_ < times) Tick();
  }

  io::ManualClock clock_;
  int pings_of_reading_ = 0;
  bool is_silent_ = true, is_dead_ = false;
  std::unique_ptr<JobEnd> end_;
};

TEST_P(JobEndOfManyTest, ANodeThatHasMissedOnePingAndLivesIsWaitedFor) {
  for (const std::int64_t stay_ms : {30'000, 0}) {
    is_silent_ = true;
    pings_of_reading_ = 0;
    Start(stay_ms);
    TickUntilPinged(1);
    is_silent_ = false;
    for (int second = 0; second < 100; ++second) {
      ASSERT_FALSE(end_->HaveAllFinished()) << stay_ms << ", after " << second << " s";
      Tick();
    }
    EXPECT_GE(pings_of_reading_, 2);
  }
}

TEST_P(JobEndOfManyTest, ANodeThatIsDeadIsGivenUpWhenItsReadersHaveCome) {
  Start(/*stay_ms=*/30'000);
  TickUntilPinged(1);
  is_dead_ = true;
  ::testing::internal::CaptureStdout();
  Tick();
  EXPECT_NE(::testing::internal::GetCapturedStdout().find("has not said that it has finished"),
            std::string::npos);
  for (int second = 1; second < 29; ++second) {
    ASSERT_FALSE(end_->HaveAllFinished()) << second;
    Tick();
  }
  Tick();
  EXPECT_TRUE(end_->HaveAllFinished());
}

TEST_P(JobEndOfManyTest, ADeadNodeIsNotWaitedForWhereNoReaderCanCome) {
  Start(/*stay_ms=*/0);
  is_dead_ = true;
  Tick();
  EXPECT_TRUE(end_->HaveAllFinished());
}

// Two nodes between which the link is broken would otherwise wait for each other for ever.
TEST_P(JobEndOfManyTest, ANodeThatMissesAllPingsIsGivenUpAlthoughItLives) {
  Start(/*stay_ms=*/30'000);
  TickUntilPinged(2);
  for (int second = 0; second < 31; ++second) Tick();
  EXPECT_TRUE(end_->HaveAllFinished());
}

// This node may take another one for dead that answers it.
TEST_P(JobEndOfManyTest, ADeadNodeThatAnswersIsWaitedFor) {
  is_silent_ = false;
  is_dead_ = true;
  Start(/*stay_ms=*/30'000);
  TickUntilPinged(1);
  for (int second = 0; second < 100; ++second) {
    ASSERT_FALSE(end_->HaveAllFinished()) << second;
    Tick();
  }
}

TEST_P(JobEndOfManyTest, ANodeThatHasComeAndCountsAsDeadYetIsWaitedFor) {
  Start(/*stay_ms=*/0);
  is_dead_ = true;
  Tick();
  EXPECT_TRUE(end_->HaveAllFinished());
  is_silent_ = false;
  end_->Expect(kReading);
  for (int second = 0; second < 100; ++second) {
    ASSERT_FALSE(end_->HaveAllFinished()) << second;
    Tick();
  }
}

class JobEndRoundTest : public ::testing::Test {
 protected:
  void Tick() {
    clock_.AdvanceNs(1'000'000'000);
    end_.Tick(/*serves_client_of_lost=*/false);
  }

  io::ManualClock clock_;
  std::vector<std::uint32_t> asked_;
  std::map<std::uint32_t, JobEndParts::Heard> open_;
  JobEnd end_{{.clock = clock_,
               .others = {NodeRank(0), NodeRank(1), NodeRank(3), NodeRank(4), NodeRank(5)},
               .ping =
                   [this](NodeRank to, bool, JobEndParts::Heard heard) {
                     asked_.push_back(to.value());
                     open_[to.value()] = std::move(heard);
                   },
               .is_dead = [](NodeRank node) { return node == NodeRank(3); },
               .name = [](NodeRank node) { return std::to_string(node.value()); },
               .wake = [] {},
               .stay_ms = 30'000,
               .self = NodeRank(2),
               .at_a_time = 2}};
};

TEST_F(JobEndRoundTest, NodesAreAskedSomeAtATimeFromThisOneOnAndDeadOnesLast) {
  end_.Finish();
  Tick();
  EXPECT_EQ(asked_, (std::vector<std::uint32_t>{4, 5}));
  const JobEndParts::Heard heard = std::exchange(open_[5], nullptr);
  open_.erase(5);
  heard(kSilent);
  EXPECT_EQ(asked_, (std::vector<std::uint32_t>{4, 5, 0}));
  Tick();
  EXPECT_EQ(asked_.size(), 3U) << "the round is under way";
  open_[4](peer::NodeReport());
  open_[0](peer::NodeReport());
  EXPECT_EQ(asked_, (std::vector<std::uint32_t>{4, 5, 0, 1, 3}));
}

// A node may say something between the begin of the round and its turn. Then that counts.
TEST_F(JobEndRoundTest, ANodeThatSaysSoBeforeItsTurnIsAskedAsItIsThen) {
  end_.Finish();
  Tick();
  end_.Hear(NodeRank(0), false);
  open_[4](peer::NodeReport({.has_finished = true}));
  ASSERT_EQ(asked_.back(), 0U);
  open_[0](peer::NodeReport({.has_finished = true}));
  for (const std::uint32_t node : {5, 1, 3}) {
    ASSERT_TRUE(open_.contains(node)) << node;
    open_[node](peer::NodeReport({.has_finished = true}));
  }
  EXPECT_TRUE(end_.HaveAllFinished());
}

TEST_F(JobEndRoundTest, ADaemonThatStopsAsksNobodyAnyMore) {
  end_.Finish();
  Tick();
  end_.StopAsking();
  open_[4](kCancelled);
  Tick();
  EXPECT_EQ(asked_, (std::vector<std::uint32_t>{4, 5}));
}

INSTANTIATE_TEST_SUITE_P(Nodes, JobEndOfManyTest, ::testing::Values(2, 4, 1'000, 16'384));

TEST(JobEndOfOneNodeTest, IsDoneWithFinish) {
  io::ManualClock clock;
  JobEnd end({.clock = clock,
              .others = {},
              .ping = nullptr,
              .is_dead = nullptr,
              .name = nullptr,
              .wake = nullptr});
  EXPECT_FALSE(end.HaveAllFinished());
  end.Finish();
  EXPECT_TRUE(end.has_finished());
  EXPECT_TRUE(end.HaveAllFinished());
}

}  // namespace
}  // namespace forebay::daemon
