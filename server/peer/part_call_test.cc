// A node asks another one for a catalog part and gets an answer that no node of this version sends.
// It reports this as an error of the answer, within the deadline, and never as silence.
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include "forebay/v1/peer.grpc.pb.h"
#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/peer/reply_stream.h"
#include "server/peer/testing/peer_rig.h"
#include "server/stage/extent_source.h"

namespace forebay::peer {
namespace {

using io::testing::Take;
using ::testing::HasSubstr;

// A node that agrees to Hello and answers every request for a part with the same messages.
class AnyAnswer final : public v1::Peer::WithRawCallbackMethod_CatalogPart<
                            v1::Peer::WithCallbackMethod_Hello<v1::Peer::Service>> {
 public:
  AnyAnswer() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = fmt::format("127.0.0.1:{}", port);
  }
  ~AnyAnswer() override { End(); }
  void End() {
    if (server_) server_->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC));
    server_.reset();
  }
  // To be called before the first request.
  void Set(std::vector<std::string> messages) { messages_ = std::move(messages); }
  const std::string& address() const { return address_; }

 private:
  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext* context,
                                  const v1::PeerHelloRequest*, v1::PeerHelloReply*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerWriteReactor<grpc::ByteBuffer>* CatalogPart(grpc::CallbackServerContext*,
                                                          const grpc::ByteBuffer*) override {
    const auto stream =
        std::make_shared<ReplyStream>([this](const std::shared_ptr<ReplyStream>& ended) {
          const MutexLock lock(mutex_);
          streams_.erase(ended);
        });
    {
      const MutexLock lock(mutex_);
      streams_.insert(stream);
    }
    stream->Send([this, next = std::size_t{0}](grpc::ByteBuffer& chunk) mutable {
      const grpc::Slice slice(messages_[next]);
      chunk = grpc::ByteBuffer(&slice, 1);
      return ++next == messages_.size();
    });
    return stream.get();
  }

  std::vector<std::string> messages_;
  Mutex mutex_;
  std::unordered_set<std::shared_ptr<ReplyStream>> streams_ FOREBAY_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

std::string Message(bool is_there, std::string payload = "") {
  v1::CatalogPartReply reply;
  reply.set_is_there(is_there);
  reply.set_payload(std::move(payload));
  return reply.SerializeAsString();
}

v1::CatalogPartReply FailureReply(ErrorCode code, std::string message, std::uint64_t age_ms,
                                  bool is_reported) {
  v1::CatalogPartReply reply;
  v1::PartFailure& failure = *reply.mutable_failure();
  failure.set_code(static_cast<std::uint32_t>(code));
  failure.set_message(std::move(message));
  failure.set_age_ms(age_ms);
  failure.set_is_reported(is_reported);
  return reply;
}

class PartCallTest : public ::testing::Test {
 protected:
  PartCallTest() {
    auto made = PeerRig::Create({});
    EXPECT_TRUE(made.has_value());
    rig_ = std::move(*made);
    FOREBAY_EXPECT_OK(rig_->Connect(node_.address()));
  }
  Result<stage::PartAnswer> Ask(std::vector<std::string> messages) {
    node_.Set(std::move(messages));
    const catalog::PlannedObject planned{.path = "a.tar", .bytes = 12'288};
    return rig_->peers().ReadPart({.node = PeerRig::kNode,
                                   .dataset = rig_->dataset(),
                                   .object = ObjectId(0),
                                   .planned = planned},
                                  part_);
  }
  void ExpectMalformed(std::vector<std::string> messages, const std::string& reason) {
    const Result<stage::PartAnswer> answer = Ask(std::move(messages));
    ASSERT_FALSE(answer.has_value()) << reason;
    EXPECT_EQ(answer.error().code(), ErrorCode::kInternal) << answer.error().ToString();
    EXPECT_THAT(answer.error().message(), HasSubstr("node " + node_.address()));
    EXPECT_THAT(answer.error().message(), HasSubstr(reason));
    part_.Clear();
  }

  AnyAnswer node_;
  std::unique_ptr<PeerRig> rig_;
  catalog::TableSpool part_{{}};
};

TEST_F(PartCallTest, ChunksArriveInOrder) {
  EXPECT_TRUE(Take(Ask({Message(true, "ab"), Message(true, "c")})).is_there);
  std::vector<std::byte> bytes(part_.size());
  FOREBAY_EXPECT_OK(part_.Read(0, bytes));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "abc");
}

TEST_F(PartCallTest, APartThatIsNotThereYetHasNoBytes) {
  const stage::PartAnswer answer = Take(Ask({Message(false)}));
  EXPECT_FALSE(answer.is_there);
  EXPECT_FALSE(answer.failure.has_value());
  EXPECT_EQ(part_.size(), 0U);
}

TEST_F(PartCallTest, AFailureNamesTheNodeThatHasFoundIt) {
  const auto failure_of = [this](const v1::CatalogPartReply& reply) {
    const stage::PartAnswer answer = Take(Ask({reply.SerializeAsString()}));
    EXPECT_FALSE(answer.is_there);
    return answer.failure.value();
  };
  const auto own = failure_of(FailureReply(ErrorCode::kDataLoss, "cut", 7, false));
  EXPECT_EQ(own.error.code(), ErrorCode::kDataLoss);
  EXPECT_EQ(own.error.message(), "node " + node_.address() + ": cut");
  EXPECT_EQ(own.age_ns, 7'000'000);
  EXPECT_FALSE(own.is_reported);
  const auto reported = failure_of(FailureReply(ErrorCode::kAborted, "node b:1: no", 0, true));
  EXPECT_EQ(reported.error.message(), "node b:1: no") << "named already";
  EXPECT_TRUE(reported.is_reported);
  const std::string longest(2 * limits::kPeerErrorBytesMax, '\n');
  const auto hostile = failure_of(FailureReply(ErrorCode::kUnknown, longest, ~0ULL, true));
  EXPECT_EQ(hostile.age_ns, 86'400'000'000'000) << "no more than a day";
  // Each byte that is not printable takes four characters.
  EXPECT_EQ(hostile.error.message().size(), 4 * limits::kPeerErrorBytesMax);
  EXPECT_EQ(hostile.error.message().find('\n'), std::string::npos);
}

TEST_F(PartCallTest, AFailureThatContradictsTheRestOfTheAnswerIsRefused) {
  v1::CatalogPartReply reply = FailureReply(ErrorCode::kDataLoss, "cut", 0, false);
  const std::string failure = reply.SerializeAsString();
  ExpectMalformed({failure, failure}, "follows the end");
  ExpectMalformed({failure, Message(true, "x")}, "follows the end");
  ExpectMalformed({Message(true, "x"), failure}, "follows the end");
  reply.set_is_there(true);
  ExpectMalformed({reply.SerializeAsString()}, "wrongly why");
  reply.set_payload("x");
  ExpectMalformed({reply.SerializeAsString()}, "wrongly why");
  reply.set_is_there(false);
  ExpectMalformed({reply.SerializeAsString()}, "wrongly why");
  // Codes that there are not, and those of a node that has no answer.
  for (const std::uint32_t code : {0U, 17U, 1U << 31, 1U, 4U, 14U}) {
    reply = FailureReply(ErrorCode::kDataLoss, "cut", 0, false);
    reply.mutable_failure()->set_code(code);
    ExpectMalformed({reply.SerializeAsString()}, "wrongly why");
  }
}

TEST_F(PartCallTest, AnswersThatContradictThemselvesAreRefused) {
  ExpectMalformed({Message(false, "x")}, "not there yet");
  ExpectMalformed({Message(true)}, "no bytes");
  ExpectMalformed({Message(true, "x"), Message(true)}, "no bytes");
  ExpectMalformed({Message(true, "x"), Message(false)}, "follows the end");
  ExpectMalformed({Message(false), Message(true, "x")}, "follows the end");
}

TEST_F(PartCallTest, AChunkThatIsTooLongIsRefused) {
  const std::string chunk(limits::kPeerChunkBytes, 'x');
  EXPECT_TRUE(Take(Ask({Message(true, chunk)})).is_there);
  part_.Clear();
  ExpectMalformed({Message(true, chunk + "x")}, "too long");
}

TEST_F(PartCallTest, AMessageThatIsNoneIsRefused) {
  ExpectMalformed({"\x22\xFF"}, "no part of a catalog");
}

TEST_F(PartCallTest, WhatFollowsAMessageThatIsNoneIsNotWaitedFor) {
  // The chunks are more than gRPC receives before somebody reads.
  const std::string chunk = Message(true, std::string(limits::kPeerChunkBytes, 'x'));
  ExpectMalformed({"\x22\xFF", chunk, chunk, chunk, chunk, chunk, chunk, chunk, chunk},
                  "no part of a catalog");
}

TEST_F(PartCallTest, ANodeThatIsGoneDoesNotAnswer) {
  node_.End();
  const Result<stage::PartAnswer> answer = Ask({Message(false)});
  ASSERT_FALSE(answer.has_value());
  EXPECT_TRUE(stage::IsNoAnswer(answer.error())) << answer.error().ToString();
}

}  // namespace
}  // namespace forebay::peer
