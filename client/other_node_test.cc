// A stream whose daemon is gone goes on at another node's: over TCP and TLS, with inline batches,
// and with the same batches in the same order. The daemons write over each slot as soon as it is
// given back.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/client_test_fixture.h"
#include "client/testing/fake_certificates.h"
#include "client/testing/fake_dataset.h"
#include "forebay/v1/data.pb.h"
#include "proto/contract/check.h"

namespace forebay::other_node_test {

using testing::FakeDaemon;
using testing::FakeDataset;
using testing::FakeStream;
using testing::kStrangeClient;
using testing::kTestClient;
using testing::Open;
using testing::Soon;
using ::testing::HasSubstr;

constexpr std::uint64_t kSteps = 62;

bool HasItsBytes(const Batch& batch) {
  const auto image = batch.Tensor("image");
  FOREBAY_CHECK(image.has_value());
  const std::uint64_t sample_bytes = image->bytes / batch.sample_count();
  for (std::uint32_t i = 0; i < batch.sample_count(); ++i) {
    for (std::uint64_t b = 0; b < sample_bytes; ++b) {
      if (image->data[i * sample_bytes + b] !=
          FakeDataset::ImageByte(batch.sample_ids()[i].value(), b)) {
        return false;
      }
    }
  }
  return true;
}

class OtherNodeTest : public ::testing::Test {
 protected:
  std::unique_ptr<Client> Connect(std::int64_t other_node_after_ms = 0,
                                  std::int64_t connect_timeout_ms = 60'000) {
    auto client = Client::Connect(
        {.address = home_.address(),
         .job_id = "job-1",
         .connect_timeout_ms = connect_timeout_ms,
         .other_node_after_ms = other_node_after_ms,
         .notice = [this](const std::string& line) { notices_.push_back(line); }});
    EXPECT_TRUE(client.has_value()) << client.error().ToString();
    return client ? std::move(*client) : nullptr;
  }
  // The home daemon takes no connection and ends those that there are, as if it stood still.
  void StandStill() {
    home_.faults.drop_handshake = true;
    home_.CutConnections();
  }
  std::optional<Batch> Take(BatchStream& stream) {
    auto batch = stream.Next();
    EXPECT_TRUE(batch.has_value()) << batch.error().ToString();
    FOREBAY_CHECK(batch && *batch);
    EXPECT_EQ((*batch)->step(), StepId(next_step_));
    ++next_step_;
    EXPECT_TRUE(HasItsBytes(**batch));
    return std::move(*batch);
  }
  void ReadOn(BatchStream& stream, std::uint64_t end_step) {
    while (next_step_ < end_step && !HasFailure()) Take(stream);
  }
  void ReadToEnd(BatchStream& stream) {
    ReadOn(stream, kSteps);
    auto end = stream.Next();
    ASSERT_TRUE(end.has_value()) << end.error().ToString();
    EXPECT_FALSE(end->has_value());
    const Status finished = stream.Finish();
    EXPECT_TRUE(finished.has_value()) << finished.error().ToString();
  }

  FakeDaemon home_{{.slots = 5}};
  FakeDaemon other_{{.is_other_node = true}};
  std::vector<std::string> notices_;
  std::uint64_t next_step_ = 0;
};

TEST_F(OtherNodeTest, TheStreamGoesOnThereAndSaysSoOnce) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, FakeStream(4));
  const std::optional<Batch> held = Take(*stream);
  ReadOn(*stream, 10);
  EXPECT_EQ(stream->stats().other_node_batches, 0U);
  home_.Stop();
  ReadToEnd(*stream);
  EXPECT_TRUE(HasItsBytes(*held)) << "in the memory of the daemon that is gone";
  const StreamStats stats = stream->stats();
  EXPECT_EQ(stats.batches, kSteps);
  EXPECT_EQ(stats.reconnects, 1U);
  // Some had arrived before.
  EXPECT_GE(stats.other_node_batches, kSteps - 10 - 4);
  EXPECT_EQ(other_.counters.bad_releases, 0U);
  EXPECT_EQ(other_.counters.credit_breaches, 0U);
  ASSERT_EQ(notices_.size(), 1U);
  EXPECT_THAT(notices_[0], HasSubstr(home_.address() + " does not answer"));
  EXPECT_THAT(notices_[0], HasSubstr(other_.node_address()));
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
  const auto stream = Open(*client, FakeStream(4));
  ReadOn(*stream, 10);
  home_.Stop();
  ReadOn(*stream, 30);
  const std::uint64_t sent_by_other = other_.counters.batches;
  EXPECT_GT(sent_by_other, 0U);
  home_.Start();
  ReadToEnd(*stream);
  EXPECT_EQ(stream->stats().reconnects, 2U);
  EXPECT_LE(other_.counters.batches, sent_by_other + 4);
  ASSERT_EQ(notices_.size(), 2U);
  EXPECT_THAT(notices_[1], HasSubstr("is back"));
}

// One that is started again may need long to list its data set.
TEST_F(OtherNodeTest, ItDoesNotGoBackToADaemonWithoutACatalog) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, FakeStream(4));
  ReadOn(*stream, 10);
  home_.Stop();
  ReadOn(*stream, 20);
  std::atomic<std::uint64_t> asked = 0;
  home_.faults.describe_reply = [&asked](v1::DescribeReply& reply) {
    ++asked;
    reply.set_catalog_fingerprint(0);
  };
  home_.Start();
  ReadToEnd(*stream);
  EXPECT_GT(asked, 0U);
  EXPECT_EQ(stream->stats().reconnects, 1U);
}

// The daemon keeps what the program still reads, and must be told of it when the stream comes back.
TEST_F(OtherNodeTest, BatchesOfADaemonThatOnlyStoodStillKeepTheirBytes) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, FakeStream(4));
  std::optional<Batch> released_meanwhile = Take(*stream);
  std::optional<Batch> held = Take(*stream);
  StandStill();
  ReadOn(*stream, 30);
  EXPECT_GT(stream->stats().other_node_batches, 0U);
  released_meanwhile.reset();
  const std::optional<Batch> of_other = Take(*stream);
  home_.faults.drop_handshake = false;
  for (; next_step_ < 50 && !HasFailure();) {
    Take(*stream);
    ASSERT_TRUE(HasItsBytes(*held)) << "after step " << next_step_;
  }
  EXPECT_EQ(stream->stats().reconnects, 2U);
  EXPECT_TRUE(HasItsBytes(*of_other));
  held.reset();  // to the daemon of its call
  ReadToEnd(*stream);
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
        stream->Next(std::chrono::steady_clock::now() + std::chrono::milliseconds(50));
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
