// A stream whose daemon is gone goes on at another node's, with the same batches in the same order.
#include <atomic>
#include <cstdint>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/other_node_fixture.h"
#include "forebay/v1/data.pb.h"
#include "proto/contract/wire_layout.h"

namespace forebay::other_node_test {

using testing::FakeDaemon;
using testing::FakeStream;
using testing::HasItsBytes;
using testing::kSteps;
using testing::kStrangeClient;
using testing::kTestClient;
using testing::LongStream;
using testing::Open;
using testing::OtherNodeTest;
using testing::SilentNode;
using testing::Soon;
using ::testing::HasSubstr;

TEST_F(OtherNodeTest, TheStreamGoesOnThereAndSaysSoOnce) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, FakeStream(4));
  const std::optional<Batch> held = Take(*stream);
  ReadOn(*stream, 10);
  EXPECT_EQ(stream->stats().other_node_batches, 0U);
  std::atomic<int> opened = 0;
  other_.faults.open_seen = [&opened](const v1::OpenStream& open) {
    ++opened;
    EXPECT_FALSE(open.wait_for_catalog()) << "a node that must wait for it is passed over";
  };
  home_.Stop();
  ReadToEnd(*stream);
  EXPECT_TRUE(HasItsBytes(*held)) << "in the memory of the daemon that is gone";
  const StreamStats stats = stream->stats();
  EXPECT_EQ(stats.batches, kSteps);
  EXPECT_EQ(stats.reconnects, 1U);
  EXPECT_EQ(opened, 1);
  // Some had arrived before.
  EXPECT_GE(stats.other_node_batches, kSteps - 10 - 4);
  EXPECT_EQ(other_.counters.bad_releases, 0U);
  EXPECT_EQ(other_.counters.credit_breaches, 0U);
  ASSERT_EQ(notices_.size(), 1U);
  EXPECT_THAT(notices_[0], HasSubstr(home_.address() + " does not answer"));
  EXPECT_THAT(notices_[0], HasSubstr(other_.node_address()));
}

TEST_F(OtherNodeTest, ADaemonThatHasRemovedItsSocketIsNotWaitedFor) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect(/*other_node_after_ms=*/3'600'000);
  const auto stream = Open(*client, FakeStream(4));
  ReadOn(*stream, 10);
  home_.Stop();
  ReadToEnd(*stream);
  EXPECT_GT(stream->stats().other_node_batches, 0U);
}

TEST_F(OtherNodeTest, PullAsksThereToo) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, FakeStream(2));
  home_.Stop();
  const auto batch = stream->Pull({.epoch = EpochId(2), .step = StepId(7)});
  ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
  EXPECT_TRUE(HasItsBytes(*batch));
  EXPECT_EQ(stream->stats().other_node_batches, 1U);
}

TEST_F(OtherNodeTest, ItGoesBackWhenItsDaemonIsThereAgain) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, LongStream());
  ReadOn(*stream, 10);
  home_.Stop();
  ReadOn(*stream, 30);
  EXPECT_GT(other_.counters.batches, 0U);
  home_.Start();
  ReadUntil(*stream, [&] { return stream->stats().reconnects == 2; });
  const std::uint64_t by_other = stream->stats().other_node_batches;
  ReadOn(*stream, next_step_ + 30);
  EXPECT_LE(stream->stats().other_node_batches, by_other + 4) << "what had arrived before";
  Finish(*stream);
  ASSERT_EQ(notices_.size(), 2U);
  EXPECT_THAT(notices_[1], HasSubstr("is back"));
}

// The daemon of this node hangs after it has come back: it answers no handshake until it may.
class HangingHomeTest : public OtherNodeTest {
 protected:
  ~HangingHomeTest() override {
    if (!may_answer_.try_wait()) may_answer_.count_down();
    home_.Stop();  // its thread uses the members
  }
  // Reads at the other node until the stream looks for the daemon of this one.
  std::unique_ptr<BatchStream> OpenUntilItLooks(Client& client) {
    auto stream = Open(client, LongStream());
    ReadOn(*stream, 10);
    home_.Stop();
    ReadOn(*stream, 20);
    home_.faults.server_hello = [this](ServerHello&) {
      ++looks_;
      may_answer_.wait();
    };
    home_.Start();
    ReadUntil(*stream, [this] { return looks_ > 0; });
    return stream;
  }

  std::latch may_answer_{1};
  std::atomic<int> looks_ = 0;
};

TEST_F(HangingHomeTest, BatchesDoNotWaitForALook) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = OpenUntilItLooks(*client);
  // The daemon answers after batches that the stream gets meanwhile. A look that a batch has waited
  // for would have been given up.
  ReadOn(*stream, next_step_ + 20);
  may_answer_.count_down();
  ReadUntil(*stream, [&] { return notices_.size() == 2; });
  EXPECT_EQ(looks_, 1) << "the same look has found the daemon";
  EXPECT_THAT(notices_[1], HasSubstr("is back"));
  Finish(*stream);
}

TEST_F(HangingHomeTest, AStreamEndsDuringALook) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  auto stream = OpenUntilItLooks(*client);
  stream->Cancel();
  EXPECT_EQ(stream->Next().error().code(), ErrorCode::kCancelled);
  stream.reset();
}

// One that is started again may need long to list its data set, or find that it has changed.
TEST_F(OtherNodeTest, ItDoesNotGoBackToADaemonWithoutItsCatalog) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, LongStream());
  ReadOn(*stream, 10);
  home_.Stop();
  ReadOn(*stream, 20);
  std::atomic<std::uint64_t> asked = 0;
  home_.faults.describe_reply = [&asked](v1::DescribeReply& reply) {
    reply.set_catalog_fingerprint(asked++ == 0 ? 0 : 12345);
  };
  home_.Start();
  ReadUntil(*stream, [&] { return asked > 1; });
  ReadOn(*stream, next_step_ + 10);
  EXPECT_EQ(stream->stats().reconnects, 1U);
  Finish(*stream);
}

// Its slot memory, for instance, is taken by others meanwhile.
TEST_F(OtherNodeTest, ItStaysAwayWhereItsDaemonIsBackAndRefusesIt) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, LongStream());
  ReadOn(*stream, 10);
  home_.Stop();
  ReadOn(*stream, 20);
  std::atomic<bool> refuses = true;
  std::atomic<int> refused = 0;
  home_.faults.refuse_open = [&](const OrderSpec&) -> std::optional<Error> {
    if (!refuses) return std::nullopt;
    ++refused;
    return Error(ErrorCode::kResourceExhausted, "no slot memory");
  };
  home_.Start();
  ReadUntil(*stream, [&] { return refused > 0; });
  const std::uint64_t by_other = stream->stats().other_node_batches;
  ReadUntil(*stream, [&] { return stream->stats().other_node_batches > by_other + 4; });
  EXPECT_EQ(notices_.size(), 1U) << "it is not said to be back";
  refuses = false;
  ReadUntil(*stream, [&] { return notices_.size() == 2; });
  EXPECT_THAT(notices_[1], HasSubstr("is back"));
  Finish(*stream);
}

// The daemon keeps what the program still reads, and must be told of it when the stream comes back.
TEST_F(OtherNodeTest, BatchesOfADaemonThatOnlyStoodStillKeepTheirBytes) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, LongStream());
  std::optional<Batch> released_meanwhile = Take(*stream);
  std::optional<Batch> held = Take(*stream);
  StandStill();
  ReadOn(*stream, 30);
  EXPECT_GT(stream->stats().other_node_batches, 0U);
  released_meanwhile.reset();
  const std::optional<Batch> of_other = Take(*stream);
  home_.faults.drop_handshake = false;
  ReadUntil(*stream, [&] { return stream->stats().reconnects == 2; });
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    Take(*stream);
    ASSERT_TRUE(HasItsBytes(*held)) << "after step " << next_step_;
  }
  EXPECT_TRUE(HasItsBytes(*of_other));
  held.reset();  // to the daemon of its call
  ReadOn(*stream, next_step_ + 10);
  Finish(*stream);
  EXPECT_EQ(home_.counters.bad_releases, 0U);
  EXPECT_EQ(other_.counters.bad_releases, 0U);
  EXPECT_EQ(home_.counters.credit_breaches, 0U);
}

// Otherwise a daemon that only stood still would keep them for as long as the program runs.
TEST_F(OtherNodeTest, TheNextStreamSaysThatBatchesOfAClosedOneAreNotRead) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  {
    const auto stream = Open(*client, FakeStream(4));
    Take(*stream);
    StandStill();
    ReadOn(*stream, 20);
  }
  EXPECT_EQ(home_.reader_count(), 1U);
  home_.faults.drop_handshake = false;
  const auto next = Connect();
  const auto stream = Open(*next, FakeStream(4));
  EXPECT_EQ(home_.reader_count(), 1U) << "the new one alone";
}

TEST_F(OtherNodeTest, RanksBeginAtDifferentNodes) {
  FakeDaemon third({.is_other_node = true});
  home_.NameOtherNodes({other_.node_address(), third.node_address()}, kTestClient);
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::unique_ptr<BatchStream>> streams;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    clients.push_back(Connect());
    StreamOptions options = FakeStream(1);
    options.ranks = 2;
    options.rank = rank;
    streams.push_back(Open(*clients.back(), options));
  }
  home_.Stop();
  for (const auto& stream : streams) {
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(stream->Next().has_value());
  }
  EXPECT_GT(other_.counters.batches, 0U);
  EXPECT_GT(third.counters.batches, 0U);
}

TEST_F(OtherNodeTest, ANodeThatHasNoRoomOrIsLostIsPassedOver) {
  FakeDaemon full({.is_other_node = true});
  std::atomic<int> refused = 0;
  full.faults.refuse_open = [&refused](const OrderSpec&) {
    ++refused;
    return Error(ErrorCode::kUnavailable, "no slot memory");
  };
  std::string lost;
  {
    const FakeDaemon gone({.is_other_node = true});
    lost = gone.node_address();
  }
  home_.NameOtherNodes({full.node_address(), lost, other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, FakeStream(4));
  home_.Stop();
  ReadToEnd(*stream);
  EXPECT_EQ(refused, 1);
  EXPECT_GT(other_.counters.batches, 0U);
}

// Whatever the reason: another reader there may have the stream's name, or its catalog differ.
TEST_F(OtherNodeTest, ANodeThatRefusesTheStreamIsPassedOver) {
  std::vector<std::unique_ptr<FakeDaemon>> refusing;
  std::vector<std::string> addresses;
  std::atomic<int> refused = 0;
  for (const ErrorCode code : {ErrorCode::kFailedPrecondition, ErrorCode::kResourceExhausted,
                               ErrorCode::kNotFound}) {
    refusing.push_back(std::make_unique<FakeDaemon>(testing::FakeDaemonOptions{
        .is_other_node = true}));
    refusing.back()->faults.refuse_open = [&refused, code](const OrderSpec&) {
      ++refused;
      return Error(code, "not this one");
    };
    addresses.push_back(refusing.back()->node_address());
  }
  addresses.push_back(other_.node_address());
  home_.NameOtherNodes(addresses, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, FakeStream(4));
  home_.Stop();
  ReadToEnd(*stream);
  EXPECT_EQ(refused, 3);
  EXPECT_GT(other_.counters.batches, 0U);
}

// Neither may use up the time: a handshake alone may take five seconds.
TEST_F(OtherNodeTest, ADaemonThatHangsAndASilentNodeArePassedOver) {
  const SilentNode silent;
  home_.NameOtherNodes({silent.address(), other_.node_address()}, kTestClient);
  const auto client = Connect(/*other_node_after_ms=*/0, /*connect_timeout_ms=*/4'500);
  const auto stream = Open(*client, FakeStream(4));
  home_.Stop();
  home_.faults.stall_handshake = true;
  home_.Start();
  ReadToEnd(*stream);
  EXPECT_GT(other_.counters.batches, 0U);
}

// As one that shuts down: it still accepts connections.
TEST_F(OtherNodeTest, ADaemonThatRefusesStreamsIsGoneToo) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, FakeStream(4));
  ReadOn(*stream, 5);
  home_.faults.refuse_open = [](const OrderSpec&) {
    return Error(ErrorCode::kUnavailable, "shutting down");
  };
  home_.CutConnections();
  while (next_step_ < kSteps && stream->stats().other_node_batches == 0) Take(*stream);
  EXPECT_GT(stream->stats().other_node_batches, 0U);
}

// Each call looks for the daemon again, for less time than it is given to come back.
TEST_F(OtherNodeTest, AReaderThatPollsGoesThereToo) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect(/*other_node_after_ms=*/200);
  const auto stream = Open(*client, FakeStream(1));
  home_.Stop();
  EXPECT_TRUE(Soon([&] {
    const auto batch =
        stream->Next(std::chrono::steady_clock::now() + std::chrono::milliseconds(500));
    EXPECT_TRUE(batch.has_value() || batch.error().code() == ErrorCode::kDeadlineExceeded)
        << batch.error().ToString();
    return stream->stats().other_node_batches > 0;
  }));
}

TEST_F(OtherNodeTest, ACertificateOfAnotherJobIsRefused) {
  home_.NameOtherNodes({other_.node_address()}, kStrangeClient);
  const auto client = Connect(/*other_node_after_ms=*/0, /*connect_timeout_ms=*/500);
  const auto stream = Open(*client, FakeStream(1));
  home_.Stop();
  auto batch = stream->Next();
  while (batch.has_value()) batch = stream->Next();  // what had arrived
  EXPECT_EQ(batch.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(batch.error().message(), HasSubstr("no other node of the job serves this program"));
  EXPECT_THAT(batch.error().message(), HasSubstr(other_.node_address()));
  EXPECT_THAT(batch.error().message(), HasSubstr(home_.address()));
  EXPECT_EQ(other_.counters.requests, 0U);
}

TEST_F(OtherNodeTest, AClientThatShallNotGoThereDoesNot) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect(/*other_node_after_ms=*/-1, /*connect_timeout_ms=*/500);
  const auto stream = Open(*client, FakeStream(1));
  home_.Stop();
  auto batch = stream->Next();
  while (batch.has_value()) batch = stream->Next();
  EXPECT_EQ(batch.error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(other_.counters.requests, 0U);
}

}  // namespace forebay::other_node_test
