// Probes between nodes: what is read is what was written, anything else is refused by both sides,
// and a node answers for itself and for another one.
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "forebay/v1/peer.pb.h"
#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/peer/member_requests.h"
#include "server/peer/testing/lone_prober.h"
#include "server/peer/testing/peer_rig.h"
#include "server/peer/testing/tcp_relay.h"
#include "server/probe/node_prober.h"

namespace forebay::peer::probe_messages_test {

using probe::News;
using probe::NodeState;
using ::testing::HasSubstr;

constexpr std::size_t kNodes = 3;

grpc::ByteBuffer BufferOf(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

probe::Gossip SomeGossip() {
  return {.incarnation = 7,
          .news = {{NodeRank(2), NodeState::kDead, 3}, {NodeRank(0), NodeState::kAlive, 0}}};
}

v1::ProbeRequest GoodRequest() {
  v1::ProbeRequest message;
  message.set_identity(5);
  message.set_from(1);
  message.set_target(2);
  message.set_incarnation(7);
  message.add_news()->set_node(2);
  return message;
}

TEST(ProbeMessagesTest, ARequestIsReadAsItWasWritten) {
  for (const std::optional<NodeRank> target : {std::optional<NodeRank>(), {NodeRank(0)}}) {
    const Result<ProbeAsked> read = ParseProbeAsked(
        WriteRequest(ProbeAsked{
            .identity = 5, .from = NodeRank(1), .target = target, .gossip = SomeGossip()}),
        kNodes);
    ASSERT_TRUE(read.has_value()) << read.error().ToString();
    EXPECT_EQ(read->identity, 5U);
    EXPECT_EQ(read->from, NodeRank(1));
    EXPECT_EQ(read->target, target);
    EXPECT_EQ(read->gossip.incarnation, 7U);
    EXPECT_EQ(read->gossip.news, SomeGossip().news);
  }
}

TEST(ProbeMessagesTest, AnAnswerIsReadAsItWasWritten) {
  for (const bool has_answered : {true, false}) {
    const auto read = ParseProbeReply(
        WriteProbeReply({.gossip = SomeGossip(), .has_answered = has_answered}), kNodes);
    ASSERT_TRUE(read.has_value()) << read.error().ToString();
    EXPECT_EQ(read->has_answered, has_answered);
    EXPECT_EQ(read->gossip.incarnation, 7U);
    EXPECT_EQ(read->gossip.news, SomeGossip().news);
  }
}

TEST(ProbeMessagesTest, WhatCannotBeIsRefused) {
  EXPECT_TRUE(ParseProbeAsked(BufferOf(GoodRequest()), kNodes).has_value());
  using Change = void (*)(v1::ProbeRequest&);
  const Change changes[] = {
      [](v1::ProbeRequest& message) { message.set_from(kNodes); },
      [](v1::ProbeRequest& message) { message.set_target(kNodes); },
      [](v1::ProbeRequest& message) { message.mutable_news(0)->set_node(kNodes); },
      [](v1::ProbeRequest& message) { message.mutable_news(0)->set_state(3); },
      [](v1::ProbeRequest& message) { message.set_incarnation(limits::kIncarnationMax + 1); },
      [](v1::ProbeRequest& message) {
        message.mutable_news(0)->set_incarnation(limits::kIncarnationMax + 1);
      },
      [](v1::ProbeRequest& message) {
        for (std::size_t i = 0; i < limits::kGossipNewsMax; ++i) message.add_news();
      },
  };
  for (const Change change : changes) {
    v1::ProbeRequest message = GoodRequest();
    change(message);
    const auto read = ParseProbeAsked(BufferOf(message), kNodes);
    ASSERT_FALSE(read.has_value()) << message.ShortDebugString();
    EXPECT_EQ(read.error().code(), ErrorCode::kInvalidArgument);
  }
  v1::ProbeReply reply;
  reply.add_news()->set_node(kNodes);
  EXPECT_EQ(ParseProbeReply(BufferOf(reply), kNodes).error().code(), ErrorCode::kInvalidArgument);
}

class ProbeOverGrpcTest : public testing::Test {
 protected:
  // The node that answers (rank 1 of 2) with a prober or without, and the one that asks (rank 0).
  void Start(bool has_prober) {
    auto made = PeerRig::Create({.serves = false});
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    rig_ = std::move(*made);
    rig_->prober = has_prober ? &lone_.prober() : nullptr;
    FOREBAY_EXPECT_OK(rig_->Serve());
    FOREBAY_EXPECT_OK(rig_->Connect(rig_->address()));
  }
  Result<probe::ProbeTransport::Answer> Probe(std::optional<NodeRank> target,
                                              const probe::Gossip& gossip,
                                              NodeRank node = PeerRig::kNode) {
    const auto outcome = std::make_shared<std::promise<Result<probe::ProbeTransport::Answer>>>();
    rig_->peers().Probe(node, target, gossip,
                        rig_->rig().clock().NowNs() + 20'000'000'000,
                        [outcome](const Result<probe::ProbeTransport::Answer>& answer) {
                          outcome->set_value(answer);
                        });
    return outcome->get_future().get();
  }

  LoneProber lone_;
  std::unique_ptr<PeerRig> rig_;
};

TEST_F(ProbeOverGrpcTest, ANodeAnswersAndRefutesWhatIsSaidOfIt) {
  Start(/*has_prober=*/true);
  const auto answer =
      Probe({}, {.incarnation = 2, .news = {{PeerRig::kNode, NodeState::kSuspected, 4}}});
  ASSERT_TRUE(answer.has_value()) << answer.error().ToString();
  EXPECT_TRUE(answer->has_answered);
  EXPECT_EQ(answer->gossip.incarnation, 5U);
}

// Ranks in news become indexes. A node that has joined has a link of its own rank, too.
TEST_F(ProbeOverGrpcTest, NewsOfANodeThatTheJobDoesNotHaveAreRefused) {
  Start(/*has_prober=*/true);
  const auto peers = GrpcPeers::Create(
      {.identity = PeerRig::AskingIdentity(),
       .addresses = {{NodeRank(0), "127.0.0.1:1"}, {PeerRig::kNode, rig_->address()}},
       .self = NodeRank(0)},
      rig_->rig().clock());
  ASSERT_TRUE(peers.has_value()) << peers.error().ToString();
  std::promise<Result<probe::ProbeTransport::Answer>> outcome;
  // The node that answers belongs to a job of three nodes.
  (*peers)->Probe(PeerRig::kNode, {}, {.news = {{NodeRank(2), NodeState::kSuspected, 4}}},
                  rig_->rig().clock().NowNs() + 20'000'000'000,
                  [&outcome](const Result<probe::ProbeTransport::Answer>& answer) {
                    outcome.set_value(answer);
                  });
  const auto answer = outcome.get_future().get();
  ASSERT_FALSE(answer.has_value()) << "with " << answer->gossip.news.size() << " pieces of news";
  EXPECT_EQ(answer.error().code(), ErrorCode::kInvalidArgument) << answer.error().ToString();
}

TEST_F(ProbeOverGrpcTest, ANodeTellsThatItDoesNotReachAnother) {
  Start(/*has_prober=*/true);
  const auto answer = Probe(NodeRank(0), {});
  ASSERT_TRUE(answer.has_value()) << answer.error().ToString();
  EXPECT_FALSE(answer->has_answered);
}

TEST_F(ProbeOverGrpcTest, ANodeThatIsStartingAnswers) {
  Start(/*has_prober=*/false);
  for (const std::optional<NodeRank> target : {std::optional<NodeRank>(), {NodeRank(0)}}) {
    const auto answer = Probe(target, SomeGossip());
    ASSERT_TRUE(answer.has_value()) << answer.error().ToString();
    EXPECT_FALSE(answer->has_answered) << "it does not supply anything yet";
    EXPECT_TRUE(answer->gossip.news.empty());
  }
}

TEST_F(ProbeOverGrpcTest, ANodeOfAnotherLaunchIsRefused) {
  Start(/*has_prober=*/true);
  PeerIdentity other = PeerRig::AskingIdentity();
  other.node_list_digest = 99;
  FOREBAY_EXPECT_OK(rig_->Connect(rig_->address(), other));
  const auto answer = Probe({}, {.news = {{PeerRig::kNode, NodeState::kDead, 4}}});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(lone_.prober().Hear(NodeRank(0), {}).incarnation, 0U) << "its news were not taken";
}

TEST_F(ProbeOverGrpcTest, ANodeThatIsGoneOrUnknownDoesNotAnswer) {
  Start(/*has_prober=*/true);
  rig_->StopServer();
  for (const NodeRank node : {PeerRig::kNode, NodeRank(9)}) {
    const auto answer = Probe({}, {}, node);
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code(), ErrorCode::kUnavailable);
  }
}

// Calls that wait for the GFS of the other node take no more streams than leave room for a probe.
TEST_F(ProbeOverGrpcTest, ANodeWhoseAnswersAllWaitForTheGfsAnswersProbes) {
  Start(/*has_prober=*/true);
  TcpRelay relay(rig_->address());
  FOREBAY_EXPECT_OK(rig_->Connect(relay.address()));
  PeerRig::Rows first = rig_->Ask({100});  // so that Hello has been said
  FOREBAY_EXPECT_OK(first.outcome.get());
  FOREBAY_EXPECT_OK(
      rig_->rig().cache().Evict(rig_->dataset().key(ExtentId(0)), std::nullopt));
  rig_->rig().gfs_faults.Arm(
      {.kind = io::FaultKind::kStall, .call = io::IoCall::kRead, .is_persistent = true});
  const std::uint64_t before = relay.asked_bytes();
  std::vector<PeerRig::Rows> asked;
  for (int i = 0; i < 2 * limits::kRpcStreamsPerConnectionMax; ++i) asked.push_back(rig_->Ask({0}));
  // 56 of them are on their way, with at least 40 bytes each.
  EXPECT_TRUE(relay.AwaitAsked(before + 56 * 40));
  const auto answer = Probe({}, {});
  EXPECT_TRUE(answer.has_value()) << answer.error().ToString();
  rig_->rig().gfs_faults.Disarm();
  rig_->rig().gfs_faults.ReleaseStalls();
  for (PeerRig::Rows& rows : asked) FOREBAY_EXPECT_OK(rows.outcome.get());
  rig_.reset();  // the relay is needed until then
}

// A node that stands still keeps its connections, and requests to it would wait for their deadline.
TEST_F(ProbeOverGrpcTest, RequestsToADeadNodeEndAsIfItHadNotAnswered) {
  Start(/*has_prober=*/true);
  TcpRelay relay(rig_->address());
  FOREBAY_EXPECT_OK(rig_->Connect(relay.address()));
  PeerRig::Rows first = rig_->Ask({0});
  FOREBAY_EXPECT_OK(first.outcome.get());
  relay.HoldAnswers(true);
  const std::uint64_t before = relay.asked_bytes();
  std::vector<PeerRig::Rows> asked;
  for (int i = 0; i < 2 * limits::kRpcStreamsPerConnectionMax; ++i) asked.push_back(rig_->Ask({1}));
  EXPECT_TRUE(relay.AwaitAsked(before + 40));
  rig_->peers().GiveUp(PeerRig::kNode);
  rig_->peers().GiveUp(NodeRank(9));  // a node without an address
  for (PeerRig::Rows& rows : asked) {
    const Status outcome = rows.outcome.get();
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code(), ErrorCode::kUnavailable) << outcome.error().ToString();
    // Those that were under way, and those that waited for their turn. A connection that gRPC finds
    // silent would be another error.
    EXPECT_THAT(outcome.error().message(),
                testing::AnyOf(HasSubstr("CANCELLED"), HasSubstr("Cancelled"),
                               HasSubstr("counts as dead")));
  }
  // It answers again, and is asked again.
  relay.HoldAnswers(false);
  PeerRig::Rows rows = rig_->Ask({1, 2});
  FOREBAY_EXPECT_OK(rows.outcome.get());
  EXPECT_TRUE(rig_->AreRight(rows));
  rig_.reset();  // the relay is needed until then
}

}  // namespace forebay::peer::probe_messages_test
