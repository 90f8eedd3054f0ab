// Memory that processes of the job lease from a real daemon: it comes out of the RAM tier's, and
// goes back however they end.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/client.h"
#include "proto/contract/check.h"
#include "tests/integration/daemon_rig.h"

namespace forebay::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;

std::unique_ptr<Client> Connect(const DaemonRig& rig) {
  auto client = Client::Connect({.address = "unix:" + rig.socket_path()});
  FOREBAY_CHECK(client.has_value());
  return *std::move(client);
}

v1::TierStatus RamOf(RawClient& client) {
  const v1::StatusReply status = client.Status();
  for (const v1::TierStatus& tier : status.tiers()) {
    if (tier.name() == "ram") return tier;
  }
  return {};
}

// Bytes that the kernel has made for the RAM tier.
std::uint64_t MadeBytes(const RawClient& client) {
  std::uint64_t bytes = 0;
  const RawSocket& socket = client.socket();
  for (std::size_t i = 0; i < socket.regions.size(); ++i) {
    if (socket.entries[i].kind != static_cast<std::uint32_t>(RegionKind::kArena)) continue;
    struct stat facts = {};
    EXPECT_EQ(fstat(socket.regions[i].get(), &facts), 0);
    bytes += static_cast<std::uint64_t>(facts.st_blocks) * 512;
  }
  return bytes;
}

TEST(HostLeaseTest, TierAndLeaseStayWithinTheTiersMemory) {
  const DaemonRig rig({.records = 40 * kMiB / kRecordBytes, .ram = "160MiB", .ssd = false});
  const auto daemon = rig.Start();
  RawClient watcher(rig.socket_path());
  const auto client = Connect(rig);
  // What is staged and what is made ahead of it, 64 MiB, leave this much.
  std::optional<ScratchLease> lease(client->LeaseScratch(50 * kMiB).value());
  EXPECT_EQ(RamOf(watcher).capacity_bytes(), 110 * kMiB);
  EXPECT_EQ(watcher.Status().scratch().leased_bytes(), 50 * kMiB);
  EXPECT_EQ(watcher.Status().scratch().leases(), 1U);
  for (int epoch = 0; epoch < 2; ++epoch) {
    const EpochCounts counts = ReadEpoch(watcher);
    EXPECT_EQ(counts.wrong, 0U);
    EXPECT_EQ(counts.distinct, rig.dataset_bytes() / kRecordBytes) << counts.error;
  }
  EXPECT_EQ(watcher.Status().gfs().bytes(), rig.dataset_bytes()) << "extents keep their room";
  EXPECT_GE(MadeBytes(watcher), 40 * kMiB) << "the tier is in use";
  EXPECT_LE(MadeBytes(watcher) + lease->bytes(), 160 * kMiB);
  lease.reset();
  EXPECT_TRUE(Eventually([&] { return RamOf(watcher).capacity_bytes() == 160 * kMiB; }));
  EXPECT_EQ(watcher.Status().scratch().leases(), 0U);
}

// What the tier has touched stays resident, so it cannot be leased, whatever is evicted.
TEST(HostLeaseTest, AWarmTierRefusesAndNamesTheKey) {
  const DaemonRig rig({.ram = "24MiB", .ssd = false});
  const auto daemon = rig.Start();
  RawClient watcher(rig.socket_path());
  const EpochCounts counts = ReadEpoch(watcher);
  EXPECT_EQ(counts.distinct, 4096U) << counts.error << rig.log();
  EXPECT_GE(MadeBytes(watcher), 16 * kMiB);
  const auto refused = Connect(rig)->LeaseScratch(4 * kMiB);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("a lease of 4194304 bytes: 0 are left"),
                    HasSubstr("raise the daemon's tier.ram.scratch_reserve")));
}

TEST(HostLeaseTest, TheReserveIsLeasedFirst) {
  const DaemonRig rig({.ram = "264MiB", .ssd = false});
  const auto daemon = rig.Start({"--set", "tier.ram.scratch_reserve=8MiB"});
  RawClient watcher(rig.socket_path());
  EXPECT_EQ(RamOf(watcher).capacity_bytes(), 256 * kMiB);
  EXPECT_EQ(watcher.Status().scratch().reserve_bytes(), 8 * kMiB);
  const auto client = Connect(rig);
  const auto lease = client->LeaseScratch(8 * kMiB);
  ASSERT_TRUE(lease.has_value()) << lease.error().ToString();
  EXPECT_EQ(RamOf(watcher).capacity_bytes(), 256 * kMiB) << "the tier loses nothing";
  const auto more = client->LeaseScratch(2 * kMiB);
  ASSERT_TRUE(more.has_value()) << more.error().ToString();
  EXPECT_EQ(RamOf(watcher).capacity_bytes(), 254 * kMiB);
}

TEST(HostLeaseTest, AKilledProcessLosesItsLease) {
  const DaemonRig rig({.ram = "256MiB"});
  int held[2];
  int start[2];
  FOREBAY_CHECK(pipe(held) == 0 && pipe(start) == 0);
  // Forked before this process speaks gRPC, whose threads do not survive a fork.
  const pid_t holder = fork();
  if (holder == 0) {
    char byte = 0;
    (void)!read(start[0], &byte, 1);
    const auto client = Connect(rig);
    const auto lease = client->LeaseScratch(16 * kMiB);
    (void)!write(held[1], lease.has_value() ? "y" : "n", 1);
    for (;;) pause();
  }
  const auto daemon = rig.Start();
  char byte = 0;
  ASSERT_TRUE(write(start[1], "s", 1) == 1 && read(held[0], &byte, 1) == 1 && byte == 'y');
  RawClient watcher(rig.socket_path());
  EXPECT_EQ(watcher.Status().scratch().leased_bytes(), 16 * kMiB);
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_TRUE(Eventually([&] { return watcher.Status().scratch().leased_bytes() == 0; }));
  EXPECT_EQ(RamOf(watcher).capacity_bytes(), 256 * kMiB);
}

// Says what libforebay never would.
TEST(HostLeaseTest, HostileLeasesAreRefusedAndBounded) {
  const DaemonRig rig({.ram = "256MiB"});
  const auto daemon = rig.Start();
  RawClient client(rig.socket_path());
  const auto refusal = [&](std::uint64_t bytes) {
    const auto context = NewContext();
    v1::LeaseRequest request;
    request.set_bytes(bytes);
    const auto reader = client.data().Lease(context.get(), request);
    v1::LeaseReply reply;
    EXPECT_FALSE(reader->Read(&reply)) << bytes;
    return reader->Finish().error_code();
  };
  EXPECT_EQ(refusal(0), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refusal(256 * kMiB + 1), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refusal(~std::uint64_t{0}), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto greedy = Connect(rig);
  std::vector<ScratchLease> leases;
  for (int i = 0; i < 16; ++i) {
    auto lease = greedy->LeaseScratch(1);
    ASSERT_TRUE(lease.has_value()) << lease.error().ToString();
    leases.push_back(*std::move(lease));
  }
  const auto refused = greedy->LeaseScratch(1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("16 leases at most"));
  EXPECT_EQ(client.Status().scratch().leases(), 16U);
  leases.clear();
  EXPECT_TRUE(Eventually([&] { return client.Status().scratch().leases() == 0; }));
}

TEST(HostLeaseTest, ADaemonThatLeavesTakesTheLeaseWithIt) {
  const DaemonRig rig({.ram = "256MiB"});
  const auto daemon = rig.Start();
  const auto client = Connect(rig);
  const auto lease = client->LeaseScratch(kMiB);
  ASSERT_TRUE(lease.has_value()) << lease.error().ToString();
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), 0);
  EXPECT_TRUE(Eventually([&] { return !lease->held(); }));
}

}  // namespace
}  // namespace forebay::integration
