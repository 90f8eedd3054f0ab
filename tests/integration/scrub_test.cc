// Bits that flip where extents lie: found, dropped, brought anew; no reader sees them.
#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"
#include "tests/integration/damage.h"

namespace forebay::integration::scrub_test {

using ::testing::HasSubstr;

constexpr std::uint64_t kExtentBytes = 64 << 10;
constexpr std::uint64_t kFlipped = 256;
constexpr std::uint64_t kSound = 32;
constexpr std::uint64_t kRecords = (kFlipped + kSound) * kExtentBytes / kRecordBytes;

v1::TierStatus TierOf(const v1::StatusReply& status, const std::string& name) {
  for (const v1::TierStatus& tier : status.tiers()) {
    if (tier.name() == name) return tier;
  }
  return {};
}

void ExpectWholeEpoch(const EpochCounts& counts, std::uint64_t records) {
  EXPECT_EQ(counts.error, "");
  EXPECT_EQ(counts.distinct, records);
  EXPECT_EQ(counts.wrong, 0U);
  EXPECT_TRUE(counts.trailer);
}

std::vector<std::string> ScrubOff() { return {"--set", "tier.scrub.enabled=false"}; }
std::vector<std::string> ScrubFast() { return {"--set", "tier.scrub.bytes_per_second=1GiB"}; }

TEST(ScrubTest, AFlippedBitInRamIsFoundDroppedAndBroughtAnew) {
  const DaemonRig rig({.ssd = false});
  const auto daemon = rig.Start(ScrubFast());
  RawClient client(rig.socket_path());
  AwaitStaged(client);
  EXPECT_TRUE(client.Status().scrub().enabled());
  if (!FlipBitInRam(*daemon, client, 77)) {
    GTEST_SKIP() << "the memory of another process cannot be written here";
  }
  ASSERT_TRUE(Eventually([&] { return client.Status().scrub().bad_extents() > 0; }));
  const v1::StatusReply found = client.Status();
  EXPECT_EQ(found.scrub().bad_extents(), 1U);
  EXPECT_EQ(TierOf(found, "ram").bad_extents(), 1U);
  EXPECT_EQ(TierOf(found, "ram").extents(), 15U) << "of 16, the damaged one is gone";
  EXPECT_THAT(rig.log(), HasSubstr("does not match its checksum"));
  ExpectWholeEpoch(ReadEpoch(client), 4096);
  EXPECT_EQ(client.Status().gfs().bytes(), rig.dataset_bytes() + (1 << 20))
      << "that extent once more, and nothing else";
}

TEST(ScrubTest, AFlippedBitOnSsdIsFoundDroppedAndBroughtAnew) {
  const DaemonRig rig;
  {
    const auto daemon = rig.Start(ScrubOff());
    RawClient client(rig.socket_path());
    AwaitStaged(client);
    EXPECT_FALSE(client.Status().scrub().enabled());
    daemon->Signal(SIGTERM);
    ASSERT_EQ(daemon->Wait(), 0);
  }
  const std::vector<std::string> segments = SegmentPaths(rig.ssd_path());
  ASSERT_EQ(segments.size(), 16U);
  ASSERT_TRUE(FlipBitInFile(segments[5], 12345, 6));
  const auto daemon = rig.Start(ScrubFast());
  RawClient client(rig.socket_path());
  ASSERT_TRUE(Eventually([&] { return TierOf(client.Status(), "ssd").bad_extents() > 0; }));
  EXPECT_EQ(TierOf(client.Status(), "ssd").bad_extents(), 1U);
  ExpectWholeEpoch(ReadEpoch(client), 4096);
  EXPECT_EQ(client.Status().gfs().bytes(), 1U << 20) << "that extent, and nothing else";
  EXPECT_FALSE(TierOf(client.Status(), "ssd").retired());
}

TEST(ScrubTest, AFlippedBitInEachOf256SsdExtentsCostsTheirBytesAndNothingElse) {
  const DaemonRig rig({.records = kRecords, .extent = "64KiB"});
  EpochCounts before;
  {
    const auto daemon = rig.Start(ScrubOff());
    RawClient client(rig.socket_path());
    AwaitStaged(client);
    before = ReadEpoch(client);
    ExpectWholeEpoch(before, kRecords);
    daemon->Signal(SIGTERM);
    ASSERT_EQ(daemon->Wait(), 0);
  }
  const std::vector<std::string> segments = SegmentPaths(rig.ssd_path());
  ASSERT_EQ(segments.size(), kFlipped + kSound);
  for (std::uint64_t i = 0; i < kFlipped; ++i) {
    // First and last byte of the image, and bytes in between.
    const std::uint64_t byte = i == 0 ? 0 : i == 1 ? kExtentBytes - 1 : i * 7919 % kExtentBytes;
    ASSERT_TRUE(FlipBitInFile(segments[i], byte, static_cast<int>(i % 8))) << segments[i];
  }
  // RAM for the smaller part, so that readers meet the SSD.
  std::vector<std::string> small = ScrubOff();
  small.insert(small.end(), {"--set", "tier.ram.capacity=4MiB"});
  const auto daemon = rig.Start(small);
  RawClient client(rig.socket_path());
  const EpochCounts after = ReadEpoch(client);
  ExpectWholeEpoch(after, kRecords);
  EXPECT_EQ(after.content_digest, before.content_digest);
  EXPECT_EQ(after.trailer_checksum, before.trailer_checksum);
  AwaitStaged(client);
  const v1::StatusReply status = client.Status();
  EXPECT_EQ(TierOf(status, "ssd").bad_extents(), kFlipped) << "each was found, and once";
  EXPECT_FALSE(TierOf(status, "ssd").retired()) << "an earlier daemon's damage";
  EXPECT_EQ(status.gfs().bytes(), kFlipped * kExtentBytes);
  ExpectWholeEpoch(ReadEpoch(client), kRecords);
  EXPECT_EQ(client.Status().gfs().bytes(), kFlipped * kExtentBytes) << "read once";
}

}  // namespace forebay::integration::scrub_test
