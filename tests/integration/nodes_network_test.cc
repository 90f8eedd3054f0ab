// The four daemons of a job in four network namespaces, as on four machines: over addresses that
// others could reach, a link that is cut and comes back, and a slow one.
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/network_rig.h"
#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;
using Direction = NetworkRig::Direction;

class NodesNetworkTest : public NodesTest {
 protected:
  void SetUp() override {
    if (network_.missing().empty()) return;
    // Where CI is set these tests have to run: the user is root there, and the packages are there.
    if (std::getenv("CI") != nullptr) FAIL() << network_.missing();
    GTEST_SKIP() << network_.missing();
  }
  std::unique_ptr<DaemonProcess> StartNode(std::uint32_t rank,
                                           const std::vector<std::string>& more) override {
    std::vector<std::string> all = {"--set", "peer.interface=" + network_.subnet()};
    all.insert(all.end(), more.begin(), more.end());
    return rig_.StartNode(rank, kNodes, all, "f.toml", network_.node(rank));
  }
  void StartAllInTheNetwork() { StartAll({"--set", "peer.allow_plaintext=true"}); }

  NetworkRig network_{kNodes};
};

TEST_F(NodesNetworkTest, AddressesThatOthersReachMustBeAllowed) {
  daemons_.push_back(StartNode(0, {}));
  EXPECT_EQ(Outcome(0), "1");
  EXPECT_THAT(ReadText(rig_.node_log(0)),
              AllOf(HasSubstr("peer.allow_plaintext"), HasSubstr("10.77.0.1")));
}

TEST_F(NodesNetworkTest, TheStatusSaysThatPlaintextIsAllowed) {
  StartAllInTheNetwork();
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) ExpectConnections(rank, "plaintext_allowed");
}

class EncryptedNodesTest : public NodesNetworkTest {
 protected:
  // The options of a node that has this secret.
  std::vector<std::string> WithSecret(char letter) const {
    const std::string path = rig_.folder() + "/secret-" + letter;
    // Once: a daemon that was started before may just be reading it.
    if (!std::filesystem::exists(path)) std::ofstream(path) << std::string(32, letter);
    EXPECT_EQ(chmod(path.c_str(), 0600), 0);
    return {"--set", "peer.secret=file:" + path};
  }
};

TEST_F(EncryptedNodesTest, NodesWithASecretNeedNoPermissionForPlaintext) {
  StartAll(WithSecret('a'));
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  EXPECT_EQ(GfsBytesOfAll(), rig_.dataset_bytes());
  for (const v1::NodeStatus& node : NodesSeenBy(0)) EXPECT_TRUE(node.answers()) << node.error();
  EXPECT_THAT(ReadText(rig_.node_log(0)), HasSubstr("over encrypted connections"));
  ExpectConnections(0, "encrypted");
}

// Requests of 64 KiB and more, so the batches are large.
class LargeBatchesTest : public EncryptedNodesTest {
 protected:
  void ReadOneEpoch(std::uint32_t epoch) {
    const auto client = ClientOf(0);
    ExpectExact(ReadEpoch(*client, "train", shape_, {.epoch = epoch, .global_batch = 480}));
  }
  std::uint64_t ConnectionBytes() {
    std::uint64_t bytes = 0;
    for (const v1::NodeStatus& node : NodesSeenBy(0)) bytes += node.connection_bytes();
    return bytes;
  }
};

TEST_F(LargeBatchesTest, BytesOfSamplesComeByConnectionsOfTheirOwn) {
  StartAll(WithSecret('a'));
  std::uint32_t epoch = 0;
  // The connections are made when the nodes are first asked.
  EXPECT_TRUE(Eventually([&] {
    ReadOneEpoch(epoch++);
    const std::vector<v1::NodeStatus> nodes = NodesSeenBy(0);
    return std::all_of(nodes.begin() + 1, nodes.end(), [](const v1::NodeStatus& node) {
      return node.connection_bytes() > 0;
    });
  }));
  // A node that is killed ends its connections, and its rows are got elsewhere.
  daemons_[2]->Kill();
  ReadOneEpoch(epoch++);
  daemons_[2] = StartNode(2, WithSecret('a'));
  ASSERT_FALSE(daemons_[2]->ready_line().empty()) << ReadText(rig_.node_log(2));
  const std::uint64_t before = NodesSeenBy(0)[2].connection_bytes();
  EXPECT_TRUE(Eventually([&] {
    ReadOneEpoch(epoch++);
    return NodesSeenBy(0)[2].connection_bytes() > before;
  }));
}

TEST_F(LargeBatchesTest, WithoutPayloadConnectionsGrpcBringsTheBytes) {
  std::vector<std::string> options = WithSecret('a');
  options.insert(options.end(), {"--set", "peer.payload_connections=false"});
  StartAll(options);
  for (const std::uint32_t epoch : {0U, 1U}) ReadOneEpoch(epoch);
  EXPECT_GT(NodesSeenBy(0)[1].received_bytes(), 0U);
  EXPECT_EQ(ConnectionBytes(), 0U);
}

TEST_F(EncryptedNodesTest, ANodeWithAnotherSecretIsNamed) {
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) {
    daemons_.push_back(StartNode(rank, WithSecret(rank == 2 ? 'b' : 'a')));
  }
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) EXPECT_EQ(Outcome(rank), "1");
  EXPECT_THAT(ReadText(rig_.node_log(0)), HasSubstr("peer.secret (digest"));
}

// A list of hosts compares nothing before the nodes connect.
TEST_F(EncryptedNodesTest, ANodeOfAListWithAnotherSecretIsNamed) {
  const std::string list = rig_.folder() + "/hosts";
  {
    std::ofstream file(list);
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      file << "10.77.0." << rank + 1 << ":7300\n";
    }
  }
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) {
    std::vector<std::string> options = WithSecret(rank == 2 ? 'b' : 'a');
    options.insert(options.end(), {"--set", "nodes.rendezvous=hosts:" + list, "--set",
                                   "nodes.rendezvous_timeout_s=4"});
    daemons_.push_back(StartNode(rank, options));
  }
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) EXPECT_EQ(Outcome(rank), "1");
  EXPECT_THAT(ReadText(rig_.node_log(0)),
              AllOf(HasSubstr("1 of the 4 nodes"), HasSubstr("10.77.0.3:7300"),
                    HasSubstr("peer.secret must be the same"), HasSubstr("handshake failed")));
}

TEST_F(NodesNetworkTest, ARunGoesOnWithFewerNodesInTheMiddleOfAnEpoch) {
  const std::map<std::uint64_t, std::uint64_t> expected = DeliveredByOneNode(1);
  StartAllInTheNetwork();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  EpochCounts before = ReadTogether({0, 1, 2, 3}, {.epoch = 1, .end_step = steps_ / 2});
  EpochCounts after = ReadTogether({1, 3}, {.epoch = 1, .first_step = steps_ / 2});
  EXPECT_EQ(before.samples, steps_ / 2 * kGlobalBatch);
  EXPECT_EQ(before.samples + after.samples, records_);
  EXPECT_EQ(before.wrong + after.wrong, 0U);
  before.by_position.merge(after.by_position);
  EXPECT_EQ(before.by_position, expected);
  ExpectExact(ReadTogether({2, 0, 3}, 2));
  AwaitStagedEverywhere();
  EXPECT_EQ(GfsBytesOfAll(), rig_.dataset_bytes());
  for (const v1::NodeStatus& node : NodesSeenBy(0)) {
    if (node.is_self()) continue;
    EXPECT_THAT(node.address(), HasSubstr("10.77.0."));
    EXPECT_GT(node.received_bytes(), 0U);
  }
}

class CutLinkTest : public NodesNetworkTest,
                    public ::testing::WithParamInterface<std::vector<Direction>> {};

TEST_P(CutLinkTest, CostsTheShareOfTheNodeWhichIsUsedAgainLater) {
  const std::vector<std::uint32_t> others = {0, 1, 3};
  StartAllInTheNetwork();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  const std::uint64_t share = GfsBytes(2);
  const std::uint64_t failed = NodesSeenBy(0)[2].failed_calls();
  const auto cut = [this](std::uint64_t batches) {
    if (batches != steps_ / 2) return;
    for (const Direction direction : GetParam()) network_.Drop(2, direction);
  };
  // A batch that no node could complete would be an error of the epoch.
  ExpectExact(ReadTogether(others, {.epoch = 1, .after_batch = cut}));
  EXPECT_GT(network_.DroppedPackets(2), 0U);
  for (const std::uint32_t rank : others) {
    const v1::NodeStatus seen = NodesSeenBy(rank)[2];
    EXPECT_FALSE(seen.answers());
    EXPECT_GT(seen.failed_calls(), failed) << "as node " << rank << " sees it";
  }
  const std::uint64_t bound = rig_.dataset_bytes() + share;
  EXPECT_LE(GfsBytesOfAll(), bound + bound / 50);
  EXPECT_GT(GfsBytesOfAll(), rig_.dataset_bytes()) << "the share of the node was read again";

  // Node 2 takes the others for dead as well. While it does, it reads all that it needs by itself.
  for (const std::uint32_t rank : others) {
    EXPECT_TRUE(Eventually([this, rank] { return LogSays(2, rank, "counts as dead"); })) << rank;
  }
  network_.Restore(2);
  for (const std::uint32_t rank : others) {
    EXPECT_TRUE(Eventually([this, rank] { return LogSays(rank, 2, "answers again"); })) << rank;
    EXPECT_TRUE(Eventually([this, rank] { return LogSays(2, rank, "answers again"); })) << rank;
  }
  const std::uint64_t received = NodesSeenBy(0)[2].received_bytes();
  ExpectExact(ReadTogether(others, 2));
  EXPECT_GT(NodesSeenBy(0)[2].received_bytes(), received) << "node 2 is asked again";
  ExpectExact(ReadTogether({0, 1, 2, 3}, 3));
  EXPECT_LE(GfsBytesOfAll(), bound + bound / 50);
}

INSTANTIATE_TEST_SUITE_P(Directions, CutLinkTest,
                         ::testing::Values(std::vector{Direction::kReceived, Direction::kSent},
                                           std::vector{Direction::kSent}),
                         [](const auto& param) {
                           return param.param.size() == 2 ? "Both" : "AnswersOnly";
                         });

TEST_F(NodesNetworkTest, ADaemonThatReturnsBehindACutLinkJoinsTheOthersWhenItIsBack) {
  StartAllInTheNetwork();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  network_.Drop(2, Direction::kReceived);
  network_.Drop(2, Direction::kSent);
  daemons_[2]->Kill();
  daemons_[2] = StartNode(2, {"--set", "peer.allow_plaintext=true"});
  ASSERT_TRUE(Eventually([this] {
    return ReadText(rig_.node_log(2)).find("or for one of the list to answer") !=
           std::string::npos;
  })) << ReadText(rig_.node_log(2));
  EXPECT_GT(network_.DroppedPackets(2), 0U);
  network_.Restore(2);
  ASSERT_FALSE(daemons_[2]->ready_line().empty()) << ReadText(rig_.node_log(2));
  EXPECT_THAT(ReadText(rig_.node_log(2)), HasSubstr("joins the others again"));
  ExpectExact(ReadTogether({0, 1, 2, 3}, 1));
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) {
    daemons_[rank]->Signal(SIGTERM);
  }
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) EXPECT_EQ(Outcome(rank), "0");
}

// Rank 0 leads the rendezvous in which both wait. When it leaves it, the other one goes on.
TEST_F(NodesNetworkTest, DaemonsThatReturnBehindCutLinksDoNotEndEachOther) {
  StartAllInTheNetwork();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  for (const std::uint32_t rank : {0U, 2U}) {
    network_.Drop(rank, Direction::kReceived);
    network_.Drop(rank, Direction::kSent);
    daemons_[rank]->Kill();
  }
  for (const std::uint32_t rank : {0U, 2U}) {
    daemons_[rank] = StartNode(rank, {"--set", "peer.allow_plaintext=true"});
  }
  const auto has_answered_the_call = [this] {
    std::error_code unused;  // files come and go meanwhile
    for (const auto& job : std::filesystem::directory_iterator(rig_.rendezvous_path())) {
      for (const auto& file : std::filesystem::directory_iterator(job, unused)) {
        if (file.path().filename().string().starts_with("node.")) return true;
      }
    }
    return false;
  };
  ASSERT_TRUE(Eventually(has_answered_the_call)) << ReadText(rig_.node_log(2));
  for (const std::uint32_t rank : {0U, 2U}) {
    network_.Restore(rank);
    ASSERT_FALSE(daemons_[rank]->ready_line().empty()) << ReadText(rig_.node_log(rank));
    EXPECT_THAT(ReadText(rig_.node_log(rank)), HasSubstr("joins the others again"));
  }
  ExpectExact(ReadTogether({0, 1, 2, 3}, 1));
  for (const auto& daemon : daemons_) daemon->Signal(SIGTERM);
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) EXPECT_EQ(Outcome(rank), "0");
}

TEST_F(NodesNetworkTest, ASlowLinkCostsNoSecondRead) {
  // Less than the slowest machine reads, so that the link is what everybody waits for.
  network_.Limit(2, 40);
  StartAllInTheNetwork();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  ExpectExact(ReadTogether({0, 1, 3}, 1));
  EXPECT_GT(network_.DelayedPackets(2), 0U);
  AwaitStagedEverywhere();
  EXPECT_EQ(GfsBytesOfAll(), rig_.dataset_bytes());
}

}  // namespace
}  // namespace forebay::integration
