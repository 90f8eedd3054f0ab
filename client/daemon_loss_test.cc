// A daemon that dies, and comes back or does not: what streams and their batches do then.
#include <atomic>
#include <cstdint>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/client_test_fixture.h"
#include "client/testing/fake_dataset.h"

namespace forebay {
namespace {

using testing::Connect;
using testing::ExpectDataLoss;
using testing::FakeDaemon;
using testing::FakeDataset;
using testing::FakeStream;

TEST(DaemonLossTest, HeldBatchesStayReadableAndTheStreamGoesOn) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = client->Open(FakeStream(2));
  ASSERT_TRUE(stream.has_value());
  auto held = (*stream)->Next();
  ASSERT_TRUE(held && *held);
  const std::uint64_t connections = daemon.counters.connections;

  daemon.Stop();
  const auto image = (*held)->Tensor("image");
  ASSERT_TRUE(image.has_value());
  EXPECT_EQ(image->data[5], FakeDataset::ImageByte((*held)->sample_ids()[0].value(), 5));

  daemon.Start();
  std::uint64_t step = 1;
  for (;; ++step) {
    auto batch = (*stream)->Next();
    ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
    if (!*batch) break;
    ASSERT_EQ((*batch)->step(), StepId(step));
    const auto tensor = (*batch)->Tensor("image");
    ASSERT_EQ(tensor->data[7], FakeDataset::ImageByte((*batch)->sample_ids()[0].value(), 7));
  }
  EXPECT_EQ(step, 62U);
  EXPECT_EQ((*stream)->stats().reconnects, 1U);
  EXPECT_EQ(daemon.counters.connections, connections + 1);
  EXPECT_EQ(image->data[5], FakeDataset::ImageByte((*held)->sample_ids()[0].value(), 5));
  held->reset();  // of the former call: not released to the new daemon
  EXPECT_TRUE((*stream)->Finish().has_value());
  EXPECT_EQ(daemon.counters.bad_releases, 0U);
}

TEST(DaemonLossTest, PullAsksAgainByName) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = client->Open(FakeStream(2));
  ASSERT_TRUE(stream.has_value());
  daemon.Stop();
  daemon.Start();
  auto batch = (*stream)->Pull({.epoch = EpochId(2), .step = StepId(7)});
  ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
  EXPECT_EQ(batch->epoch(), EpochId(2));
  EXPECT_EQ((*stream)->stats().reconnects, 1U);
}

TEST(DaemonLossTest, AChangedCatalogIsNotResumed) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = client->Open(FakeStream(2));
  ASSERT_TRUE(stream.has_value());
  ASSERT_TRUE((*stream)->Next().has_value());
  daemon.Stop();
  daemon.dataset().set_fingerprint(0xBAD);
  daemon.Start();
  Error error(ErrorCode::kUnknown, "");
  for (int i = 0; i < 4 && error.code() == ErrorCode::kUnknown; ++i) {
    auto batch = (*stream)->Next();
    if (!batch) error = batch.error();
  }
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
}

// Other readers may have opened streams at the daemon that came back.
TEST(DaemonLossTest, AReaderWaitsForMemoryThatOthersHaveTakenMeanwhile) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = client->Open(FakeStream(2));
  ASSERT_TRUE(stream.has_value());
  ASSERT_TRUE((*stream)->Next().has_value());
  daemon.Stop();
  std::atomic<int> refused = 0;
  daemon.faults.refuse_open = [&](const OrderSpec&) -> std::optional<Error> {
    if (++refused > 3) return std::nullopt;
    return Error(ErrorCode::kResourceExhausted, "no slot memory");
  };
  daemon.Start();
  std::uint64_t steps = 1;
  for (;; ++steps) {
    const auto batch = (*stream)->Next();
    ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
    if (!*batch) break;
    ASSERT_EQ((*batch)->step(), StepId(steps));
  }
  EXPECT_EQ(refused, 4);
}

TEST(DaemonLossTest, AReaderForWhichTheDaemonHasNoMemoryAnyMoreIsToldWhy) {
  FakeDaemon daemon;
  auto client = Client::Connect({.address = daemon.address(), .connect_timeout_ms = 3000});
  ASSERT_TRUE(client.has_value());
  auto stream = (*client)->Open(FakeStream(2));
  ASSERT_TRUE(stream.has_value());
  daemon.Stop();
  daemon.faults.refuse_open = [](const OrderSpec&) {
    return Error(ErrorCode::kResourceExhausted, "no slot memory");
  };
  daemon.Start();
  auto batch = (*stream)->Next();
  // What had arrived before may still be handed out.
  while (batch.has_value() && *batch) batch = (*stream)->Next();
  ASSERT_FALSE(batch.has_value());
  EXPECT_EQ(batch.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(batch.error().message(), ::testing::HasSubstr("no slot memory"));
  EXPECT_EQ((*client)->Open(FakeStream(2)).error().code(), ErrorCode::kResourceExhausted);
}

TEST(DaemonLossTest, GivesUpAfterTheTimeoutAndMayBeTriedAgain) {
  FakeDaemon daemon;
  auto client = Client::Connect({.address = daemon.address(), .connect_timeout_ms = 3000});
  ASSERT_TRUE(client.has_value());
  auto stream = (*client)->Open(FakeStream(2));
  ASSERT_TRUE(stream.has_value());
  daemon.Stop();
  // What had arrived before the client noticed may still be handed out.
  std::uint64_t step = 0;
  auto batch = (*stream)->Next();
  for (; batch.has_value() && step < 4; ++step) {
    batch->reset();
    batch = (*stream)->Next();
  }
  ASSERT_FALSE(batch.has_value());
  EXPECT_EQ(batch.error().code(), ErrorCode::kUnavailable);
  daemon.Start();
  batch = (*stream)->Next();
  ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
  EXPECT_EQ((**batch).step(), StepId(step));
}

TEST(DaemonLossTest, FinishAsksTheDaemonThatCameBack) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = client->Open(FakeStream(2));
  ASSERT_TRUE(stream.has_value());
  ASSERT_TRUE((*stream)->Next().has_value());
  daemon.Stop();
  daemon.Start();
  const Status finished = (*stream)->Finish();
  EXPECT_TRUE(finished.has_value()) << finished.error().ToString();
  EXPECT_EQ((*stream)->stats().reconnects, 1U);
}

TEST(DaemonLossTest, FinishWithoutATrailerIsDataLoss) {
  FakeDaemon daemon;
  auto client = Client::Connect({.address = daemon.address(), .connect_timeout_ms = 3000});
  ASSERT_TRUE(client.has_value());
  auto stream = (*client)->Open(FakeStream(2));
  ASSERT_TRUE(stream.has_value());
  ASSERT_TRUE((*stream)->Next().has_value());
  daemon.Stop();
  ExpectDataLoss((*stream)->Finish().error(), "without a trailer");
}

TEST(DaemonLossTest, OpenAndDescribeReconnect) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  daemon.Stop();
  daemon.Start();
  EXPECT_TRUE(client->Describe("fake", "all").has_value());
  daemon.Stop();
  daemon.Start();
  EXPECT_TRUE(client->Open(FakeStream(2)).has_value());
}

}  // namespace
}  // namespace forebay
