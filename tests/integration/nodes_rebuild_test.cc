// A rebuild in a job of several nodes, after the bytes of an object have changed and its size and
// modification time have not: so the catalogs of before and after it have the same fingerprint, and
// only the number of rebuilds tells nodes that have old bytes from those that have new ones.
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class NodesRebuildTest : public NodesTest {
 protected:
  NodesRebuildTest() : NodesTest({.records = 8192, .ram = "24MiB"}) {}

  // Changes a byte of each record. IsRecord then finds that the record is not that of its id, so
  // the tests see a new record as a wrong one.
  void ChangeEveryRecord() {
    const std::string path = rig_.gfs_path() + "/x.bin";
    const auto time = std::filesystem::last_write_time(path);
    std::string bytes = ReadText(path);
    ASSERT_EQ(bytes.size(), rig_.dataset_bytes());
    for (std::uint64_t at = 100; at < bytes.size(); at += kRecordBytes) {
      bytes[at] = static_cast<char>(bytes[at] ^ 1);
    }
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << bytes;
    std::filesystem::last_write_time(path, time);
    ASSERT_EQ(std::filesystem::file_size(path), rig_.dataset_bytes());
  }
  void Rebuild(std::uint32_t rank) {
    const v1::DatasetStatus status = AwaitStaged(*ClientOf(rank), /*rebuild=*/true);
    EXPECT_EQ(status.state(), "staged") << "node " << rank << ": " << status.error();
  }
  // Reads an epoch on one node, and calls `change` early in it.
  EpochCounts ReadAcross(std::uint32_t rank, const std::function<void()>& change) {
    const auto client = ClientOf(rank);
    return ReadEpoch(*client, "open", shape_,
                     {.global_batch = kGlobalBatch, .after_batch = [&](std::uint64_t batches) {
                        if (batches == 3) change();
                      }});
  }
  EpochCounts Read(std::uint32_t rank) { return ReadAcross(rank, [] {}); }
  void ExpectChanged(const EpochCounts& counts) {
    EXPECT_EQ(counts.error, "");
    EXPECT_EQ(counts.samples, records_);
    EXPECT_EQ(counts.wrong, records_) << "what is wrong is what was changed";
  }
};

TEST_F(NodesRebuildTest, AnOpenStreamOfAnotherNodeGetsNoneOfTheNewBytes) {
  StartAll();
  AwaitStagedEverywhere();
  ChangeEveryRecord();
  const EpochCounts counts = ReadAcross(3, [this] { Rebuild(0); });
  EXPECT_EQ(counts.wrong, 0U);
  EXPECT_LT(counts.samples, records_);
  EXPECT_THAT(counts.error,
              AllOf(HasSubstr("has been rebuilt 1 times on node "),
                    HasSubstr("and 0 times on the node that asks: call 'forebay stage --rebuild "),
                    HasSubstr("on the node that asks, and open the stream again")));

  const EpochCounts on_rebuilt = Read(0);
  EXPECT_LT(on_rebuilt.samples, records_) << "other nodes have the old bytes";
  EXPECT_THAT(on_rebuilt.error,
              AllOf(HasSubstr("has been rebuilt 0 times on node 127.0.0.1:"),
                    HasSubstr("and 1 times on the node that asks: call 'forebay stage --rebuild "),
                    HasSubstr("' on node 127.0.0.1:")));

  for (const std::uint32_t rank : {1U, 2U, 3U}) Rebuild(rank);
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) ExpectChanged(Read(rank));
}

TEST_F(NodesRebuildTest, AnOpenStreamOfTheNodeThatIsRebuiltEnds) {
  StartAll();
  AwaitStagedEverywhere();
  ChangeEveryRecord();
  const EpochCounts counts = ReadAcross(0, [this] {
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) Rebuild(rank);
  });
  EXPECT_EQ(counts.wrong, 0U);
  EXPECT_LT(counts.samples, records_);
  EXPECT_THAT(counts.error, HasSubstr("open the stream again"));
  ExpectChanged(Read(0));
}

// It does not know of the rebuild, so it might have bytes of before.
TEST_F(NodesRebuildTest, ANodeThatComesBackIsLeftOutUntilItIsRebuiltToo) {
  StartAll();
  AwaitStagedEverywhere();
  ChangeEveryRecord();
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) Rebuild(rank);
  daemons_[2]->Kill();
  daemons_[2] = StartNode(2, {});
  ASSERT_FALSE(daemons_[2]->ready_line().empty()) << ReadText(rig_.node_log(2));
  EXPECT_THAT(ReadText(rig_.node_log(2)), HasSubstr("joins the others again"));
  for (const std::uint32_t rank : {0U, 1U, 3U}) ExpectChanged(Read(rank));
  constexpr const char* kWhy = "rebuilt 1 times on another node, and 0 times on node ";
  EXPECT_THAT(ReadText(rig_.node_log(2)), HasSubstr(kWhy));
  for (const std::uint32_t rank : {0U, 1U, 3U}) {
    EXPECT_THAT(ReadText(rig_.node_log(rank)), Not(HasSubstr(kWhy))) << "it is not lost";
  }
  EXPECT_THAT(Read(2).error, HasSubstr("0 times on the node that asks"));
  Rebuild(2);
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) ExpectChanged(Read(rank));
}

TEST_F(NodesRebuildTest, ASecondRebuildOnOneNodeIsCalledOnTheOthersToo) {
  StartAll();
  AwaitStagedEverywhere();
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) Rebuild(rank);
  ExpectExact(Read(1));
  Rebuild(2);
  EXPECT_THAT(Read(1).error, HasSubstr("has been rebuilt 2 times on node "));
  for (const std::uint32_t rank : {0U, 1U, 3U}) Rebuild(rank);
  ExpectExact(Read(1));
}

}  // namespace
}  // namespace forebay::integration
