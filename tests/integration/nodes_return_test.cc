// Daemons that are killed and started again while the others of their job go on: they join the
// others again without a rendezvous, and find on their SSD what they had.
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NodesReturnTest : public NodesTest {
 protected:
  NodesReturnTest() : NodesTest({.records = 8192, .ram = "24MiB", .ssd = true}) {}  // 32 MiB

  void StartAgain(std::uint32_t rank) {
    daemons_[rank] = StartNode(rank, {});
    ASSERT_FALSE(daemons_[rank]->ready_line().empty()) << ReadText(rig_.node_log(rank));
  }
  std::string KeptList(std::uint32_t rank) const {
    return std::filesystem::path(rig_.node_socket(rank)).parent_path() / "forebayd.nodes";
  }
};

class ReturnOfTest : public NodesReturnTest, public ::testing::WithParamInterface<std::uint32_t> {};

// Rank 0 has led the rendezvous.
INSTANTIATE_TEST_SUITE_P(Ranks, ReturnOfTest, ::testing::Values(0U, 2U));

TEST_P(ReturnOfTest, AKilledDaemonJoinsTheOthersAgainAndFindsItsSsd) {
  const std::uint32_t lost = GetParam();
  std::vector<std::uint32_t> others;
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    if (rank != lost) others.push_back(rank);
  }
  StartAll();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  daemons_[lost]->Kill();
  ExpectExact(ReadTogether(others, 1));
  StartAgain(lost);
  EXPECT_THAT(ReadText(rig_.node_log(lost)), HasSubstr("joins the others again"));
  for (const std::uint32_t rank : others) {
    EXPECT_TRUE(Eventually([&] { return NodesSeenBy(rank)[lost].answers(); })) << rank;
  }
  ExpectExact(ReadTogether({0, 1, 2, 3}, 2));
  ExpectExact(ReadTogether(others, 3));
  AwaitStagedEverywhere();
  EXPECT_EQ(GfsBytes(lost), 0U) << "what it owns was on its SSD";

  for (const auto& daemon : daemons_) daemon->Signal(SIGTERM);
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    EXPECT_EQ(Outcome(rank), "0");
    EXPECT_FALSE(std::filesystem::exists(KeptList(rank))) << "a daemon that ends leaves none";
  }
}

TEST_F(NodesReturnTest, ADaemonIsKilledAgainAndAgainWhileAnEpochIsRead) {
  StartAll();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  for (std::uint32_t epoch = 1; epoch <= 3; ++epoch) {
    const auto replace = [this, &epoch](std::uint64_t batches) {
      if (batches != 10 * epoch) return;
      daemons_[3]->Kill();
      daemons_[3] = StartNode(3, {});
    };
    ExpectExact(ReadTogether({0, 1, 2}, {.epoch = epoch, .after_batch = replace}));
    ASSERT_FALSE(daemons_[3]->ready_line().empty()) << ReadText(rig_.node_log(3));
  }
  ExpectExact(ReadTogether({0, 1, 2, 3}, 4));
}

TEST_F(NodesReturnTest, DaemonsThatWereAllKilledMeetAsAtFirst) {
  StartAll();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  for (const auto& daemon : daemons_) daemon->Kill();
  EXPECT_TRUE(std::filesystem::exists(KeptList(1)));
  daemons_.clear();
  StartAll();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 1));
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    EXPECT_THAT(ReadText(rig_.node_log(rank)), Not(HasSubstr("joins the others again")));
  }
}

}  // namespace
}  // namespace forebay::integration
