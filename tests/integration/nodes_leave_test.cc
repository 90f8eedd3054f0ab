// A node leaves a job that goes on: the others get from it what it has, so nothing is read from the
// GFS again, and their epochs stay exact.
#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NodesLeaveTest : public NodesTest {
 protected:
  // 32 MiB, of which three nodes can hold all.
  NodesLeaveTest() : NodesTest({.records = 8192, .ram = "24MiB"}) {}

  void StartAllStaged(const std::vector<std::string>& more = {}) {
    StartAll(more);
    ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
    AwaitStagedEverywhere();
  }
  // What `forebay drain --node` asks the daemon of `rank`.
  grpc::Status Leave(std::uint32_t rank, const std::string& node, std::uint32_t seconds = 60) {
    v1::DrainRequest request;
    request.set_node(node);
    request.set_hand_over_s(seconds);
    v1::DrainReply reply;
    const auto context = NewContext();
    return ClientOf(rank)->admin().Drain(context.get(), request, &reply);
  }
  std::uint64_t GfsBytesOf(const std::vector<std::uint32_t>& ranks) {
    std::uint64_t bytes = 0;
    for (const std::uint32_t rank : ranks) bytes += GfsBytes(rank);
    return bytes;
  }
};

class LeaveOfTest : public NodesLeaveTest, public ::testing::WithParamInterface<std::uint32_t> {};

// Another node is asked for it, or the node itself.
INSTANTIATE_TEST_SUITE_P(Asked, LeaveOfTest, ::testing::Values(0U, 2U));

TEST_P(LeaveOfTest, WhatANodeHasIsHandedOverBeforeItEnds) {
  StartAllStaged();
  const std::uint64_t before = GfsBytesOf({0, 1, 3});
  const grpc::Status asked = Leave(GetParam(), "2");
  ASSERT_TRUE(asked.ok()) << asked.error_message();
  EXPECT_EQ(Outcome(2), "0");
  EXPECT_THAT(ReadText(rig_.node_log(2)), HasSubstr("have taken over what they have room for"));
  for (const std::uint32_t epoch : {1U, 2U}) ExpectExact(ReadTogether({0, 1, 3}, epoch));
  EXPECT_EQ(GfsBytesOf({0, 1, 3}), before) << "what was handed over is not read again";
}

TEST_F(NodesLeaveTest, ANodeLeavesWhileTheOthersRead) {
  StartAllStaged();
  const std::uint64_t before = GfsBytesOf({0, 1, 3});
  bool has_asked = false;
  const auto leave = [&](std::uint64_t batches) {
    if (batches != 10) return;
    has_asked = Leave(0, "2").ok();
    EXPECT_EQ(Outcome(2), "0");
  };
  ExpectExact(ReadTogether({0, 1, 3}, {.epoch = 1, .after_batch = leave}));
  EXPECT_TRUE(has_asked);
  EXPECT_EQ(GfsBytesOf({0, 1, 3}), before);
}

TEST_F(NodesLeaveTest, TwoNodesLeaveAtTheSameTime) {
  StartAllStaged();
  const std::uint64_t before = GfsBytesOf({0, 3});
  EXPECT_TRUE(Leave(0, "1").ok());
  EXPECT_TRUE(Leave(3, "2").ok());
  for (const std::uint32_t rank : {1U, 2U}) EXPECT_EQ(Outcome(rank), "0");
  ExpectExact(ReadTogether({0, 3}, 1));
  EXPECT_EQ(GfsBytesOf({0, 3}), before);
}

TEST_F(NodesLeaveTest, WhatADeadNodeHadIsNotReadForThat) {
  StartAllStaged({"--set", "nodes.suspicion_s=1"});
  daemons_[1]->Kill();
  for (const std::uint32_t asked : {0U, 2U, 3U}) {
    ASSERT_TRUE(Eventually([&] { return NodesSeenBy(asked)[1].is_left_out(); })) << asked;
  }
  const std::uint64_t before = GfsBytesOf({0, 3});
  EXPECT_TRUE(Leave(0, "2").ok());
  EXPECT_EQ(Outcome(2), "0");
  EXPECT_THAT(ReadText(rig_.node_log(2)), HasSubstr("have taken over what they have room for"));
  EXPECT_EQ(GfsBytesOf({0, 3}), before);
  ExpectExact(ReadTogether({0, 3}, 1));
}

TEST_F(NodesLeaveTest, ANodeThatIsKilledWhileItLeavesCostsItsShareAtMost) {
  StartAllStaged();
  const std::uint64_t before = GfsBytesOf({0, 1, 3}), share = GfsBytes(2);
  EXPECT_TRUE(Leave(0, "2").ok());
  daemons_[2]->Kill();
  for (const std::uint32_t epoch : {1U, 2U}) ExpectExact(ReadTogether({0, 1, 3}, epoch));
  EXPECT_LE(GfsBytesOf({0, 1, 3}), before + share);
}

// Another node stands still, so the one that leaves is there until it is killed, and the daemon in
// its place until the other node answers.
TEST_F(NodesLeaveTest, ADaemonThatIsStartedAgainGoesOnToLeave) {
  StartAllStaged({"--set", "nodes.suspicion_s=60"});  // nobody counts as dead meanwhile
  daemons_[1]->Signal(SIGSTOP);
  EXPECT_TRUE(Leave(0, "2").ok());
  daemons_[2]->Kill();
  daemons_[2] = StartNode(2, {"--set", "nodes.suspicion_s=60"});
  ASSERT_FALSE(daemons_[2]->ready_line().empty()) << ReadText(rig_.node_log(2));
  EXPECT_THAT(ReadText(rig_.node_log(2)), HasSubstr("so this one goes on to leave"));
  for (const std::uint32_t asked : {0U, 2U, 3U}) {
    EXPECT_TRUE(Eventually([&] { return NodesSeenBy(asked)[2].is_leaving(); })) << asked;
  }
  daemons_[1]->Signal(SIGCONT);
  EXPECT_EQ(Outcome(2), "0");
  ExpectExact(ReadTogether({0, 1, 3}, 1));
}

TEST_F(NodesLeaveTest, NodesThatDoNotAnswerAreNotWaitedForForEver) {
  StartAllStaged();
  daemons_[1]->Signal(SIGSTOP);
  EXPECT_TRUE(Leave(0, "2", /*seconds=*/1).ok());
  EXPECT_EQ(Outcome(2), "0");
  EXPECT_THAT(ReadText(rig_.node_log(2)), HasSubstr("have not taken over yet"));
  daemons_[1]->Signal(SIGCONT);
  ExpectExact(ReadTogether({0, 1, 3}, 1));
}

// It waits for a node that stands still, so it is still there.
TEST_F(NodesLeaveTest, TheStatusSaysWhichNodeLeaves) {
  StartAllStaged({"--set", "nodes.suspicion_s=60"});  // nobody counts as dead meanwhile
  const auto leaving = [this](std::uint32_t asked) {
    std::vector<std::uint32_t> ranks;
    for (const v1::NodeStatus& node : NodesSeenBy(asked)) {
      if (node.is_leaving()) ranks.push_back(node.rank());
    }
    return ranks;
  };
  EXPECT_THAT(leaving(0), IsEmpty());
  daemons_[1]->Signal(SIGSTOP);
  EXPECT_TRUE(Leave(0, "2").ok());
  for (const std::uint32_t asked : {0U, 2U, 3U}) {
    EXPECT_TRUE(Eventually([&] { return leaving(asked) == std::vector<std::uint32_t>{2}; }))
        << asked;
  }
  daemons_[1]->Signal(SIGCONT);
  EXPECT_EQ(Outcome(2), "0");
}

TEST_F(NodesLeaveTest, NamesOfNoNodeAndTimesThatCannotBeAreRefused) {
  StartAll();
  EXPECT_EQ(Leave(0, "node-of-nobody").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Leave(0, "4").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Leave(0, "2", 0).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Leave(0, "2", 86'401).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  daemons_[2]->Kill();
  const grpc::Status silent = Leave(0, "2");
  EXPECT_EQ(silent.error_code(), grpc::StatusCode::UNAVAILABLE) << silent.error_message();
  ExpectExact(ReadTogether({0, 1, 3}, 0));
}

TEST(NodeLeaveTest, TheOnlyNodeOfAJobCannotLeave) {
  const DaemonRig rig({.records = 64});
  const auto daemon = rig.Start();
  RawClient client(rig.socket_path());
  v1::DrainRequest request;
  request.set_node("0");
  request.set_hand_over_s(1);
  v1::DrainReply reply;
  const grpc::Status refused = client.admin().Drain(NewContext().get(), request, &reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("one node"));
}

}  // namespace
}  // namespace forebay::integration
