// When a node may end that has finished: after all others that answer.
#include "server/daemon/job_end.h"

#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "server/io/testing/manual_clock.h"

namespace forebay::daemon {
namespace {

const Error kSilent(ErrorCode::kUnavailable, "no answer");

class JobEndTest : public ::testing::Test {
 protected:
  // A second passes. The nodes answer as `answers_` says; those that are not there do later.
  void Tick() {
    clock_.AdvanceNs(1'000'000'000);
    end_.Tick();
    for (auto& [node, heard] : std::exchange(asked_, {})) {
      ++pings_[node];
      heard(answers_.contains(node) ? Result<peer::NodeReport>({.has_finished = answers_[node]})
                                    : Result<peer::NodeReport>(kSilent));
    }
  }

  io::ManualClock clock_;
  std::map<NodeRank, JobEndParts::Heard> asked_;
  std::map<NodeRank, int> pings_;
  std::map<NodeRank, bool> answers_ = {{NodeRank(1), false}, {NodeRank(2), false}};
  int wakes_ = 0;
  JobEnd end_{{.clock = clock_,
               .others = {NodeRank(1), NodeRank(2)},
               .ping = [this](NodeRank to,
                              JobEndParts::Heard heard) { asked_[to] = std::move(heard); },
               .name = [](NodeRank node) { return std::to_string(node.value()); },
               .wake = [this] { ++wakes_; }}};
};

TEST_F(JobEndTest, ANodeThatHasNotFinishedAsksNobody) {
  Tick();
  EXPECT_TRUE(pings_.empty());
  EXPECT_FALSE(end_.HaveAllFinished());
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
}

TEST_F(JobEndTest, ANodeThatDoesNotAnswerIsNotWaitedForUntilItDoes) {
  answers_ = {{NodeRank(1), false}};
  end_.Finish();
  Tick();
  EXPECT_FALSE(end_.HaveAllFinished()) << "node 1 still reads";
  answers_ = {{NodeRank(2), false}};
  Tick();
  EXPECT_FALSE(end_.HaveAllFinished()) << "node 2 answers again";
  answers_ = {};
  Tick();
  EXPECT_TRUE(end_.HaveAllFinished());
}

TEST_F(JobEndTest, TheNextRoundBeginsWhenTheLastOneHasEnded) {
  end_.Finish();
  clock_.AdvanceNs(1'000'000'000);
  end_.Tick();
  const auto first = std::exchange(asked_, {});
  EXPECT_EQ(first.size(), 2U);
  Tick();
  EXPECT_TRUE(pings_.empty());
  for (const auto& [node, heard] : first) heard(peer::NodeReport{.has_finished = true});
  EXPECT_TRUE(end_.HaveAllFinished());
}

TEST(JobEndOfOneNodeTest, IsDoneWithFinish) {
  io::ManualClock clock;
  JobEnd end({.clock = clock, .others = {}, .ping = nullptr, .name = nullptr, .wake = nullptr});
  EXPECT_FALSE(end.HaveAllFinished());
  end.Finish();
  EXPECT_TRUE(end.has_finished());
  EXPECT_TRUE(end.HaveAllFinished());
}

}  // namespace
}  // namespace forebay::daemon
