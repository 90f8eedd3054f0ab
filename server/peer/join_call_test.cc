// A node joins a job that runs: what is read is what was written, the answer is what the daemon of
// the node that is asked says, and a node of another job gets none.
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "forebay/v1/peer.pb.h"
#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/peer/job_certificates.h"
#include "server/peer/member_requests.h"
#include "server/peer/testing/peer_rig.h"
#include "server/stage/extent_source.h"

namespace forebay::peer::join_call_test {

using io::testing::Take;
using ::testing::HasSubstr;

constexpr std::size_t kEntryBytesMax = 64 * 1024;

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::vector<std::byte> Bytes(std::size_t count) { return io::testing::Pattern(count, 7); }

// All values differ from those that a message has by default.
PeerIdentity SomeIdentity() {
  return {.address = "127.0.0.1:7",
          .protocol_version = 3,
          .order_version = 4,
          .catalog_version = 5,
          .job_id = "job 8",
          .config_digest = 6,
          .node_list_digest = ~std::uint64_t{0}};
}

v1::JoinRequest GoodRequest() {
  v1::JoinRequest message;
  WriteHello(SomeIdentity(), *message.mutable_hello());
  message.set_node("an entry");
  return message;
}

v1::JoinReply GoodReply() {
  v1::JoinReply message;
  message.set_nodes("a list");
  message.set_node_count(300);
  message.add_free(0);
  message.add_free(299);
  return message;
}

TEST(JoinMessagesTest, ARequestIsReadAsItWasWritten) {
  const JoinAsked written{.node = SomeIdentity(),
                          .entry = Bytes(kEntryBytesMax),
                          .takes_place = true,
                          .first = limits::kNodeCountMax - 1};
  const auto read = ParseJoinAsked(WriteRequest(written));
  ASSERT_TRUE(read.has_value()) << read.error().ToString();
  EXPECT_EQ(read->entry, written.entry);
  EXPECT_TRUE(read->takes_place);
  EXPECT_EQ(read->first, written.first);
  EXPECT_EQ(read->node.address, written.node.address);
  EXPECT_EQ(DigestOf(read->node), DigestOf(written.node));
}

TEST(JoinMessagesTest, AnAnswerIsReadAsItWasWritten) {
  for (const JoinAnswer& answer :
       {JoinAnswer{},
        JoinAnswer{.nodes = Bytes(limits::kJoinPageBytes), .node_count = limits::kNodeCountMax},
        JoinAnswer{.nodes = Bytes(1), .node_count = 1, .free = {NodeRank(0)}},
        JoinAnswer{.nodes = Bytes(9), .node_count = 9, .free = {NodeRank(2), NodeRank(8)}}}) {
    const auto read = ParseJoinReply(WriteJoinReply(answer));
    ASSERT_TRUE(read.has_value()) << read.error().ToString();
    EXPECT_EQ(*read, answer);
  }
}

TEST(JoinMessagesTest, RequestsThatCannotBeAreRefused) {
  ASSERT_TRUE(ParseJoinAsked(BufferOf(GoodRequest().SerializeAsString())).has_value());
  struct Case {
    std::function<void(v1::JoinRequest&)> change;
    const char* why;
  };
  const Case cases[] = {
      {[](auto& message) { message.clear_node(); }, "an entry of 0 bytes"},
      {[](auto& message) { message.set_node(std::string(kEntryBytesMax + 1, 'x')); },
       "an entry of 65537 bytes"},
      {[](auto& message) { message.set_first(limits::kNodeCountMax); }, "from rank 65536 on"},
      {[](auto& message) { message.clear_hello(); }, "an address of 0 bytes"},
      {[](auto& message) {
         message.mutable_hello()->set_address(std::string(limits::kPeerAddressBytesMax + 1, '1'));
       },
       "an address of 301 bytes"},
      {[](auto& message) {
         message.mutable_hello()->set_job_id(std::string(limits::kJobIdBytesMax + 1, 'j'));
       },
       "a job's name of 65"},
  };
  for (const Case& c : cases) {
    v1::JoinRequest message = GoodRequest();
    c.change(message);
    const auto read = ParseJoinAsked(BufferOf(message.SerializeAsString()));
    ASSERT_FALSE(read.has_value()) << c.why;
    EXPECT_EQ(read.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(read.error().message(), HasSubstr(c.why));
  }
  EXPECT_FALSE(ParseJoinAsked(BufferOf("no message")).has_value());
}

TEST(JoinMessagesTest, AnswersThatCannotBeAreRefused) {
  ASSERT_TRUE(ParseJoinReply(BufferOf(GoodReply().SerializeAsString())).has_value());
  struct Case {
    std::function<void(v1::JoinReply&)> change;
    const char* why;
  };
  const Case cases[] = {
      {[](auto& message) { message.set_node_count(0); }, "a job of 0 nodes"},
      {[](auto& message) { message.clear_nodes(); }, "0 bytes of nodes"},
      {[](auto& message) { message.set_node_count(limits::kNodeCountMax + 1); },
       "a job of 65537 nodes"},
      {[](auto& message) { message.set_node_count(299); }, "free place 299 of 299"},
      {[](auto& message) { message.add_free(299); }, "free place 299 of 300, or does not name"},
      {[](auto& message) { message.add_free(5); }, "free place 5 of 300, or does not name"},
      {[](auto& message) {
         message.set_node_count(0);
         message.clear_nodes();
       },
       "free place 0 of 0"},
  };
  for (const Case& c : cases) {
    v1::JoinReply message = GoodReply();
    c.change(message);
    const auto read = ParseJoinReply(BufferOf(message.SerializeAsString()));
    ASSERT_FALSE(read.has_value()) << c.why;
    EXPECT_EQ(read.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(read.error().message(), HasSubstr(c.why));
  }
  EXPECT_FALSE(ParseJoinReply(BufferOf("no message")).has_value());
}

class JoinOverGrpcTest : public ::testing::Test {
 protected:
  using Asked = std::vector<JoinAsked>;

  // The node that is asked answers with answer_, or with refusal_, and notes what it was asked.
  void Start(const NodeCertificates& certificates = {}) {
    rig_ = Take(PeerRig::Create({.serves = false, .certificates = certificates}));
    rig_->join = [this](const JoinAsked& asked) -> Result<JoinAnswer> {
      asked_.push_back(asked);
      if (refusal_) return *refusal_;
      return answer_;
    };
    FOREBAY_EXPECT_OK(rig_->Serve());
  }
  Result<JoinAnswer> Join(const PeerIdentity& identity, JoinAsked asked = {.entry = Bytes(9)},
                          const NodeCertificates& certificates = {},
                          NodeRank to = PeerRig::kNode) {
    FOREBAY_EXPECT_OK(rig_->Connect(rig_->address(), identity, certificates));
    const auto outcome = std::make_shared<std::promise<Result<JoinAnswer>>>();
    rig_->peers().Join(to, std::move(asked), rig_->rig().clock().NowNs() + 20'000'000'000,
                       [outcome](const Result<JoinAnswer>& joined) {
                         outcome->set_value(joined);
                       });
    return outcome->get_future().get();
  }
  void ExpectRefused(const Result<JoinAnswer>& joined, ErrorCode code, const std::string& why) {
    ASSERT_FALSE(joined.has_value()) << why;
    EXPECT_EQ(joined.error().code(), code) << joined.error().ToString();
    EXPECT_THAT(joined.error().message(), HasSubstr(why));
    EXPECT_TRUE(asked_.empty()) << why;
  }

  JoinAnswer answer_{.nodes = Bytes(300), .node_count = 7, .free = {NodeRank(3), NodeRank(6)}};
  std::optional<Error> refusal_;
  Asked asked_;
  std::unique_ptr<PeerRig> rig_;
};

TEST_F(JoinOverGrpcTest, ANodeThatDoesNotKnowTheListIsAnswered) {
  Start();
  PeerIdentity identity = PeerRig::AskingIdentity();
  identity.node_list_digest = 99;
  const auto joined = Join(identity, {.entry = Bytes(500), .first = 4});
  ASSERT_TRUE(joined.has_value()) << joined.error().ToString();
  EXPECT_EQ(*joined, answer_);
  ASSERT_EQ(asked_.size(), 1U);
  EXPECT_EQ(asked_[0].entry, Bytes(500));
  EXPECT_EQ(asked_[0].first, 4U);
  EXPECT_FALSE(asked_[0].takes_place);
  EXPECT_EQ(asked_[0].node.address, identity.address);
  EXPECT_EQ(DigestOf(asked_[0].node), DigestOf(identity));
}

TEST_F(JoinOverGrpcTest, ANodeThatKnowsTheListMayTakeAPlace) {
  Start();
  answer_ = {};
  const auto joined =
      Join(PeerRig::AskingIdentity(), {.entry = Bytes(500), .takes_place = true});
  ASSERT_TRUE(joined.has_value()) << joined.error().ToString();
  EXPECT_EQ(*joined, JoinAnswer{});
  ASSERT_EQ(asked_.size(), 1U);
  EXPECT_TRUE(asked_[0].takes_place);
}

TEST_F(JoinOverGrpcTest, WhatTheDaemonRefusesIsRefused) {
  Start();
  refusal_ = Error(ErrorCode::kFailedPrecondition, "the place is taken");
  const auto refused = Join(PeerRig::AskingIdentity());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(), HasSubstr("the place is taken"));
}

TEST_F(JoinOverGrpcTest, EachValueOfTheIdentityIsCompared) {
  Start();
  struct Case {
    std::function<void(PeerIdentity&)> change;
    const char* what;
  };
  const Case cases[] = {
      {[](PeerIdentity& identity) { identity.protocol_version = 1'000; }, "protocol version"},
      {[](PeerIdentity& identity) { identity.order_version = 1'000; }, "order version"},
      {[](PeerIdentity& identity) { identity.catalog_version = 1'000; }, "catalog version"},
      {[](PeerIdentity& identity) { identity.job_id = "another"; }, "job 'job'"},
      {[](PeerIdentity& identity) { identity.config_digest = 1; }, "configuration digest"},
  };
  for (const Case& c : cases) {
    PeerIdentity identity = PeerRig::AskingIdentity();
    c.change(identity);
    for (const bool takes_place : {false, true}) {
      const auto joined = Join(identity, {.entry = Bytes(1), .takes_place = takes_place});
      ExpectRefused(joined, ErrorCode::kFailedPrecondition, c.what);
    }
  }
  PeerIdentity of_another_list = PeerRig::AskingIdentity();
  of_another_list.node_list_digest = 99;
  ExpectRefused(Join(of_another_list, {.entry = Bytes(1), .takes_place = true}),
                ErrorCode::kFailedPrecondition, "node list digest");
}

TEST_F(JoinOverGrpcTest, MalformedMessagesAreRefused) {
  Start();
  ExpectRefused(Join(PeerRig::AskingIdentity(), {}), ErrorCode::kInvalidArgument,
                "an entry of 0 bytes");
  answer_.free = {NodeRank(6), NodeRank(3)};
  const auto joined = Join(PeerRig::AskingIdentity());
  ASSERT_FALSE(joined.has_value());
  EXPECT_EQ(joined.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(joined.error().message(), HasSubstr(rig_->address()));
}

TEST_F(JoinOverGrpcTest, ANodeThatIsStartingGoneOrUnknownDoesNotAnswer) {
  rig_ = Take(PeerRig::Create({.serves = false}));
  ExpectRefused(Join(PeerRig::AskingIdentity()), ErrorCode::kUnavailable, "does not serve yet");
  FOREBAY_EXPECT_OK(rig_->Serve());  // with a daemon that nodes cannot join
  ExpectRefused(Join(PeerRig::AskingIdentity()), ErrorCode::kUnavailable, "no node can join");
  ExpectRefused(Join(PeerRig::AskingIdentity(), {.entry = Bytes(1)}, {}, NodeRank(9)),
                ErrorCode::kUnavailable, "node 9 has no address");
  const std::string address = rig_->address();
  FOREBAY_EXPECT_OK(rig_->Connect(address));
  rig_->StopServer();
  std::promise<Result<JoinAnswer>> outcome;
  rig_->peers().Join(PeerRig::kNode, {.entry = Bytes(1)},
                     rig_->rig().clock().NowNs() + 20'000'000'000,
                     [&outcome](const Result<JoinAnswer>& joined) { outcome.set_value(joined); });
  ExpectRefused(outcome.get_future().get(), ErrorCode::kUnavailable, address);
}

// Clients may not join either (encrypted_peers_test.cc).
TEST_F(JoinOverGrpcTest, OnlyANodeWithTheSecretOfTheJobMayJoin) {
  const auto certificates = [](char secret) {
    constexpr std::int64_t kDayS = 86'400;
    const std::int64_t now_s = std::time(nullptr);
    return Take(MakeNodeCertificates(std::string(kJobSecretBytesMin, secret), "job",
                                     {.from_s = now_s - kDayS, .until_s = now_s + kDayS}));
  };
  Start(certificates('a'));
  for (const NodeCertificates& wrong : {certificates('b'), NodeCertificates{}}) {
    const auto joined = Join(PeerRig::AskingIdentity(), {.entry = Bytes(1)}, wrong);
    ASSERT_FALSE(joined.has_value());
    EXPECT_TRUE(stage::IsNoAnswer(joined.error())) << joined.error().ToString();
  }
  EXPECT_TRUE(asked_.empty());
  EXPECT_TRUE(
      Join(PeerRig::AskingIdentity(), {.entry = Bytes(1)}, certificates('a')).has_value());
}

}  // namespace forebay::peer::join_call_test
