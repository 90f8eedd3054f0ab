// Requests to borrow a part of another node's share of the job's caps: what is read is what was
// written, anything else is refused by both sides, and a node lends what it does not need.
#include <cstdint>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "forebay/v1/peer.pb.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/peer/member_requests.h"
#include "server/peer/testing/lone_prober.h"
#include "server/peer/testing/peer_rig.h"

namespace forebay::peer::borrow_messages_test {

using stage::CapRates;
using stage::ShareAnswer;
using stage::ShareAsk;

constexpr std::size_t kNodes = 3;

grpc::ByteBuffer BufferOf(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

TEST(BorrowMessagesTest, ARequestAndAnAnswerAreReadAsTheyWereWritten) {
  const CapRates rates = {12.5e6, 0.006};
  const auto asked = ParseBorrowAsked(
      WriteRequest(BorrowAsked{.identity = 5, .from = NodeRank(2), .ask = {.wanted = rates}}),
      kNodes);
  ASSERT_TRUE(asked.has_value()) << asked.error().ToString();
  EXPECT_EQ(asked->identity, 5U);
  EXPECT_EQ(asked->from, NodeRank(2));
  EXPECT_EQ(asked->ask, (ShareAsk{.wanted = rates}));
  const ShareAsk for_lease{.lease = NodeRank(1)};
  EXPECT_EQ(ParseBorrowAsked(WriteRequest(BorrowAsked{.ask = for_lease}), kNodes)->ask, for_lease);
  const ShareAsk for_requests{.requests = {.wanted = 7, .held = 3, .held_as_heir = 2}};
  EXPECT_EQ(ParseBorrowAsked(WriteRequest(BorrowAsked{.ask = for_requests}), kNodes)->ask,
            for_requests);
  for (const ShareAnswer& answer : {ShareAnswer{.lent = rates}, ShareAnswer{.is_leased = true},
                                    ShareAnswer{.requests = 4}}) {
    EXPECT_EQ(ParseBorrowReply(WriteBorrowReply(answer)), answer);
  }
}

TEST(BorrowMessagesTest, WhatCannotBeIsRefused) {
  for (const double rate : {-1.0, std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity()}) {
    v1::BorrowRequest request;
    request.set_opens_per_s(rate);
    EXPECT_EQ(ParseBorrowAsked(BufferOf(request), kNodes).error().code(),
              ErrorCode::kInvalidArgument);
    v1::BorrowReply reply;
    reply.set_bytes_per_s(rate);
    EXPECT_EQ(ParseBorrowReply(BufferOf(reply)).error().code(), ErrorCode::kInvalidArgument);
  }
  v1::BorrowRequest of_nobody;
  of_nobody.set_from(kNodes);
  v1::BorrowRequest for_nobody;
  for_nobody.set_lease(kNodes);
  for (const v1::BorrowRequest& request : {of_nobody, for_nobody}) {
    EXPECT_EQ(ParseBorrowAsked(BufferOf(request), kNodes).error().code(),
              ErrorCode::kInvalidArgument);
  }
}

class BorrowOverGrpcTest : public testing::Test {
 protected:
  // The node that answers (rank 1), with caps or not, and the one that asks (rank 0).
  void Start(bool has_caps, std::uint32_t node_count = 2) {
    throttle_.Begin({.caps = {8e6, 0},
                     .requests = 8,
                     .node_requests_max = 8,
                     .node_count = node_count,
                     .self = PeerRig::kNode});
    // It has needed nothing for two seconds, so it lends.
    for (int i = 0; i < 2; ++i) {
      manual_.AdvanceNs(1'000'000'000);
      throttle_.Tick([](NodeRank) { return true; });
    }
    auto made = PeerRig::Create({.serves = false});
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    rig_ = std::move(*made);
    rig_->prober = &lone_.prober();
    rig_->throttle = has_caps ? &throttle_ : nullptr;
    FOREBAY_EXPECT_OK(rig_->Serve());
    FOREBAY_EXPECT_OK(rig_->Connect(rig_->address()));
  }
  Result<ShareAnswer> Ask(const ShareAsk& ask, NodeRank node = PeerRig::kNode) {
    const auto outcome = std::make_shared<std::promise<Result<ShareAnswer>>>();
    rig_->peers().Borrow(
        node, ask, rig_->rig().clock().NowNs() + 20'000'000'000,
        [outcome](const Result<ShareAnswer>& answer) { outcome->set_value(answer); });
    return outcome->get_future().get();
  }
  Result<CapRates> Borrow(const CapRates& wanted, NodeRank lender = PeerRig::kNode) {
    FOREBAY_ASSIGN(const ShareAnswer answer, Ask({.wanted = wanted}, lender));
    return answer.lent;
  }

  io::ManualClock manual_;
  stage::GfsThrottle throttle_{manual_};
  LoneProber lone_;
  std::unique_ptr<PeerRig> rig_;
};

TEST_F(BorrowOverGrpcTest, ANodeLendsWhatItDoesNotNeedAndDoesWithoutIt) {
  Start(/*has_caps=*/true);
  EXPECT_EQ(Borrow({1e6, 7}), (CapRates{1e6, 0}));
  EXPECT_EQ(throttle_.figures(stage::Cap::kBytes).rate, 3e6);
}

TEST_F(BorrowOverGrpcTest, ANodeLendsRequestsThatItDoesNotNeed) {
  Start(/*has_caps=*/true);
  EXPECT_EQ(Ask({.requests = {.wanted = 2}}), (ShareAnswer{.requests = 2}));
  EXPECT_EQ(throttle_.request_figures().lent, 2U);
  EXPECT_EQ(throttle_.request_figures().now, 2U);
}

TEST_F(BorrowOverGrpcTest, AWitnessGrantsTheLeaseOfTheShareThatItWitnesses) {
  Start(/*has_caps=*/true, /*node_count=*/3);
  EXPECT_EQ(Ask({.lease = NodeRank(0)}), (ShareAnswer{.is_leased = true}));
  EXPECT_EQ(Ask({.lease = PeerRig::kNode}), ShareAnswer{}) << "its own share";
}

TEST_F(BorrowOverGrpcTest, ANodeWithoutCapsOrThatIsGoneLendsNothing) {
  Start(/*has_caps=*/false);
  EXPECT_EQ(Borrow({1e6, 0}).error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(Borrow({1e6, 0}, NodeRank(9)).error().code(), ErrorCode::kUnavailable);
  rig_->StopServer();
  EXPECT_EQ(Borrow({1e6, 0}).error().code(), ErrorCode::kUnavailable);
}

TEST_F(BorrowOverGrpcTest, ANodeOfAnotherLaunchGetsNothing) {
  Start(/*has_caps=*/true);
  PeerIdentity other = PeerRig::AskingIdentity();
  other.node_list_digest = 99;
  FOREBAY_EXPECT_OK(rig_->Connect(rig_->address(), other));
  EXPECT_EQ(Borrow({1e6, 0}).error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(throttle_.figures(stage::Cap::kBytes).rate, 4e6);
}

}  // namespace forebay::peer::borrow_messages_test
