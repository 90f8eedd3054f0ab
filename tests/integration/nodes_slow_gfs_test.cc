// Four daemons over an emulated GFS that does not answer one of them, or is slow for all: nobody
// waits for the one, and the others are not taken for lost.
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/gfs_emu/testing/gfs_process.h"
#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NodesSlowGfsTest : public NodesTest {
 protected:
  NodesSlowGfsTest()
      : NodesTest({.records = 16'384, .ram = "24MiB", .served = "mount"}) {}
  // With these options of the GFS.
  void Mount(const std::vector<std::string>& options) {
    if (!bench::GfsProcess::IsPossible()) GTEST_SKIP() << "no /dev/fuse on this machine";
    std::vector<std::string> arguments = {rig_.gfs_path(), rig_.folder() + "/mount"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    gfs_ = std::make_unique<bench::GfsProcess>(arguments);
    ASSERT_TRUE(gfs_->AwaitReady());
  }
  void TearDown() override {
    NodesTest::TearDown();
    if (gfs_) {
      EXPECT_TRUE(gfs_->Control("clear"));
    }
    daemons_.clear();
    gfs_.reset();
  }
  // What the GFS has answered to all.
  std::uint64_t BytesOfGfs() { return gfs_->Counters()["total"]["bytes"].get<std::uint64_t>(); }
  // From now on the GFS answers no reads of this node.
  void HangReadsOf(std::uint32_t rank) {
    ASSERT_TRUE(gfs_->Control("fault hang * ops=read count=0 client=" +
                              std::to_string(daemons_[rank]->pid())));
  }

  static constexpr std::uint32_t kSlow = 2;
  std::unique_ptr<bench::GfsProcess> gfs_;
};

TEST_F(NodesSlowGfsTest, ANodeWhoseGfsAloneHangsYieldsAndTheEpochIsExact) {
  Mount({});
  if (IsSkipped()) return;
  StartAll();
  HangReadsOf(kSlow);
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  EXPECT_TRUE(ClientOf(kSlow)->Status().gfs().is_yielding());
  const v1::NodeStatus seen = NodesSeenBy(0)[kSlow];
  EXPECT_TRUE(seen.is_yielding());
  EXPECT_FALSE(seen.is_left_out()) << "it still supplies what it has";
  for (const std::uint32_t rank : {0U, 1U, 3U}) {
    EXPECT_FALSE(ClientOf(rank)->Status().gfs().is_yielding()) << "node " << rank;
  }
  EXPECT_THAT(ReadText(rig_.node_log(kSlow)), HasSubstr("look at its mount here"));
  // The substitutes have read its share once.
  EXPECT_LE(GfsBytesOfAll(), rig_.dataset_bytes() + rig_.dataset_bytes() / 50);
}

// Each node has two of eight requests, and three nodes read nothing.
TEST_F(NodesSlowGfsTest, ANodeThatAloneReadsTheGfsBorrowsRequests) {
  Mount({});
  if (IsSkipped()) return;
  std::ofstream(rig_.folder() + "/f.toml", std::ios::app) << "stage_at_start = false\n";
  StartAll({"--set", "stage.job_requests=8", "--set", "stage.request=64KiB"});
  ASSERT_TRUE(gfs_->Control("fault stall * ops=read count=0 ms=100"));
  const auto client = ClientOf(kSlow);
  const auto context = NewContext();
  const auto staging = client->admin().Stage(context.get(), {});
  v1::GfsCap cap;
  EXPECT_TRUE(Eventually([&] {
    cap = client->Status().gfs().caps(0);
    return cap.borrowed() > 0;
  }));
  EXPECT_EQ(cap.name(), "requests");
  EXPECT_EQ(cap.node_rate(), 2);
  EXPECT_LE(cap.rate(), 5) << "each of the others keeps one";
  EXPECT_GT(cap.waited_s(), 0);
  EXPECT_TRUE(gfs_->Control("clear"));
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
}

}  // namespace
}  // namespace forebay::integration
