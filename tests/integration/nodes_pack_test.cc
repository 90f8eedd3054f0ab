// Four daemons of one job and a data set whose samples have to be decoded: a pack, or records that
// are compressed at staging. Epochs are exact to the byte, and the bytes that the daemons receive
// from each other are counted: rows of single samples in a global order, compressed extents where
// one reader takes all of their samples.
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

class NodesPackTest : public NodesTest, public ::testing::WithParamInterface<RecordFiles> {
 protected:
  NodesPackTest()
      : NodesTest(RigOptions{
            .records = 16'384,
            .files = GetParam(),
            .extent = "256KiB",
            .ram = "64MiB",
            .compress = GetParam() == RecordFiles::kPack ? "off" : "fast"}) {}
  // What all daemons have received from others, and how many samples.
  struct Received {
    std::uint64_t bytes = 0;
    std::uint64_t samples = 0;
  };
  Received ReceivedByAll() {
    Received all;
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      for (const v1::NodeStatus& node : NodesSeenBy(rank)) {
        all.bytes += node.received_bytes();
        if (node.is_self()) all.samples += node.other_samples();
      }
    }
    return all;
  }
};

TEST_P(NodesPackTest, AGlobalOrderMovesRowsAndNoExtents) {
  StartAll();
  AwaitStagedEverywhere();
  const Received before = ReceivedByAll();
  for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
    ExpectExact(ReadTogether({0, 1, 2, 3}, epoch));
  }
  const Received after = ReceivedByAll();
  const std::uint64_t samples = after.samples - before.samples;
  EXPECT_GT(samples, records_) << "three of four samples of two epochs";
  EXPECT_LT(samples, 2 * records_);
  EXPECT_EQ(after.bytes - before.bytes, samples * kRecordBytes) << "and not a byte more";
}

TEST_P(NodesPackTest, OneReaderOfWholeExtentsMovesThemCompressedAndOnce) {
  StartAll();
  AwaitStagedEverywhere();
  const Received before = ReceivedByAll();
  shape_ = {.mode = OrderMode::kBlock, .block_samples = 1024, .window_runs = 4};
  ExpectExact(ReadTogether({2}, 0));
  const Received after = ReceivedByAll();
  EXPECT_EQ(after.samples, before.samples);
  EXPECT_GT(after.bytes, before.bytes);
  EXPECT_LT(after.bytes - before.bytes, rig_.dataset_bytes() / 2);
}

TEST_P(NodesPackTest, AKilledDaemonCostsNoSample) {
  StartAll();
  AwaitStagedEverywhere();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  daemons_[2]->Kill();
  ExpectExact(ReadTogether({0, 1, 3}, 1));
}

INSTANTIATE_TEST_SUITE_P(Forms, NodesPackTest,
                         ::testing::Values(RecordFiles::kPack, RecordFiles::kOneFile),
                         [](const auto& tested) -> std::string {
                           return tested.param == RecordFiles::kPack ? "Pack"
                                                                     : "CompressedAtStaging";
                         });

}  // namespace
}  // namespace forebay::integration
