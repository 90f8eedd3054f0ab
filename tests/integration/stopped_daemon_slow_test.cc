// A daemon that stands still for so long that its clients give the connection up (SIGSTOP, a frozen
// cgroup, a suspended job), and then goes on: what a program reads meanwhile keeps its bytes.
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "forebay/client.h"
#include "tests/integration/daemon_rig.h"

namespace forebay::integration {
namespace {

constexpr std::uint64_t kRecords = 1024;
constexpr std::uint32_t kBatch = 64;

std::unique_ptr<Client> Connect(const DaemonRig& rig) {
  auto client = Client::Connect({.address = "unix:" + rig.socket_path()});
  EXPECT_TRUE(client.has_value()) << client.error().ToString();
  return client ? std::move(*client) : nullptr;
}

StreamOptions Options(const std::string& name, Delivery delivery) {
  StreamOptions options;
  options.dataset = kDataset;
  options.stream_name = name;
  options.global_batch = kBatch;
  options.delivery = delivery;
  options.prefetch_depth = 3;
  return options;
}

std::uint64_t WrongRecords(const Batch& batch) {
  std::uint64_t wrong = 0;
  for (std::uint32_t i = 0; i < batch.sample_count(); ++i) {
    const auto spans = batch.Spans(FieldId(0), i);
    const bool is_right = spans.size() == 1 && IsRecord(batch.sample_ids()[i].value(), spans[0]);
    wrong += is_right ? 0 : 1;
  }
  return wrong;
}

class StoppedDaemonSlowTest : public ::testing::TestWithParam<Delivery> {};

TEST_P(StoppedDaemonSlowTest, WhatAProgramReadsKeepsItsBytesAndItsEpochIsExact) {
  // A few epochs use all slots again and again; the RAM tier is half of the data set, so that
  // extents move, and views have to be copied to slots.
  const DaemonRig rig({.records = kRecords, .extent = "256KiB", .ram = "2MiB"});
  const auto daemon = rig.Start({"--set", "slots.capacity=8MiB"});
  const auto client = Connect(rig);
  auto stream = client->Open(Options("train", GetParam()));
  ASSERT_TRUE(stream.has_value()) << stream.error().ToString();
  std::set<std::uint64_t> seen;
  std::uint64_t batches = 0;
  const auto check = [&](const Batch& batch) {
    ++batches;
    EXPECT_EQ(WrongRecords(batch), 0U);
    for (const SampleId id : batch.sample_ids()) {
      EXPECT_TRUE(seen.insert(id.value()).second) << id.value() << " was repeated";
    }
  };
  auto held = (*stream)->Next();
  ASSERT_TRUE(held && *held);
  check(**held);

  daemon->Signal(SIGSTOP);
  // In a job of one node, the client pings after 20 s and waits 10 s for the answer; then it tries
  // to connect again. What has arrived comes first.
  std::string error;
  const auto has_given_up = [&] {
    auto batch = (*stream)->Next(std::chrono::steady_clock::now() + std::chrono::seconds(1));
    if (batch && *batch) check(**batch);
    if (!batch) error = batch.error().ToString();
    return error.find("accepts connections and does not answer") != std::string::npos;
  };
  ASSERT_TRUE(Eventually(has_given_up)) << error;
  daemon->Signal(SIGCONT);

  // Another reader takes all the memory that it can get, again and again.
  RawClient other(rig.socket_path());
  for (int epoch = 0; epoch < 8; ++epoch) {
    EXPECT_EQ(ReadEpoch(other, "other").error, "");
    ASSERT_EQ(WrongRecords(**held), 0U) << "after epoch " << epoch;
  }
  for (;;) {
    auto batch = (*stream)->Next();
    ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
    if (!*batch) break;
    check(**batch);
    ASSERT_EQ(WrongRecords(**held), 0U) << "after batch " << batches;
  }
  EXPECT_EQ(batches, kRecords / kBatch);
  EXPECT_EQ(seen.size(), kRecords);
  EXPECT_GE((*stream)->stats().reconnects, 1U) << "the connection was never given up";
  held->reset();
  EXPECT_TRUE((*stream)->Finish().has_value());
  EXPECT_TRUE(Eventually([&] {
    const v1::StatusReply status = other.Status();
    return status.streams_size() == 0 && status.slot_bytes_used() == 0;
  })) << other.Status().ShortDebugString();
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Deliveries, StoppedDaemonSlowTest,
                         ::testing::Values(Delivery::kContiguous, Delivery::kViews),
                         [](const auto& shown) {
                           return shown.param == Delivery::kViews ? "Views" : "Contiguous";
                         });

}  // namespace
}  // namespace forebay::integration
