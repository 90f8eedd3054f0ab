// What a trainer leases of a real daemon: it goes back with the trainer's source, and is taken
// anew from a daemon that was restarted.
#include <cstdint>
#include <memory>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"
#include "trainer/core/forebay_feed.h"

namespace forebay::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::ForebaySource;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kSwapped = 20 * kMiB;

std::unique_ptr<ForebaySource> Connect(const DaemonRig& rig) {
  train::TrainConfig config;
  config.data.address = "unix:" + rig.socket_path();
  config.data.train_dataset = config.data.validation_dataset = kDataset;
  config.data.input_field = config.data.target_field = "x";
  auto source = ForebaySource::Connect(config, 3);
  EXPECT_TRUE(source.has_value()) << source.error().ToString();
  return source.has_value() ? std::move(*source) : nullptr;
}

std::uint64_t LeasedBytes(const DaemonRig& rig) {
  RawClient watcher(rig.socket_path());
  return watcher.Status().scratch().leased_bytes();
}

TEST(TrainerLeaseTest, LastsAsLongAsTheSource) {
  const DaemonRig rig({.ram = "256MiB", .ssd = false});
  const auto daemon = rig.Start();
  auto source = Connect(rig);
  ASSERT_TRUE(source->LeaseHostMemory(kSwapped).has_value());
  ASSERT_TRUE(source->LeaseHostMemory(kSwapped).has_value());
  EXPECT_TRUE(Eventually([&] { return LeasedBytes(rig) == kSwapped; })) << "one lease, not two";
  source.reset();
  EXPECT_TRUE(Eventually([&] { return LeasedBytes(rig) == 0; }));
}

TEST(TrainerLeaseTest, ARefusalNamesTheKeysOfBothSides) {
  const DaemonRig rig({.ram = "16MiB", .ssd = false});
  const auto daemon = rig.Start();
  const Status refused = Connect(rig)->LeaseHostMemory(kSwapped);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("rank 3 may swap up to 20971520 bytes out"),
                    HasSubstr("memory.host_bytes"), HasSubstr("tier.ram.scratch_reserve")));
}

TEST(TrainerLeaseTest, IsTakenAnewWithTheNextFeedOfARestartedDaemon) {
  const DaemonRig rig({.ram = "256MiB", .ssd = false});
  auto daemon = rig.Start();
  const auto source = Connect(rig);
  ASSERT_TRUE(source->LeaseHostMemory(kSwapped).has_value());
  daemon->Kill();
  daemon = rig.Start();
  EXPECT_EQ(LeasedBytes(rig), 0U) << "it knows nothing of the lease";
  // The source hears of the end on a thread of gRPC's.
  EXPECT_TRUE(Eventually([&] {
    const auto feed = source->OpenValidation({}, 1);
    EXPECT_TRUE(feed.has_value()) << feed.error().ToString();
    return !feed.has_value() || LeasedBytes(rig) == kSwapped;
  }));
  daemon->Kill();
  daemon = rig.Start({"--set", "tier.ram.capacity=16MiB"});
  EXPECT_TRUE(Eventually([&] {
    const auto feed = source->OpenValidation({}, 1);
    return !feed.has_value() && feed.error().code() == ErrorCode::kResourceExhausted;
  }));
}

}  // namespace
}  // namespace forebay::integration
