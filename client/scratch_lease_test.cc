// Leases of a daemon from memory: granted, refused, lost, given back.
#include <cstdint>
#include <optional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/client_test_fixture.h"

namespace forebay {
namespace {

using ::testing::HasSubstr;
using testing::Connect;
using testing::FakeDaemon;
using testing::Soon;

constexpr std::uint64_t kMiB = 1ULL << 20;

TEST(ScratchLeaseTest, IsHeldUntilItIsDestroyed) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  Result<ScratchLease> leased = client->LeaseScratch(64 * kMiB);
  ASSERT_TRUE(leased.has_value()) << leased.error().ToString();
  std::optional<ScratchLease> lease(*std::move(leased));
  EXPECT_EQ(lease->bytes(), 64 * kMiB);
  EXPECT_TRUE(lease->held());
  EXPECT_EQ(daemon.counters.leases, 1U);
  client.reset();
  EXPECT_TRUE(lease->held()) << "it outlives the client";
  lease.reset();
  EXPECT_TRUE(Soon([&] { return daemon.counters.leases == 0; }));
}

TEST(ScratchLeaseTest, MovingLeavesNothingBehind) {
  FakeDaemon daemon;
  const auto client = Connect(daemon);
  Result<ScratchLease> first = client->LeaseScratch(kMiB);
  Result<ScratchLease> second = client->LeaseScratch(2 * kMiB);
  ASSERT_TRUE(first.has_value() && second.has_value());
  *first = std::move(*second);
  EXPECT_EQ(first->bytes(), 2 * kMiB);
  EXPECT_EQ(second->bytes(), 0U);  // NOLINT: moved from, empty by contract
  EXPECT_FALSE(second->held());
  EXPECT_TRUE(Soon([&] { return daemon.counters.leases == 1; })) << "the first one went back";
}

TEST(ScratchLeaseTest, ARefusalSaysWhatTheDaemonSays) {
  FakeDaemon daemon;
  daemon.faults.scratch_bytes = 10 * kMiB;
  const auto refused = Connect(daemon)->LeaseScratch(10 * kMiB + 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("raise the reserve"));
}

TEST(ScratchLeaseTest, IsLostWithTheDaemonAndCanBeTakenAnew) {
  FakeDaemon daemon;
  const auto client = Client::Connect({.address = daemon.address(), .connect_timeout_ms = 300});
  ASSERT_TRUE(client.has_value()) << client.error().ToString();
  const auto lease = (*client)->LeaseScratch(kMiB);
  ASSERT_TRUE(lease.has_value()) << lease.error().ToString();
  daemon.Stop();
  EXPECT_TRUE(Soon([&] { return !lease->held(); }));
  EXPECT_EQ(lease->bytes(), kMiB);
  const auto nobody = (*client)->LeaseScratch(kMiB);
  ASSERT_FALSE(nobody.has_value());
  EXPECT_EQ(nobody.error().code(), ErrorCode::kUnavailable);
  daemon.Start();
  const auto again = (*client)->LeaseScratch(kMiB);
  ASSERT_TRUE(again.has_value()) << again.error().ToString();
  EXPECT_TRUE(again->held());
  EXPECT_FALSE(lease->held()) << "the old one stays lost";
}

TEST(ScratchLeaseTest, AGrantThatWasNotAskedForIsRefused) {
  FakeDaemon daemon;
  daemon.faults.lease_reply = [](v1::LeaseReply& reply) { reply.set_bytes(2 * kMiB); };
  const auto lease = Connect(daemon)->LeaseScratch(kMiB);
  ASSERT_FALSE(lease.has_value());
  EXPECT_EQ(lease.error().code(), ErrorCode::kDataLoss);
  EXPECT_TRUE(Soon([&] { return daemon.counters.leases == 0; }));
}

TEST(ScratchLeaseTest, AnEndWithoutAnAnswerIsAnError) {
  FakeDaemon daemon;
  daemon.faults.no_lease_reply = true;
  const auto lease = Connect(daemon)->LeaseScratch(kMiB);
  ASSERT_FALSE(lease.has_value());
  EXPECT_EQ(lease.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(lease.error().message(), HasSubstr("without an answer"));
}

TEST(ScratchLeaseTest, ADaemonThatDoesNotAnswerIsGivenUp) {
  FakeDaemon daemon;
  daemon.faults.mute_lease = true;
  const auto lease = Connect(daemon)->LeaseScratch(kMiB, 50);
  ASSERT_FALSE(lease.has_value());
  EXPECT_EQ(lease.error().code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(lease.error().message(), HasSubstr("1048576 bytes for 50 ms"));
  EXPECT_TRUE(Soon([&] { return daemon.counters.leases == 0; })) << "the call is cancelled";
}

TEST(ScratchLeaseTest, ADaemonThatSaysMoreThanItShouldLosesTheLease) {
  FakeDaemon daemon;
  daemon.faults.lease_replies = 2;
  const auto lease = Connect(daemon)->LeaseScratch(kMiB);
  ASSERT_TRUE(lease.has_value()) << lease.error().ToString();
  EXPECT_TRUE(Soon([&] { return !lease->held(); }));
}

}  // namespace
}  // namespace forebay
