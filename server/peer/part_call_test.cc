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

class PartCallTest : public ::testing::Test {
 protected:
  PartCallTest() {
    auto made = PeerRig::Create({});
    EXPECT_TRUE(made.has_value());
    rig_ = std::move(*made);
    FOREBAY_EXPECT_OK(rig_->Connect(node_.address()));
  }
  Result<bool> Ask(std::vector<std::string> messages) {
    node_.Set(std::move(messages));
    const catalog::PlannedObject planned{.path = "a.tar", .bytes = 12'288};
    return rig_->peers().ReadPart({.node = PeerRig::kNode,
                                   .dataset = rig_->dataset(),
                                   .object = ObjectId(0),
                                   .planned = planned},
                                  part_);
  }
  void ExpectMalformed(std::vector<std::string> messages, const std::string& reason) {
    const Result<bool> answer = Ask(std::move(messages));
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
  EXPECT_TRUE(Take(Ask({Message(true, "ab"), Message(true, "c")})));
  std::vector<std::byte> bytes(part_.size());
  FOREBAY_EXPECT_OK(part_.Read(0, bytes));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "abc");
}

TEST_F(PartCallTest, APartThatIsNotThereYetHasNoBytes) {
  EXPECT_FALSE(Take(Ask({Message(false)})));
  EXPECT_EQ(part_.size(), 0U);
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
  EXPECT_TRUE(Take(Ask({Message(true, chunk)})));
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
  const Result<bool> answer = Ask({Message(false)});
  ASSERT_FALSE(answer.has_value());
  EXPECT_TRUE(stage::IsNoAnswer(answer.error())) << answer.error().ToString();
}

}  // namespace
}  // namespace forebay::peer
