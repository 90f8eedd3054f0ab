// A node that leaves asks the others until they have taken over, and the others believe it as long
// as it says so.
#include "server/daemon/departure.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/manual_clock.h"

namespace forebay::daemon::departure_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr std::int64_t kSecondNs = 1'000'000'000;

std::vector<plan::Node> Nodes(std::uint32_t count) {
  std::vector<plan::Node> nodes;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    nodes.push_back({.rank = NodeRank(rank), .weight = 1, .identity = rank});
  }
  return nodes;
}

class DepartureTest : public ::testing::Test {
 protected:
  void Start(std::uint32_t node_count) {
    nodes_.emplace(NodeRank(0), Nodes(node_count));
    departure_.emplace(DepartureParts{
        .nodes = *nodes_,
        .clock = clock_,
        .tell =
            [this](NodeRank to, std::int64_t time_ms, const DepartureParts::Told& told) {
              told_.push_back(to.value());
              time_ms_ = time_ms;
              if (answers_.count(to.value()) == 0) {
                open_.push_back(told);
              } else {
                told(AnswerOf(to.value()));
              }
            },
        .name = [](NodeRank node) { return "node " + std::to_string(node.value()); },
        .is_dead = [this](NodeRank node) { return dead_.count(node.value()) != 0; },
        .wake = [this] { ++wakes_; }});
    departure_->SetTakeOver([this](bool begins) {
      begun_ += begins ? 1 : 0;
      ++looks_;
      return has_taken_over_;
    });
  }
  Result<peer::LeaveAnswer> AnswerOf(std::uint32_t node) const {
    FOREBAY_ASSIGN(const bool has_taken_over, answers_.at(node));
    return peer::LeaveAnswer{.has_taken_over = has_taken_over,
                             .has_left_out = left_out_by_.count(node) != 0};
  }
  // Whether this node has taken over, when another one says that it leaves.
  bool Hear(NodeRank node, std::int64_t time_ms) {
    return departure_->Hear(node, time_ms).has_taken_over;
  }
  // Which nodes are told in a Tick after this time.
  std::vector<std::uint32_t> TickAfter(std::int64_t ns) {
    clock_.AdvanceNs(ns);
    told_.clear();
    departure_->Tick();
    return told_;
  }
  // Whether some group is read by the node, as this one sees it.
  bool IsUsed(NodeRank node) const {
    for (std::uint64_t key = 0; key < 1000; ++key) {
      if (nodes_->FirstToAsk(key * 0x9e3779b97f4a7c15U) == node) return true;
    }
    return false;
  }

  io::ManualClock clock_{5 * kSecondNs};
  std::optional<plan::Membership> nodes_;
  std::vector<std::uint32_t> told_;
  std::int64_t time_ms_ = 0;  // of the last call of `tell`
  std::map<std::uint32_t, Result<bool>> answers_;  // of other nodes; none: the call stays open
  std::set<std::uint32_t> left_out_by_;
  std::vector<DepartureParts::Told> open_;
  std::set<std::uint32_t> dead_;
  int wakes_ = 0, begun_ = 0, looks_ = 0;
  bool has_taken_over_ = false;
  std::optional<Departure> departure_;
};

TEST_F(DepartureTest, ANodeThatDoesNotLeaveTellsNobody) {
  Start(3);
  EXPECT_THAT(TickAfter(kSecondNs), IsEmpty());
  EXPECT_FALSE(departure_->IsOver());
  EXPECT_EQ(looks_, 0);
}

TEST_F(DepartureTest, TheNodesAreAskedUntilAllHaveTakenOver) {
  Start(4);
  for (const std::uint32_t node : {1U, 2U, 3U}) answers_.insert_or_assign(node, false);
  EXPECT_FALSE(departure_->IsLeaving(NodeRank(0)));
  departure_->Begin(300'000);
  EXPECT_TRUE(departure_->IsLeaving(NodeRank(0)));
  EXPECT_EQ(wakes_, 1);
  EXPECT_THAT(TickAfter(0), UnorderedElementsAre(1, 2, 3));
  EXPECT_EQ(time_ms_, 60'000);
  EXPECT_THAT(TickAfter(kSecondNs - 1), IsEmpty()) << "once a second";
  for (const std::uint32_t node : {1U, 3U}) answers_.insert_or_assign(node, true);
  EXPECT_THAT(TickAfter(1), UnorderedElementsAre(1, 2, 3));
  // It takes over from another one as well.
  answers_.insert_or_assign(3, false);
  answers_.insert_or_assign(2, true);
  EXPECT_THAT(TickAfter(kSecondNs), UnorderedElementsAre(1, 2, 3)) << "none is to forget it";
  TickAfter(kSecondNs);
  EXPECT_FALSE(departure_->IsOver()) << "node 3 has not";
  answers_.insert_or_assign(3, true);
  TickAfter(kSecondNs);
  EXPECT_FALSE(departure_->IsOver());
  EXPECT_THAT(TickAfter(0), IsEmpty());
  EXPECT_TRUE(departure_->IsOver());
}

TEST_F(DepartureTest, TheLogNamesNodesThatHaveLeftThisOneOut) {
  Start(4);
  for (const std::uint32_t node : {1U, 2U, 3U}) answers_.insert_or_assign(node, true);
  left_out_by_ = {2};
  ::testing::internal::CaptureStdout();
  departure_->Begin(300'000);
  TickAfter(0);
  TickAfter(0);
  EXPECT_TRUE(departure_->IsOver());
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("1 nodes, node 2 among them, have left this node out"),
                    HasSubstr("all others have taken over")));
}

// That node looks only when no data set is under way, which may take minutes.
TEST_F(DepartureTest, ANodeThatHasLeftThisOneOutIsNotWaitedFor) {
  Start(3);
  answers_.insert_or_assign(1, false);
  answers_.insert_or_assign(2, true);
  departure_->Begin(300'000);
  TickAfter(0);
  TickAfter(0);
  EXPECT_FALSE(departure_->IsOver()) << "node 1 takes over";
  left_out_by_ = {1};
  ::testing::internal::CaptureStdout();
  TickAfter(kSecondNs);
  TickAfter(0);
  EXPECT_TRUE(departure_->IsOver());
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("1 nodes, node 1 among them, have left this node out"),
                    Not(HasSubstr("have not taken over yet"))));
}

TEST_F(DepartureTest, ANodeThatIsLeftOutDuringTheHandOverIsNamedInTheLogOnce) {
  Start(3);
  Hear(NodeRank(1), 60'000);
  TickAfter(0);
  nodes_->Rest(NodeRank(1), plan::Membership::kForEver);
  for (const int warnings : {1, 0}) {
    ::testing::internal::CaptureStdout();
    EXPECT_TRUE(departure_->Hear(NodeRank(1), 60'000).has_left_out);
    const std::string log = ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(log.find("node 1 leaves the job; this node has left it out") != std::string::npos,
              warnings == 1);
  }
}

TEST_F(DepartureTest, ANodeThatIsLeftOutLearnsItAndIsNotTakenOverFrom) {
  Start(3);
  nodes_->Rest(NodeRank(1), plan::Membership::kForEver);
  ::testing::internal::CaptureStdout();
  EXPECT_TRUE(departure_->Hear(NodeRank(1), 60'000).has_left_out);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("node 1 leaves the job; this node has left it out"));
  EXPECT_FALSE(departure_->Hear(NodeRank(2), 60'000).has_left_out);
  // It would take nothing over anyway, and is waited for until the others know that.
  departure_->Begin(300'000);
  EXPECT_FALSE(departure_->Hear(NodeRank(1), 60'000).has_left_out);
}

TEST_F(DepartureTest, OneRoundIsUnderWayAtATime) {
  Start(3);
  answers_.insert_or_assign(1, false);
  departure_->Begin(300'000);
  EXPECT_THAT(TickAfter(0), UnorderedElementsAre(1, 2));
  EXPECT_THAT(TickAfter(9 * kSecondNs), IsEmpty()) << "node 2 has not answered";
  ASSERT_EQ(open_.size(), 1U);
  open_.front()(Error(ErrorCode::kDeadlineExceeded, "no answer"));
  EXPECT_THAT(TickAfter(0), UnorderedElementsAre(1, 2)) << "an error is no reason to give it up";
}

TEST_F(DepartureTest, InALargeJobSomeNodesAreToldAtATime) {
  Start(302);
  departure_->Begin(300'000);
  EXPECT_EQ(TickAfter(0).size(), 256U);
  const DepartureParts::Told first = open_.front();  // a copy, because open_ grows meanwhile
  first(Error(ErrorCode::kDeadlineExceeded, "no answer"));
  EXPECT_EQ(told_.size(), 257U);
  EXPECT_EQ(told_.back(), 257U);
  for (std::size_t i = 1; i < open_.size(); ++i) {
    const DepartureParts::Told told = open_[i];
    told(peer::LeaveAnswer{.has_taken_over = true});
  }
  EXPECT_EQ(told_.size(), 301U) << "each once in the round";
}

TEST_F(DepartureTest, ADaemonThatStopsTellsNobodyAnyMore) {
  Start(302);
  departure_->Begin(300'000);
  EXPECT_EQ(TickAfter(0).size(), 256U);
  departure_->StopTelling();
  open_.front()(Error(ErrorCode::kCancelled, "the daemon is shutting down"));
  EXPECT_EQ(told_.size(), 256U);
}

TEST_F(DepartureTest, NodesThatStayDeadAreNotWaitedFor) {
  Start(3);
  answers_.insert_or_assign(1, true);
  answers_.insert_or_assign(2, Error(ErrorCode::kUnavailable, "no answer"));
  departure_->Begin(300'000);
  EXPECT_THAT(TickAfter(0), UnorderedElementsAre(1, 2));
  dead_.insert(2);
  EXPECT_THAT(TickAfter(kSecondNs), UnorderedElementsAre(1));
  TickAfter(kSecondNs / 2);
  EXPECT_FALSE(departure_->IsOver()) << "it was dead in one round only";
  dead_.clear();
  EXPECT_THAT(TickAfter(kSecondNs / 2), UnorderedElementsAre(1, 2));
  dead_.insert(2);
  TickAfter(kSecondNs);
  TickAfter(kSecondNs);
  EXPECT_FALSE(departure_->IsOver()) << "this Tick begins the second round";
  TickAfter(0);
  EXPECT_TRUE(departure_->IsOver());
}

TEST_F(DepartureTest, ANodeThatRestsIsToldAndWaitedFor) {
  Start(2);
  nodes_->Rest(NodeRank(1), plan::Membership::kForEver);
  answers_.insert_or_assign(1, false);
  departure_->Begin(300'000);
  for (int round = 0; round < 4; ++round) {
    EXPECT_THAT(TickAfter(kSecondNs), UnorderedElementsAre(1)) << round;
    EXPECT_FALSE(departure_->IsOver()) << round;
  }
  answers_.insert_or_assign(1, true);
  TickAfter(kSecondNs);
  TickAfter(0);
  EXPECT_TRUE(departure_->IsOver());
}

TEST_F(DepartureTest, ItEndsWhenItsTimeIsOver) {
  Start(2);
  answers_.insert_or_assign(1, false);
  departure_->Begin(10'000);
  TickAfter(10 * kSecondNs - 1);
  EXPECT_FALSE(departure_->IsOver());
  TickAfter(1);
  EXPECT_TRUE(departure_->IsOver());
}

TEST_F(DepartureTest, InALargeJobTheRoundsAreLonger) {
  Start(2000);
  for (std::uint32_t node = 1; node < 2000; ++node) answers_.insert_or_assign(node, false);
  departure_->Begin(300'000);
  EXPECT_EQ(TickAfter(0).size(), 1999U);
  EXPECT_EQ(time_ms_, 100'000) << "ten rounds";
  EXPECT_THAT(TickAfter(10 * kSecondNs - 1), IsEmpty());
  EXPECT_EQ(TickAfter(1).size(), 1999U);
}

TEST_F(DepartureTest, ANodeThatLeavesIsNotUsedAndItsPlaceIsTaken) {
  Start(3);
  EXPECT_TRUE(IsUsed(NodeRank(2)));
  EXPECT_FALSE(Hear(NodeRank(2), 60'000));
  EXPECT_EQ(wakes_, 1);
  EXPECT_FALSE(IsUsed(NodeRank(2)));
  EXPECT_TRUE(IsUsed(NodeRank(1)));
  TickAfter(0);
  EXPECT_FALSE(Hear(NodeRank(2), 60'000));
  has_taken_over_ = true;
  TickAfter(kSecondNs);
  EXPECT_TRUE(Hear(NodeRank(2), 60'000));
  TickAfter(kSecondNs);
  EXPECT_EQ(begun_, 1) << "it was said again and again";
  EXPECT_EQ(looks_, 2) << "there is nothing left to do";
}

TEST_F(DepartureTest, ASecondNodeThatLeavesMakesItBeginAgain) {
  Start(4);
  has_taken_over_ = true;
  Hear(NodeRank(2), 60'000);
  TickAfter(0);
  EXPECT_TRUE(Hear(NodeRank(2), 60'000));
  EXPECT_FALSE(Hear(NodeRank(3), 60'000));
  EXPECT_FALSE(Hear(NodeRank(2), 60'000)) << "both share what is not done yet";
  TickAfter(0);
  EXPECT_TRUE(Hear(NodeRank(3), 60'000));
  EXPECT_EQ(begun_, 2);
}

TEST_F(DepartureTest, ANodeThatDoesNotRepeatThatItLeavesIsUsedAgain) {
  Start(3);
  Hear(NodeRank(2), 60'000);
  TickAfter(59 * kSecondNs);
  Hear(NodeRank(2), 60'000);
  TickAfter(59 * kSecondNs);
  EXPECT_FALSE(IsUsed(NodeRank(2)));
  EXPECT_TRUE(departure_->IsLeaving(NodeRank(2)));
  EXPECT_FALSE(departure_->IsLeaving(NodeRank(1)));
  TickAfter(kSecondNs);
  EXPECT_TRUE(IsUsed(NodeRank(2)));
  EXPECT_FALSE(departure_->IsLeaving(NodeRank(2)));
}

TEST_F(DepartureTest, ANodeThatLeavesTakesNothingOverButTellsAllFirst) {
  Start(3);
  departure_->Begin(300'000);
  EXPECT_FALSE(Hear(NodeRank(2), 60'000));
  EXPECT_THAT(TickAfter(0), UnorderedElementsAre(1, 2));
  TickAfter(0);
  EXPECT_FALSE(Hear(NodeRank(2), 60'000)) << "nobody has heard that it leaves";
  ASSERT_EQ(open_.size(), 2U);
  open_[0](peer::LeaveAnswer{});
  TickAfter(0);
  EXPECT_FALSE(Hear(NodeRank(2), 60'000)) << "one node has not";
  open_[1](peer::LeaveAnswer{});
  TickAfter(0);
  EXPECT_TRUE(Hear(NodeRank(2), 60'000));
  EXPECT_EQ(looks_, 0);
  EXPECT_FALSE(IsUsed(NodeRank(2))) << "but it uses the other one no more";
}

TEST_F(DepartureTest, ANodeThatDoesNotAnswerWasNotToldUnlessItIsDead) {
  Start(3);
  answers_.insert_or_assign(1, false);
  answers_.insert_or_assign(2, Error(ErrorCode::kUnavailable, "no answer"));
  departure_->Begin(300'000);
  Hear(NodeRank(1), 60'000);
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(TickAfter(kSecondNs), UnorderedElementsAre(1, 2));
    EXPECT_FALSE(Hear(NodeRank(1), 60'000)) << round;
  }
  dead_.insert(2);
  for (int round = 0; round < 2; ++round) TickAfter(kSecondNs);
  TickAfter(0);
  EXPECT_TRUE(Hear(NodeRank(1), 60'000)) << "it was dead in two rounds";
  // It comes back.
  dead_.clear();
  TickAfter(kSecondNs);
  TickAfter(0);
  EXPECT_FALSE(Hear(NodeRank(1), 60'000));
  answers_.insert_or_assign(2, false);
  TickAfter(kSecondNs);
  TickAfter(0);
  EXPECT_TRUE(Hear(NodeRank(1), 60'000));
}

TEST_F(DepartureTest, ANodeThatIsSilentForAMomentIsWaitedForBeforeItsPlaceIsTaken) {
  for (const bool rests : {true, false}) {
    Start(3);
    begun_ = 0;
    has_taken_over_ = true;
    if (rests) nodes_->Rest(NodeRank(2), clock_.NowNs() + kSecondNs);
    nodes_->SetLives(NodeRank(2), false);
    Hear(NodeRank(2), 60'000);
    for (int tick = 0; tick < 3; ++tick) TickAfter(kSecondNs);
    EXPECT_FALSE(Hear(NodeRank(2), 60'000)) << rests;
    EXPECT_EQ(begun_, 0) << rests;
    nodes_->SetLives(NodeRank(2), true);
    TickAfter(kSecondNs);
    EXPECT_TRUE(Hear(NodeRank(2), 60'000)) << rests;
    EXPECT_EQ(begun_, 1) << rests;
  }
}

TEST_F(DepartureTest, ASilentNodeThatLeavesDoesNotHoldUpTakingOverFromOthers) {
  Start(4);
  has_taken_over_ = true;
  nodes_->SetLives(NodeRank(2), false);
  Hear(NodeRank(2), 60'000);
  TickAfter(0);
  EXPECT_EQ(begun_, 0) << "there is nobody to take over from";
  Hear(NodeRank(3), 60'000);
  for (int tick = 0; tick < 3; ++tick) TickAfter(kSecondNs);
  EXPECT_EQ(begun_, 1) << "what the node that answers has is taken over, once";
  EXPECT_FALSE(Hear(NodeRank(3), 60'000)) << "what the other one has is missing";
  nodes_->SetLives(NodeRank(2), true);
  TickAfter(kSecondNs);
  EXPECT_EQ(begun_, 2);
  EXPECT_TRUE(Hear(NodeRank(2), 60'000));
  EXPECT_TRUE(Hear(NodeRank(3), 60'000));
}

TEST_F(DepartureTest, ASilentNodeThatEndsIsNotWaitedForAnyLonger) {
  Start(4);
  has_taken_over_ = true;
  nodes_->SetLives(NodeRank(2), false);
  Hear(NodeRank(2), 60'000);
  Hear(NodeRank(3), 90'000);
  TickAfter(0);
  EXPECT_FALSE(Hear(NodeRank(3), 90'000));
  TickAfter(60 * kSecondNs);
  EXPECT_TRUE(Hear(NodeRank(3), 90'000));
}

TEST_F(DepartureTest, ANodeThatIsDeadOrLeftOutForGoodIsNotWaitedFor) {
  for (const bool is_dead : {true, false}) {
    Start(3);
    begun_ = 0;
    if (is_dead) dead_.insert(2);
    if (!is_dead) nodes_->Rest(NodeRank(2), plan::Membership::kForEver);
    nodes_->SetLives(NodeRank(2), false);
    Hear(NodeRank(2), 60'000);
    TickAfter(0);
    EXPECT_EQ(begun_, 1) << is_dead;
    dead_.clear();
  }
}

// The pass that is under way may have left out what it has.
TEST_F(DepartureTest, ANodeThatBecomesSilentDuringAPassIsTakenOverFromOnceMore) {
  Start(3);
  Hear(NodeRank(2), 60'000);
  TickAfter(0);
  nodes_->SetLives(NodeRank(2), false);
  has_taken_over_ = true;
  TickAfter(kSecondNs);
  EXPECT_FALSE(Hear(NodeRank(2), 60'000));
  EXPECT_EQ(begun_, 1);
  nodes_->SetLives(NodeRank(2), true);
  TickAfter(kSecondNs);
  EXPECT_EQ(begun_, 2);
  EXPECT_TRUE(Hear(NodeRank(2), 60'000));
}

TEST_F(DepartureTest, ANodeThatBecomesSilentAfterAPassHoldsUpNothing) {
  Start(3);
  has_taken_over_ = true;
  Hear(NodeRank(2), 60'000);
  TickAfter(0);
  nodes_->SetLives(NodeRank(2), false);
  TickAfter(kSecondNs);
  EXPECT_TRUE(Hear(NodeRank(2), 60'000));
  EXPECT_EQ(begun_, 1);
}

TEST_F(DepartureTest, ANodeThatBeginsToLeaveHasToldNobodyYet) {
  Start(3);
  has_taken_over_ = true;
  Hear(NodeRank(2), 60'000);
  TickAfter(0);
  ASSERT_TRUE(Hear(NodeRank(2), 60'000));
  departure_->Begin(300'000);
  TickAfter(0);
  EXPECT_FALSE(Hear(NodeRank(2), 60'000));
}

TEST_F(DepartureTest, ANodeInThePlaceOfOneThatHasLeftIsUsed) {
  Start(3);
  Hear(NodeRank(2), 60'000);
  nodes_->Rest(NodeRank(2), plan::Membership::kForEver);
  EXPECT_TRUE(departure_->Hear(NodeRank(2), 60'000).has_left_out);
  EXPECT_FALSE(IsUsed(NodeRank(2)));
  nodes_->EndRest(NodeRank(2));
  nodes_->SetLives(NodeRank(2), true);
  departure_->Forget(NodeRank(2));
  EXPECT_FALSE(departure_->IsLeaving(NodeRank(2)));
  EXPECT_TRUE(IsUsed(NodeRank(2)));
  // It may leave itself, and is then left out for a reason of its own.
  ::testing::internal::CaptureStdout();
  Hear(NodeRank(2), 60'000);
  nodes_->Rest(NodeRank(2), plan::Membership::kForEver);
  EXPECT_TRUE(departure_->Hear(NodeRank(2), 60'000).has_left_out);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("node 2 leaves the job; this node has left it out"));
}

TEST_F(DepartureTest, ANodeThatDidNotLeaveIsForgottenWithoutEffect) {
  Start(3);
  departure_->Forget(NodeRank(2));
  EXPECT_TRUE(IsUsed(NodeRank(2)));
  EXPECT_FALSE(departure_->IsLeaving(NodeRank(2)));
}

TEST_F(DepartureTest, ANodeThatComesDuringTheHandOverIsWaitedFor) {
  Start(3);
  answers_.insert_or_assign(1, false);
  answers_.insert_or_assign(2, true);
  departure_->Begin(300'000);
  TickAfter(0);
  departure_->Forget(NodeRank(2));
  answers_.insert_or_assign(1, true);
  answers_.insert_or_assign(2, Error(ErrorCode::kUnavailable, "it does not serve yet"));
  EXPECT_THAT(TickAfter(kSecondNs), UnorderedElementsAre(1, 2));
  TickAfter(0);
  EXPECT_FALSE(departure_->IsOver());
  answers_.insert_or_assign(2, true);
  TickAfter(kSecondNs);
  TickAfter(0);
  EXPECT_TRUE(departure_->IsOver());
}

}  // namespace forebay::daemon::departure_test
