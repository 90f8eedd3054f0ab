// Another node takes the place of one: what becomes of the calls to the one before, which node is
// asked from then on, and places in which nobody is.
#include <array>
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/peer/answer_times.h"
#include "server/peer/grpc_peers.h"
#include "server/peer/job_certificates.h"
#include "server/peer/link_watch.h"
#include "server/peer/testing/peer_link_fixture.h"
#include "server/peer/testing/peer_rig.h"
#include "server/peer/testing/tcp_relay.h"
#include "server/plan/membership.h"
#include "server/stage/extent_source.h"

namespace forebay::peer::peer_redirect_test {

using io::testing::Take;
using peer_link_test::HelloNode;
using peer_link_test::kRoom;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class RedirectedLinkTest : public peer_link_test::PeerLinkTest {
 protected:
  void ExpectNobody(PeerLink& link) {
    const auto a = Start(link, "a", 1);
    const auto b = StartLater(link, "b", 1, /*rest_ms=*/10);
    const auto c = Make(link, "c", 0, 60'000);
    link.StartAtOnce(c);
    for (const auto& call : {a, b, c}) {
      ASSERT_FALSE(call->has_begun());
      EXPECT_TRUE(stage::IsNoAnswer(call->error()));
      EXPECT_THAT(call->error().message(), HasSubstr("no node has taken this place"));
    }
  }

  HelloNode other_;
};

TEST_F(RedirectedLinkTest, CallsToTheNodeBeforeEndAsIfItHadNotAnswered) {
  const auto a = Start(link_, "a", kRoom);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  const auto b = Start(link_, "b", 1);
  const auto again = StartLater(link_, "again", 1, /*rest_ms=*/60'000);
  const auto probe = Make(link_, "probe", 0, 60'000);
  link_.StartAtOnce(probe);
  ASSERT_EQ(journal_.AwaitLines(2).back(), "probe begins");
  EXPECT_TRUE(link_.Redirect(other_.address()));
  EXPECT_THAT(journal_.AwaitLines(6),
              UnorderedElementsAre("a begins", "probe begins", "b fails", "again fails",
                                   "a is cancelled", "probe is cancelled"));
  for (const auto& call : {b, again}) {
    EXPECT_TRUE(stage::IsNoAnswer(call->error()));
    EXPECT_THAT(call->error().message(), HasSubstr(node_.address()));
    EXPECT_THAT(call->error().message(), HasSubstr(other_.address()));
  }
  EXPECT_EQ(link_.address(), other_.address());
}

TEST_F(RedirectedLinkTest, LaterCallsGoToTheOtherNodeAfterHello) {
  const auto a = Start(link_, "a", 1);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  EXPECT_EQ(other_.hellos(), 0);
  link_.Redirect(other_.address());
  const auto b = Start(link_, "b", 1);
  journal_.AwaitLast("b begins");
  EXPECT_EQ(other_.hellos(), 1);
  EXPECT_EQ(node_.hellos(), 1);
  link_.Ended(*b);
  // And back again, by a connection of its own.
  link_.Redirect(node_.address());
  const auto c = Start(link_, "c", 1);
  journal_.AwaitLast("c begins");
  EXPECT_EQ(node_.hellos(), 2);
  link_.Ended(*c);
}

TEST_F(RedirectedLinkTest, TheOtherNodeMayRefuseHello) {
  other_.Refuse(true);
  link_.Redirect(other_.address());
  const auto a = Start(link_, "a", 1);
  journal_.AwaitLast("a fails");
  EXPECT_EQ(a->error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(a->error().message(), HasSubstr(other_.address()));
}

TEST_F(RedirectedLinkTest, TheSameAddressChangesNothing) {
  const auto a = Start(link_, "a", kRoom);
  ASSERT_EQ(journal_.AwaitLines(1).back(), "a begins");
  const auto b = Start(link_, "b", 1);
  EXPECT_FALSE(link_.Redirect(node_.address()));
  link_.Ended(*a);
  EXPECT_EQ(journal_.AwaitLines(2), (std::vector<std::string>{"a begins", "b begins"}));
  EXPECT_EQ(node_.hellos(), 1);
  link_.Ended(*b);
}

TEST_F(RedirectedLinkTest, AHelloThatIsUnderWayIsSaidToTheOtherNode) {
  TcpRelay before(node_.address());
  before.HoldAnswers(true);
  PeerLink link({.address = "127.0.0.1:1", .job_id = "job"}, before.address(), clock_);
  const auto a = Start(link, "a", 1);
  ASSERT_TRUE(before.AwaitAsked(1));
  link.Redirect(other_.address());
  journal_.AwaitLast("a fails");
  EXPECT_EQ(a->error().code(), ErrorCode::kUnavailable);
  const auto b = Start(link, "b", 1);
  journal_.AwaitLast("b begins");
  link.Ended(*b);
}

// Whether it agrees in time or too late, it does not agree for the node that is asked now.
TEST_F(RedirectedLinkTest, AnAnswerToHelloOfTheNodeBeforeDoesNotCount) {
  const TcpRelay silent("");
  for (int i = 0; i < 100; ++i) {
    PeerLink link({.address = "127.0.0.1:1", .job_id = "job"}, node_.address(), clock_);
    const auto a = Start(link, "a", 1);
    // Somewhere between the request and a little after the answer.
    for (int turn = 0; turn < 10 * i && !a->has_begun(); ++turn) std::this_thread::yield();
    link.Redirect(silent.address());
    const auto b = Start(link, "b", 1);
    EXPECT_TRUE(link.Redirect(other_.address()));
    const auto c = Start(link, "c", 1);
    journal_.AwaitLast("c begins");
    EXPECT_FALSE(b->has_begun());
    link.Ended(*c);
  }
}

TEST_F(RedirectedLinkTest, AfterStopNothingChanges) {
  link_.Stop();
  EXPECT_FALSE(link_.Redirect(other_.address()));
  EXPECT_EQ(link_.address(), node_.address());
  EXPECT_EQ(Start(link_, "a", 1)->error().code(), ErrorCode::kCancelled);
}

TEST_F(RedirectedLinkTest, WhereNobodyIsCallsFailAtOnceUntilANodeComes) {
  PeerLink link({.address = "127.0.0.1:1", .job_id = "job"}, "", clock_);
  ExpectNobody(link);
  EXPECT_FALSE(link.Redirect(""));
  EXPECT_TRUE(link.Redirect(node_.address()));
  const auto a = Start(link, "a", 1);
  journal_.AwaitLast("a begins");
  EXPECT_TRUE(link.Redirect(""));
  journal_.AwaitLast("a is cancelled");
  ExpectNobody(link);
}

TEST_F(RedirectedLinkTest, WhatWasMeasuredAtTheNodeBeforeDoesNotCount) {
  io::ManualClock clock;
  PeerLink link({.address = "127.0.0.1:1", .job_id = "job"}, node_.address(), clock);
  const auto state = [&] { return link.AddSilence(0, [] { return false; }); };
  std::size_t lines = 0;
  const auto answer = [&](std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto call = Start(link, "call", kRoom / 2);
      journal_.AwaitLines(++lines);
      clock.AdvanceNs(1'000'000);
      link.Ended(*call, call->bytes());
    }
  };
  answer(AnswerTimes::kAnswersMin);
  link.CountWrong();
  ASSERT_GT(state().usual_ns, 0);
  ASSERT_NE(link.figures().bound_bytes, kRoom);
  EXPECT_EQ(state().wrong, 1U);
  // This one is answered all the same.
  const auto late = Start(link, "late", 1);
  journal_.AwaitLines(++lines);
  late->ends_if_cancelled = false;
  link.Redirect(other_.address());
  EXPECT_EQ(journal_.AwaitLines(++lines).back(), "late is cancelled");
  EXPECT_EQ(state().usual_ns, 0);
  EXPECT_EQ(state().wrong, 0U);
  EXPECT_EQ(link.figures().wrong, 1U) << "the figures are those of the place";
  EXPECT_EQ(link.figures().bound_bytes, kRoom);
  answer(AnswerTimes::kAnswersMin - 1);
  link.Ended(*late, late->bytes());
  EXPECT_EQ(state().usual_ns, 0) << "an answer of the node before was counted";
  answer(1);
  EXPECT_GT(state().usual_ns, 0);
  link.CountWrong();
  EXPECT_EQ(state().wrong, 1U);
}

class RedirectedPeersTest : public ::testing::Test {
 protected:
  void SetUp() override { FOREBAY_EXPECT_OK(rig_->Connect(rig_->address())); }
  GrpcPeers& peers() { return rig_->peers(); }
  Status Ask() {
    PeerRig::Rows rows = rig_->Ask({1, 2, 3});
    const Status outcome = rows.outcome.get();
    // A request may end in between, after its last row has come.
    EXPECT_TRUE(!outcome.has_value() || rig_->AreRight(rows));
    return outcome;
  }
  void ExpectNobody() {
    const std::int64_t deadline_ns = rig_->rig().clock().NowNs() + 60'000'000'000;
    std::vector<Error> errors;
    const auto note = [&errors](const auto& answer) {
      if (!answer.has_value()) errors.push_back(answer.error());
    };
    // None of them needs another thread to fail.
    peers().Ping(PeerRig::kNode, deadline_ns, note);
    peers().Probe(PeerRig::kNode, std::nullopt, {}, deadline_ns, note);
    peers().Leave(PeerRig::kNode, NodeRank(0), 1'000, deadline_ns, note);
    peers().Borrow(PeerRig::kNode, {}, deadline_ns, note);
    peers().Join(PeerRig::kNode, {.entry = {std::byte{1}}}, deadline_ns, note);
    note(rig_->ReadExtent(ExtentId(0)));
    note(Ask());
    ASSERT_EQ(errors.size(), 7U);
    for (const Error& error : errors) {
      EXPECT_TRUE(stage::IsNoAnswer(error)) << error.ToString();
      EXPECT_THAT(error.message(), HasSubstr("no node has taken this place"));
    }
  }

  std::unique_ptr<PeerRig> rig_ = Take(PeerRig::Create({}));
  // Another machine, which has staged the same.
  std::unique_ptr<PeerRig> other_ = Take(PeerRig::Create({}));
};

TEST_F(RedirectedPeersTest, RequestsGoToTheNodeThatHasTakenThePlace) {
  FOREBAY_EXPECT_OK(Ask());
  rig_->StopServer();
  EXPECT_EQ(Ask().error().code(), ErrorCode::kUnavailable);
  FOREBAY_EXPECT_OK(peers().Redirect(PeerRig::kNode, other_->address()));
  FOREBAY_EXPECT_OK(Ask());
  EXPECT_TRUE(rig_->ReadExtent(ExtentId(0)).has_value());
}

TEST_F(RedirectedPeersTest, ARequestThatANodeDoesNotAnswerEnds) {
  TcpRelay before(rig_->address());
  before.HoldAnswers(true);
  FOREBAY_EXPECT_OK(rig_->Connect(before.address()));
  PeerRig::Rows rows = rig_->Ask({1});
  ASSERT_TRUE(before.AwaitAsked(1));
  FOREBAY_EXPECT_OK(peers().Redirect(PeerRig::kNode, other_->address()));
  const Status ended = rows.outcome.get();
  ASSERT_FALSE(ended.has_value());
  EXPECT_TRUE(stage::IsNoAnswer(ended.error())) << ended.error().ToString();
  FOREBAY_EXPECT_OK(Ask());
}

TEST_F(RedirectedPeersTest, APlaceInWhichNobodyIsDoesNotAnswer) {
  FOREBAY_EXPECT_OK(rig_->Connect(""));
  ExpectNobody();
  FOREBAY_EXPECT_OK(peers().Redirect(PeerRig::kNode, other_->address()));
  FOREBAY_EXPECT_OK(Ask());
  FOREBAY_EXPECT_OK(peers().Redirect(PeerRig::kNode, ""));
  ExpectNobody();
}

TEST_F(RedirectedPeersTest, WhatIsNoAddressOfANodeIsRefused) {
  const auto refused = [&](NodeRank node, const std::string& address) {
    const Status status = peers().Redirect(node, address);
    return status.has_value() ? Error(ErrorCode::kUnknown, "none") : status.error();
  };
  const Error malformed = refused(PeerRig::kNode, "nowhere");
  EXPECT_EQ(malformed.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(malformed.message(), HasSubstr("node 1"));
  EXPECT_EQ(refused(PeerRig::kNode, "192.0.2.1:1").code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(refused(NodeRank(9), other_->address()).code(), ErrorCode::kUnavailable);
  FOREBAY_EXPECT_OK(Ask());  // by the address of before
}

// Requests come while the node of the place changes, and while this one stops.
TEST_F(RedirectedPeersTest, RequestsEndWhateverHappensMeanwhile) {
  constexpr int kThreads = 3;
  std::atomic<bool> is_over = false;
  std::atomic<std::uint64_t> answered = 0;
  std::atomic<std::uint64_t> lost = 0;
  std::vector<std::jthread> askers;
  for (int i = 0; i < kThreads; ++i) {
    askers.emplace_back([&] {
      while (!is_over) {
        const Status outcome = Ask();
        const bool is_lost = !outcome.has_value() && stage::IsNoAnswer(outcome.error());
        answered += outcome.has_value() ? 1 : 0;
        lost += is_lost ? 1 : 0;
        if (outcome.has_value() || is_lost) continue;
        EXPECT_EQ(outcome.error().code(), ErrorCode::kCancelled) << outcome.error().ToString();
      }
    });
  }
  const std::array<std::string, 3> places = {other_->address(), "", rig_->address()};
  for (std::size_t i = 0; i < 300; ++i) {
    const std::uint64_t before = answered;
    FOREBAY_EXPECT_OK(peers().Redirect(PeerRig::kNode, places[i % places.size()]));
    // Sometimes the node answers, and otherwise the place changes at once.
    while (i % 2 == 0 && i % 3 != 1 && answered == before) std::this_thread::yield();
  }
  std::jthread redirects([&] {
    for (std::size_t i = 0; i < 100; ++i) {
      FOREBAY_EXPECT_OK(peers().Redirect(PeerRig::kNode, places[i % places.size()]));
    }
  });
  peers().Stop();
  redirects.join();
  is_over = true;
  askers.clear();
  EXPECT_GT(answered, 0U);
  EXPECT_GT(lost, 0U);
}

// link_watch_test.cc tests what else LinkWatch forgets.
TEST_F(RedirectedPeersTest, ANodeThatWasLeftOutForWrongBytesIsForgotten) {
  plan::Membership nodes(NodeRank(0), {{.rank = NodeRank(0), .weight = 1, .identity = 1},
                                       {.rank = PeerRig::kNode, .weight = 1, .identity = 2}});
  peers().Watch({.nodes = nodes,
                 .clock = rig_->rig().clock(),
                 .is_suspected = [](NodeRank) { return false; },
                 .name = [](NodeRank) { return std::string("the node"); },
                 .late_ms = 100});
  nodes.Rest(PeerRig::kNode, plan::Membership::kForEver);
  FOREBAY_EXPECT_OK(peers().Redirect(PeerRig::kNode, rig_->address()));  // the same one
  FOREBAY_EXPECT_OK(Ask());
  EXPECT_TRUE(nodes.RestsForEver(PeerRig::kNode));
  FOREBAY_EXPECT_OK(peers().Redirect(PeerRig::kNode, other_->address()));
  while (nodes.RestsForEver(PeerRig::kNode)) std::this_thread::yield();
  peers().Stop();
}

}  // namespace forebay::peer::peer_redirect_test
