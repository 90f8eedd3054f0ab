// When a call may begin: after Hello, while there is room for its bytes, in order, and before its
// deadline.
#include "server/peer/peer_link.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/manual_clock.h"
#include "server/peer/testing/peer_link_fixture.h"
#include "server/peer/testing/tcp_relay.h"
#include "server/stage/extent_source.h"

namespace forebay::peer::peer_link_test {

using ::testing::HasSubstr;

TEST_F(PeerLinkTest, CallsBeginInOrderAsLongAsThereIsRoom) {
  const auto a = Start(link_, "a", kRoom / 2);
  const auto b = Start(link_, "b", kRoom / 2);
  const auto c = Start(link_, "c", 1);
  const auto d = Start(link_, "d", kRoom);
  EXPECT_EQ(journal_.AwaitLines(2), (std::vector<std::string>{"a begins", "b begins"}));
  link_.Ended(*a);
  EXPECT_EQ(journal_.AwaitLines(3).back(), "c begins");
  link_.Ended(*c);
  link_.Ended(*b);
  EXPECT_EQ(journal_.AwaitLines(4).back(), "d begins");
  link_.Ended(*d);
}

// One failed connection does not make a node count as dead.
TEST_F(PeerLinkTest, ANodeToWhichAConnectionFailsIsConnectedToOnceMore) {
  // The node has to listen again before the second attempt, which a busy machine may prevent.
  bool has_begun = false;
  for (std::size_t tries = 1; tries <= 20 && !has_begun; ++tries) {
    std::string address;
    {
      const HelloNode before;
      address = before.address();
    }
    PeerLink link({.address = "127.0.0.1:1", .job_id = "job"}, address, clock_);
    const auto call = Start(link, "a", 1);
    const HelloNode again(address);
    journal_.AwaitLines(tries);
    has_begun = call->has_begun();
    if (has_begun) link.Ended(*call);
  }
  EXPECT_TRUE(has_begun);
}

TEST_F(PeerLinkTest, AnswersThatDoNotWaitForEachOtherMakeRoomForMore) {
  io::ManualClock clock;
  PeerLink link({.address = "127.0.0.1:1", .job_id = "job"}, node_.address(), clock);
  EXPECT_EQ(link.figures().bound_bytes, kRoom);
  std::vector<std::shared_ptr<NotedCall>> calls;
  for (int i = 0; i < 60; ++i) calls.push_back(Start(link, "call", kRoom / 2));
  EXPECT_EQ(journal_.AwaitLines(2).size(), 2U) << "there is room for two";
  // All that are under way are answered together, after the same time however many they are.
  std::size_t most = 0;
  while (!calls.empty()) {
    clock.AdvanceNs(20'000'000);
    const auto waiting = std::ranges::find_if(calls, [](const auto& c) { return !c->has_begun(); });
    const std::vector<std::shared_ptr<NotedCall>> begun(calls.begin(), waiting);
    ASSERT_FALSE(begun.empty());
    calls.erase(calls.begin(), waiting);
    most = std::max(most, begun.size());
    for (const auto& call : begun) link.Ended(*call, call->bytes());
  }
  EXPECT_GE(most, 4U);
  EXPECT_GE(link.figures().bound_bytes, 2 * kRoom);
}

TEST_F(PeerLinkTest, OnlyAnswersChangeTheRoom) {
  for (int i = 0; i < 100; ++i) {
    const auto a = Start(link_, "a", kRoom / 2);
    const auto b = Start(link_, "b", kRoom / 2);
    journal_.AwaitLines(2 * static_cast<std::size_t>(i) + 2);
    link_.Ended(*a);
    link_.Ended(*b);
  }
  EXPECT_EQ(link_.figures().bound_bytes, kRoom) << "calls that fail say nothing";
}

TEST_F(PeerLinkTest, ACallLargerThanTheRoomBeginsAlone) {
  const auto a = Start(link_, "a", 1);
  const auto b = Start(link_, "b", 2 * kRoom);
  EXPECT_EQ(journal_.AwaitLines(1), (std::vector<std::string>{"a begins"}));
  link_.Ended(*a);
  EXPECT_EQ(journal_.AwaitLines(2).back(), "b begins");
  const auto c = Start(link_, "c", 1);
  link_.Ended(*b);
  EXPECT_EQ(journal_.AwaitLines(3).back(), "c begins");
  link_.Ended(*c);
}

TEST_F(PeerLinkTest, ACallWithoutBytesDoesNotWaitForRoom) {
  const auto a = Start(link_, "a", kRoom);
  const auto b = Start(link_, "b", kRoom);
  const auto extent = Start(link_, "extent", 0);
  EXPECT_EQ(journal_.AwaitLines(2), (std::vector<std::string>{"a begins", "extent begins"}));
  link_.Ended(*extent);
  link_.Ended(*a);
  EXPECT_EQ(journal_.AwaitLines(3).back(), "b begins");
  link_.Ended(*b);
}

TEST_F(PeerLinkTest, ACallThatWaitsTooLongForRoomFails) {
  const auto a = Start(link_, "a", kRoom);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  const auto b = Start(link_, "b", 1, /*wait_ms=*/1);
  EXPECT_EQ(journal_.AwaitLines(2).back(), "b fails");
  EXPECT_TRUE(stage::IsNotSent(b->error())) << "the node was not asked: " << b->error().ToString();
  EXPECT_THAT(b->error().message(), HasSubstr("was not sent before its deadline"));
  EXPECT_EQ(link_.figures().late, 0U);
  link_.Ended(*a);
}

TEST_F(PeerLinkTest, ACallThatRestsHoldsUpNoOtherOneAndThenComesFirst) {
  const auto a = Start(link_, "a", 1);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  const auto again = StartLater(link_, "again", kRoom, /*rest_ms=*/1000);
  // Short calls begin within Start while `again` rests. The first one that does not waits behind
  // it, because there is no room for `again` beside `a`.
  std::shared_ptr<NotedCall> other = Start(link_, "other", 1);
  ASSERT_TRUE(other->has_begun());
  while (other->has_begun()) {
    link_.Ended(*other);
    std::this_thread::yield();
    other = Start(link_, "other", 1);
  }
  EXPECT_FALSE(again->has_begun());
  link_.Ended(*a);
  journal_.AwaitLast("again begins");
  EXPECT_FALSE(other->has_begun());
  link_.Ended(*again);
  journal_.AwaitLast("other begins");
  link_.Ended(*other);
}

TEST_F(PeerLinkTest, ACallThatIsMadeAgainBeginsByItself) {
  const std::int64_t begun_ns = clock_.NowNs();
  const auto again = StartLater(link_, "again", 1, /*rest_ms=*/20);
  EXPECT_EQ(journal_.AwaitLines(1).back(), "again begins");
  EXPECT_GE(clock_.NowNs() - begun_ns, 20 * 1'000'000);
  link_.Ended(*again);
}

TEST_F(PeerLinkTest, ACallThatRestsCanBeWithdrawnAndStopped) {
  const auto a = Start(link_, "a", 1);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  const auto withdrawn = StartLater(link_, "withdrawn", 1, /*rest_ms=*/60'000);
  const auto stopped = StartLater(link_, "stopped", 1, /*rest_ms=*/60'000);
  link_.Withdraw(*withdrawn);
  EXPECT_EQ(journal_.AwaitLines(2).back(), "withdrawn fails");
  EXPECT_EQ(withdrawn->error().code(), ErrorCode::kCancelled);
  link_.Ended(*a);
  link_.Stop();  // does not wait for the rest
  EXPECT_EQ(journal_.AwaitLines(3).back(), "stopped fails");
  EXPECT_EQ(stopped->error().code(), ErrorCode::kCancelled);
}

TEST_F(PeerLinkTest, ACallThatHasRestedStillHasItsDeadline) {
  const auto a = Start(link_, "a", kRoom);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  const auto again = StartLater(link_, "again", 1, /*rest_ms=*/1, /*wait_ms=*/50);
  EXPECT_EQ(journal_.AwaitLines(2).back(), "again fails");
  EXPECT_TRUE(stage::IsNotSent(again->error())) << again->error().ToString();
  link_.Ended(*a);
}

TEST_F(PeerLinkTest, ARefusedHelloFailsTheCallsThatWaitAndIsSaidAgain) {
  node_.Refuse(true);
  const auto a = Start(link_, "a", 1);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a fails");
  EXPECT_EQ(a->error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(a->error().message(), HasSubstr("another job"));
  node_.Refuse(false);
  const auto b = Start(link_, "b", 1);
  EXPECT_EQ(journal_.AwaitLines(2).back(), "b begins");
  link_.Ended(*b);
}

TEST_F(PeerLinkTest, ANodeThatIsNotThereDoesNotAnswer) {
  PeerLink link({.address = "127.0.0.1:1", .job_id = "job"}, "127.0.0.1:1", clock_);
  const auto a = Start(link, "a", 1);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a fails");
  EXPECT_EQ(a->error().code(), ErrorCode::kUnavailable);
}

TEST_F(PeerLinkTest, ANodeThatSaysNothingDoesNotAnswer) {
  const TcpRelay silent("");
  PeerLink link({.address = "127.0.0.1:1", .job_id = "job"}, silent.address(), clock_);
  const auto a = Start(link, "a", 1, /*wait_ms=*/50);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a fails");
  EXPECT_EQ(a->error().code(), ErrorCode::kDeadlineExceeded);
}

TEST_F(PeerLinkTest, ACallThatIsWithdrawnFailsIfItWaitsAndIsCancelledIfItHasBegun) {
  const auto a = Start(link_, "a", kRoom);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  const auto b = Start(link_, "b", kRoom);
  const auto c = Start(link_, "c", 1);
  link_.Withdraw(*b);
  EXPECT_EQ(journal_.AwaitLines(2).back(), "b fails");
  EXPECT_EQ(b->error().code(), ErrorCode::kCancelled);
  link_.Withdraw(*b);  // has no effect any more
  link_.Withdraw(*a);
  EXPECT_EQ(journal_.AwaitLines(4),
            (std::vector<std::string>{"a begins", "b fails", "a is cancelled", "c begins"}));
  link_.Ended(*c);
}

TEST_F(PeerLinkTest, CallsThatAreLateEndAndThoseThatWaitBehindThem) {
  const auto a = Start(link_, "a", kRoom / 2);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  EXPECT_EQ(Silence(100), 0) << "it was not there before";
  EXPECT_EQ(Silence(100), 100);
  const auto b = Start(link_, "b", kRoom / 2);
  ASSERT_EQ(journal_.AwaitLines(2).back(), "b begins");
  const auto c = Start(link_, "c", 1);
  EXPECT_EQ(Silence(50), 150);
  EXPECT_EQ(Silence(10), 160);
  link_.EndLate(120, "it is slow");
  EXPECT_THAT(journal_.AwaitLines(4), ::testing::UnorderedElementsAre(
                                          "a begins", "b begins", "c fails", "a is cancelled"));
  EXPECT_EQ(c->error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(c->error().message(), HasSubstr("it is slow"));
  EXPECT_EQ(link_.figures().late, 2U);
  EXPECT_EQ(Silence(10), 20);
  link_.Ended(*b);
  EXPECT_EQ(Silence(10), 0);
}

TEST_F(PeerLinkTest, ACallOfWhichAPartHasComeIsWaitedForAgain) {
  const auto a = Start(link_, "a", 1);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  Silence(0);
  EXPECT_EQ(Silence(100), 100);
  a->NoteProgress();
  EXPECT_EQ(Silence(10), 0);
  EXPECT_EQ(Silence(10), 10);
  link_.Ended(*a);
}

TEST_F(PeerLinkTest, ANodeThatWaitsItselfIsExcusedAsLongAsItIsNotSuspected) {
  const auto a = Start(link_, "a", 1);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  Silence(0);
  EXPECT_EQ(Silence(50), 50);
  a->NoteWaits();
  EXPECT_EQ(Silence(100), 0);
  is_suspected_ = true;
  EXPECT_EQ(Silence(100), 0) << "what was before does not count";
  EXPECT_EQ(Silence(100), 100);
  link_.EndLate(90, "it is slow");
  EXPECT_EQ(journal_.AwaitLines(2).back(), "a is cancelled");
}

TEST_F(PeerLinkTest, CallsThatWaitTheirTurnBehindOneOfANodeThatWaitsAreExcused) {
  const auto a = Start(link_, "a", kRoom);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  const auto b = Start(link_, "b", kRoom);
  Silence(0);
  EXPECT_EQ(Silence(50), 50);
  a->NoteWaits();
  Silence(100);
  EXPECT_FALSE(b->has_begun());
  EXPECT_EQ(Silence(100), 0);
  is_suspected_ = true;
  Silence(100);
  EXPECT_GT(Silence(100), 0);
  link_.Ended(*a);
  ASSERT_EQ(journal_.AwaitLines(2).back(), "b begins");
  link_.Ended(*b);
}

TEST_F(PeerLinkTest, ADeadlineIsNoSilenceIfTheNodeHasSaidThatItWaits) {
  const Error late(ErrorCode::kDeadlineExceeded, "too late");
  const auto a = Make(link_, "a", 1, 60'000);
  EXPECT_EQ(a->Outcome(late).code(), ErrorCode::kDeadlineExceeded);
  a->NoteWaits();
  EXPECT_EQ(a->Outcome(late).code(), ErrorCode::kAborted);
  EXPECT_THAT(a->Outcome(late).message(), HasSubstr("too late (the node waits for the GFS"));
  const Error lost(ErrorCode::kUnavailable, "the connection is lost");
  EXPECT_EQ(a->Outcome(lost).code(), ErrorCode::kUnavailable);
  a->NoteProgress();
  EXPECT_EQ(a->Outcome(late).code(), ErrorCode::kDeadlineExceeded) << "it stopped in its answer";
}

TEST_F(PeerLinkTest, CallsThatAreNotWatchedAreNeverLate) {
  const auto a = Make(link_, "a", 1, 60'000, PeerCall::Watched::kNo);
  link_.Start(a);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  Silence(0);
  EXPECT_EQ(Silence(100), 0);
  link_.EndLate(0, "it is slow");
  EXPECT_EQ(journal_.AwaitLines(1).back(), "a begins");
  EXPECT_EQ(link_.figures().late, 0U);
  link_.Ended(*a);
}

// The time that a call has waited for the other node's GFS says nothing about the node.
TEST_F(PeerLinkTest, AnswersThatWaitedDoNotCountForTheUsualTime) {
  std::size_t lines = 0;
  for (const bool waits : {true, false}) {
    for (std::uint64_t i = 0; i < AnswerTimes::kAnswersMin; ++i) {
      const auto call = Start(link_, "a", 1);
      journal_.AwaitLines(++lines);
      if (waits) call->NoteWaits();
      call->NoteProgress();
      link_.Ended(*call, /*answered_bytes=*/1);
    }
    const std::int64_t usual_ns =
        link_.AddSilence(0, [] { return false; }).usual_ns;
    EXPECT_EQ(usual_ns == 0, waits);
  }
}

TEST_F(PeerLinkTest, StopFailsWhatWaitsAndCancelsWhatHasBegun) {
  const auto a = Start(link_, "a", kRoom);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  const auto b = Start(link_, "b", 1);
  link_.Stop();
  EXPECT_THAT(journal_.AwaitLines(3),
              ::testing::UnorderedElementsAre("a begins", "b fails", "a is cancelled"));
  EXPECT_EQ(b->error().code(), ErrorCode::kCancelled);
  const auto c = Start(link_, "c", 1);
  EXPECT_EQ(c->error().code(), ErrorCode::kCancelled);
}

}  // namespace forebay::peer::peer_link_test
