// Clients that die or stall cost the daemon nothing but their own slots.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"
#include "tests/integration/holder.h"

namespace forebay::integration {
namespace {

TEST(ClientDeathTest, AKilledClientsSlotsComeBack) {
  const DaemonRig rig;
  Holder holder(rig.socket_path(), HolderKind::kContiguous);
  const auto daemon = rig.Start();
  ASSERT_TRUE(holder.Hold());
  RawClient watcher(rig.socket_path());
  const v1::StatusReply before = watcher.Status();
  ASSERT_EQ(before.clients(), 2U);
  ASSERT_EQ(before.streams_size(), 1);
  ASSERT_EQ(before.streams(0).held(), 4U) << "the client was mid-batch";
  ASSERT_GE(before.slot_bytes_used(), 4 * 64 * kRecordBytes);
  holder.Kill();
  EXPECT_TRUE(Eventually([&] {
    const v1::StatusReply now = watcher.Status();
    return now.slot_bytes_used() == 0 && now.streams_size() == 0 && now.clients() == 1;
  })) << watcher.Status().ShortDebugString();
  const EpochCounts counts = ReadEpoch(watcher);
  EXPECT_EQ(counts.error, "");
  EXPECT_EQ(counts.distinct, 4096U);
}

TEST(ClientDeathTest, ACancelledStreamGivesEverythingBack) {
  const DaemonRig rig;
  const auto daemon = rig.Start();
  RawClient client(rig.socket_path());
  for (int round = 0; round < 20; ++round) {
    RawStream stream(client);
    HoldBatches(client, stream, "fickle", 4);
    ASSERT_GT(client.Status().slot_bytes_used(), 0U);
    stream.Cancel();
    EXPECT_EQ(stream.End().error_code(), grpc::StatusCode::CANCELLED);
    ASSERT_TRUE(Eventually([&] { return client.Status().slot_bytes_used() == 0; }));
  }
}

TEST(ClientDeathTest, AStreamCancelledInTheMiddleOfDeliveryGivesEverythingBack) {
  const DaemonRig rig;
  const auto daemon = rig.Start();
  RawClient client(rig.socket_path());
  const v1::DescribeReply dataset = client.Describe(kDataset);
  for (int round = 0; round < 200; ++round) {
    RawStream stream(client);
    stream.Write(GoodOpen(dataset, 64));
    stream.Write(PullOf(0, 4));
    if (round % 2 == 0) (void)stream.Read();
    stream.Cancel();
    (void)stream.End().ok();
  }
  EXPECT_TRUE(Eventually([&] {
    const v1::StatusReply now = client.Status();
    return now.slot_bytes_used() == 0 && now.streams_size() == 0;
  }));
  EXPECT_EQ(ReadEpoch(client).wrong, 0U);
}

TEST(ClientDeathTest, BatchesHeldPastTheTrailerStayValidUntilTheReaderEnds) {
  const DaemonRig rig;
  const auto daemon = rig.Start();
  RawClient client(rig.socket_path());
  RawStream stream(client);
  // Opens, pulls and finishes in one breath.
  v1::StreamRequest all = GoodOpen(client.Describe(kDataset), 64);
  all.add_pulls()->set_step_count(2);
  all.set_finish(true);
  stream.Write(all);
  std::vector<v1::Batch> batches;
  bool trailer = false;
  while (!trailer) {
    const auto reply = stream.Read();
    ASSERT_TRUE(reply.has_value());
    batches.insert(batches.end(), reply->batches().begin(), reply->batches().end());
    trailer = reply->has_trailer();
  }
  ASSERT_EQ(batches.size(), 2U);
  RawStream anew(client);
  anew.Write(GoodOpen(client.Describe(kDataset), 32));
  EXPECT_TRUE(anew.Read().has_value()) << "with the trailer the stream's name is free";
  anew.Cancel();
  EXPECT_FALSE(anew.End().ok());
  v1::StreamRequest release;
  release.add_release(batches[0].id());
  stream.Write(release);
  EXPECT_TRUE(Eventually([&] {
    const v1::StatusReply now = client.Status();
    return now.streams_size() == 1 && now.streams(0).held() == 1;
  }));
  EXPECT_EQ(ReadEpoch(client, "other").wrong, 0U) << "slots have been used over and over";
  WireSpan tensor;
  batches[1].fields(0).tensor().copy(reinterpret_cast<char*>(&tensor), sizeof(tensor));
  for (std::uint32_t i = 0; i < batches[1].sample_count(); ++i) {
    std::uint64_t id = 0;
    batches[1].sample_ids().copy(reinterpret_cast<char*>(&id), sizeof(id), i * sizeof(id));
    EXPECT_TRUE(IsRecord(id, client.Bytes(tensor).subspan(i * kRecordBytes, kRecordBytes)));
  }
  stream.HalfClose();
  EXPECT_TRUE(stream.End().ok());
  EXPECT_EQ(client.Status().slot_bytes_used(), 0U) << "free before the reader hears of the end";
}

TEST(ClientDeathTest, AStalledClientCostsItsOwnSlotsOnly) {
  const DaemonRig rig;
  const auto daemon = rig.Start();
  RawClient stalled(rig.socket_path());
  std::vector<std::unique_ptr<RawStream>> streams;
  constexpr int kStalled = 8;
  for (int i = 0; i < kStalled; ++i) {
    streams.push_back(std::make_unique<RawStream>(stalled));
    v1::StreamRequest open = GoodOpen(stalled.Describe(kDataset), 64);
    open.mutable_open()->set_stream_name("stalled" + std::to_string(i));
    streams.back()->Write(open);
    streams.back()->Write(PullOf(0, 4));  // and never reads, never releases
  }
  RawClient healthy(rig.socket_path());
  ASSERT_TRUE(Eventually([&] {
    std::uint32_t held = 0;
    const v1::StatusReply now = healthy.Status();
    for (const v1::StreamStatus& stream : now.streams()) held += stream.held();
    return held == kStalled * 4;
  })) << "all of them stalled";
  for (int epoch = 0; epoch < 3; ++epoch) {
    const EpochCounts counts = ReadEpoch(healthy, "healthy");
    EXPECT_EQ(counts.error, "");
    EXPECT_EQ(counts.distinct, 4096U);
    EXPECT_EQ(counts.wrong, 0U);
  }
  EXPECT_TRUE(Eventually([&] { return healthy.Status().streams_size() == kStalled; }))
      << "they are still there, and nobody else";
}

}  // namespace
}  // namespace forebay::integration
