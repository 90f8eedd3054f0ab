// A node tells another one that a node leaves the job, or that it has finished: what is read is
// what was written, and the answer is what the daemon of that node says.
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "forebay/v1/peer.grpc.pb.h"
#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/peer/channel_settings.h"
#include "server/peer/peer_identity.h"
#include "server/peer/member_requests.h"
#include "server/peer/testing/lone_prober.h"
#include "server/peer/testing/peer_rig.h"

namespace forebay::peer::leave_call_test {

using ::testing::HasSubstr;

constexpr std::size_t kNodes = 2;

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

TEST(LeaveMessagesTest, ARequestIsReadAsItWasWritten) {
  const auto read = ParseLeaveAsked(
      WriteRequest(LeaveAsked{
          .identity = 5, .node = NodeRank(1), .time_ms = limits::kLeaveMsMax}),
      kNodes);
  ASSERT_TRUE(read.has_value()) << read.error().ToString();
  EXPECT_EQ(read->identity, 5U);
  EXPECT_EQ(read->node, NodeRank(1));
  EXPECT_EQ(read->time_ms, limits::kLeaveMsMax);
}

TEST(LeaveMessagesTest, AnAnswerIsReadAsItWasWritten) {
  for (const LeaveAnswer& answer : {LeaveAnswer{}, LeaveAnswer{.has_taken_over = true},
                                    LeaveAnswer{.has_left_out = true}}) {
    EXPECT_EQ(ParseLeaveReply(WriteLeaveReply(answer)).value(), answer);
  }
}

TEST(LeaveMessagesTest, WhatCannotBeIsRefused) {
  v1::LeaveRequest no_such_node, no_time, too_long;
  no_such_node.set_node(kNodes);
  no_such_node.set_time_ms(1);
  no_time.set_time_ms(0);
  too_long.set_time_ms(limits::kLeaveMsMax + 1);
  for (const v1::LeaveRequest& message : {no_such_node, no_time, too_long}) {
    const auto read = ParseLeaveAsked(BufferOf(message.SerializeAsString()), kNodes);
    ASSERT_FALSE(read.has_value()) << message.ShortDebugString();
    EXPECT_EQ(read.error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(ParseLeaveAsked(BufferOf("no message"), kNodes).has_value());
  EXPECT_FALSE(ParseLeaveReply(BufferOf("no message")).has_value());
}

class LeaveOverGrpcTest : public testing::Test {
 protected:
  // The node that answers (rank 1 of 2), and the one that asks (rank 0).
  void Start(std::function<Result<LeaveAnswer>(NodeRank, std::int64_t)> leave) {
    auto made = PeerRig::Create({.serves = false});
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    rig_ = std::move(*made);
    rig_->prober = &lone_.prober();
    rig_->leave = std::move(leave);
    FOREBAY_EXPECT_OK(rig_->Serve());
    FOREBAY_EXPECT_OK(rig_->Connect(rig_->address()));
  }
  Result<LeaveAnswer> Leave(NodeRank node, NodeRank to = PeerRig::kNode) {
    const auto outcome = std::make_shared<std::promise<Result<LeaveAnswer>>>();
    rig_->peers().Leave(to, node, 60'000, rig_->rig().clock().NowNs() + 20'000'000'000,
                        [outcome](const Result<LeaveAnswer>& told) { outcome->set_value(told); });
    return outcome->get_future().get();
  }

  LoneProber lone_;
  std::unique_ptr<PeerRig> rig_;
};

TEST_F(LeaveOverGrpcTest, TheAnswerIsThatOfTheNode) {
  std::vector<std::pair<NodeRank, std::int64_t>> heard;
  LeaveAnswer answer;
  Start([&](NodeRank node, std::int64_t time_ms) -> Result<LeaveAnswer> {
    heard.emplace_back(node, time_ms);
    if (node == PeerRig::kNode) return Error(ErrorCode::kFailedPrecondition, "it stays");
    return answer;
  });
  EXPECT_EQ(Leave(NodeRank(0)).value(), LeaveAnswer{});
  answer = {.has_taken_over = true, .has_left_out = true};
  EXPECT_EQ(Leave(NodeRank(0)).value(), answer);
  const auto refused = Leave(PeerRig::kNode);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(), HasSubstr("it stays"));
  ASSERT_EQ(heard.size(), 3U);
  EXPECT_EQ(heard[0], std::pair(NodeRank(0), std::int64_t{60'000}));
  EXPECT_EQ(heard[2].first, PeerRig::kNode);
}

TEST_F(LeaveOverGrpcTest, ANodeOfAnotherLaunchIsRefused) {
  Start([](NodeRank, std::int64_t) -> Result<LeaveAnswer> {
    ADD_FAILURE() << "it was believed";
    return LeaveAnswer{};
  });
  PeerIdentity other = PeerRig::AskingIdentity();
  other.node_list_digest = 99;
  FOREBAY_EXPECT_OK(rig_->Connect(rig_->address(), other));
  const auto refused = Leave(NodeRank(0));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(), HasSubstr("another launch"));
}

TEST_F(LeaveOverGrpcTest, ANodeThatIsStartingGoneOrUnknownDoesNotAnswer) {
  Start(nullptr);
  EXPECT_EQ(Leave(NodeRank(0)).error().code(), ErrorCode::kUnavailable);
  rig_->StopServer();
  EXPECT_EQ(Leave(NodeRank(0)).error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(Leave(NodeRank(0), NodeRank(9)).error().code(), ErrorCode::kUnavailable);
}

// A ping in which a node says whether it has finished.
class FinishedOverGrpcTest : public LeaveOverGrpcTest {
 protected:
  void SetUp() override {
    rig_ = std::move(*PeerRig::Create({.serves = false}));
    rig_->prober = &lone_.prober();
    rig_->note_finished = [this](NodeRank node, bool has_finished) {
      heard_.emplace_back(node, has_finished);
    };
    FOREBAY_EXPECT_OK(rig_->Serve());
  }
  Result<NodeReport> Ping(std::optional<bool> has_finished) {
    const auto outcome = std::make_shared<std::promise<Result<NodeReport>>>();
    rig_->peers().Ping(PeerRig::kNode, rig_->rig().clock().NowNs() + 20'000'000'000,
                       [outcome](Result<NodeReport> report) { outcome->set_value(report); },
                       has_finished);
    return outcome->get_future().get();
  }

  std::vector<std::pair<NodeRank, bool>> heard_;
};

TEST_F(FinishedOverGrpcTest, ThePingSaysWhoHasFinished) {
  FOREBAY_EXPECT_OK(rig_->Connect(rig_->address()));
  EXPECT_TRUE(Ping(std::nullopt).has_value());
  EXPECT_TRUE(heard_.empty());
  EXPECT_TRUE(Ping(true).has_value());
  EXPECT_TRUE(Ping(false).has_value());
  EXPECT_EQ(heard_, (std::vector<std::pair<NodeRank, bool>>{{NodeRank(0), true},
                                                            {NodeRank(0), false}}));
}

TEST_F(FinishedOverGrpcTest, ANodeOfAnotherLaunchIsNotBelieved) {
  PeerIdentity other = PeerRig::AskingIdentity();
  other.node_list_digest = 99;
  FOREBAY_EXPECT_OK(rig_->Connect(rig_->address(), other));
  const auto refused = Ping(true);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(heard_.empty());
}

TEST_F(FinishedOverGrpcTest, ARankThatDoesNotExistIsRefused) {
  v1::PingRequest request;
  request.mutable_sender()->set_identity(DigestOf(PeerRig::AskingIdentity()));
  request.mutable_sender()->set_node(LoneProber::kNodes);
  v1::PingReply reply;
  const auto stub = v1::Peer::NewStub(ConnectionTo(rig_->address(), {}));
  grpc::ClientContext context;
  EXPECT_EQ(stub->Ping(&context, request, &reply).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(heard_.empty());
}

}  // namespace forebay::peer::leave_call_test
