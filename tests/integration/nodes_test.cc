// Several daemons of one job, on one machine: they find each other in a directory, read the data
// set from the GFS once for all, and serve every rank its samples, also after one of them was
// killed, and until the readers of all have ended.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"
#include "tests/integration/damage.h"
#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A TCP port of the loopback interface that nobody listens on now. It lies outside the range from
// which the kernel chooses ports for those who ask for any (ip_local_port_range begins at 32768),
// because other tests do that at the same time.
std::uint16_t FreePort() {
  constexpr int kFirst = 20'000;
  constexpr int kPorts = 12'000;
  static int next = getpid();
  for (int tries = 0; tries < kPorts; ++tries) {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto port = static_cast<std::uint16_t>(kFirst + next++ % kPorts);
    sockaddr_in address{
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}, .sin_zero = {}};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto* const raw = reinterpret_cast<const sockaddr*>(&address);
    if (bind(listener.get(), raw, sizeof(address)) == 0) return port;
  }
  ADD_FAILURE() << "no port is free";
  return 0;
}

TEST_F(NodesTest, EveryByteIsReadFromTheGfsOnceForAllNodes) {
  StartAll();
  for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
    ExpectExact(ReadTogether({0, 1, 2, 3}, epoch));
  }
  AwaitStagedEverywhere();
  std::uint64_t bytes = 0;
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    const std::uint64_t of_node = GfsBytes(rank);
    EXPECT_GT(of_node, 0U) << "each node has a share";
    EXPECT_LT(of_node, rig_.dataset_bytes() / 2) << "and none has most of it";
    bytes += of_node;
  }
  EXPECT_EQ(bytes, rig_.dataset_bytes());
}

TEST_F(NodesTest, TheRunGoesOnWithOtherNumbersOfNodes) {
  StartAll();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  ExpectExact(ReadTogether({1, 3}, 1));
  ExpectExact(ReadTogether({2}, 2));
  ExpectExact(ReadTogether({3, 2, 1}, 3));
}

TEST_F(NodesTest, AKilledDaemonCostsItsShareAndNoSample) {
  StartAll();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  const std::uint64_t lost = GfsBytes(2);
  daemons_[2]->Kill();
  ExpectExact(ReadTogether({0, 1, 3}, 1));
  ExpectExact(ReadTogether({0, 1, 3}, 2));
  std::uint64_t bytes = lost;
  for (const std::uint32_t rank : {0U, 1U, 3U}) bytes += GfsBytes(rank);
  EXPECT_EQ(bytes, rig_.dataset_bytes() + lost);
}

// Its connections stay open, so requests to it would end only when gRPC finds them silent.
TEST_F(NodesTest, AStoppedDaemonKeepsNobodyWaiting) {
  StartAll({"--set", "nodes.suspicion_s=2"});
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  const std::uint64_t share = GfsBytes(2);
  daemons_[2]->Signal(SIGSTOP);
  ExpectExact(ReadTogether({0, 1, 3}, 1));
  for (const std::uint32_t rank : {0U, 1U, 3U}) {
    EXPECT_TRUE(Eventually([&] { return LogSays(rank, 2, "counts as dead"); })) << rank;
  }
  daemons_[2]->Signal(SIGCONT);
  for (const std::uint32_t rank : {0U, 1U, 3U}) {
    EXPECT_TRUE(Eventually([&] { return LogSays(rank, 2, "answers again"); })) << rank;
  }
  ExpectExact(ReadTogether({0, 1, 2, 3}, 2));
  EXPECT_LE(GfsBytesOfAll(), rig_.dataset_bytes() + share);
  EXPECT_GT(GfsBytesOfAll(), rig_.dataset_bytes());
  EXPECT_THAT(ReadText(rig_.node_log(2)), Not(HasSubstr("counts as dead")))
      << "it was node 2 that did not listen";
}

// Probes would find it silent only after the end of this test.
TEST_F(NodesTest, RequestsToAStoppedDaemonAreLateAndGoToItsSubstitutes) {
  StartAll({"--set", "nodes.suspicion_s=3600", "--set", "nodes.late_ms=2000"});
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 1));  // from tiers: the usual time of answers is known
  const std::uint64_t share = GfsBytes(2);
  const std::uint64_t before = GfsBytesOfAll();
  daemons_[2]->Signal(SIGSTOP);
  ExpectExact(ReadTogether({0, 1, 3}, 2));
  EXPECT_TRUE(LogSays(0, 2, "is late") || LogSays(1, 2, "is late") || LogSays(3, 2, "is late"));
  daemons_[2]->Signal(SIGCONT);
  ExpectExact(ReadTogether({0, 1, 2, 3}, 3));
  EXPECT_LE(GfsBytesOfAll(), before + share);
}

// The share of a killed daemon has to be read again, and its bytes were altered meanwhile behind
// the size and modification time of the file. No node that is left has read them before.
TEST_F(NodesTest, AlteredBytesOfAKilledDaemonsShareAreNeverDelivered) {
  StartAll();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  daemons_[2]->Kill();
  const std::string file = rig_.folder() + "/gfs/x.bin";
  const auto time = std::filesystem::last_write_time(file);
  for (std::uint64_t byte = 1000; byte < rig_.dataset_bytes(); byte += 1 << 20) {
    ASSERT_TRUE(FlipBitInFile(file, byte, 3)) << "one in each extent";
  }
  std::filesystem::last_write_time(file, time);
  for (const std::uint32_t rank : {0U, 1U, 3U}) {
    const auto client = ClientOf(rank);
    const EpochCounts counts =
        ReadEpoch(*client, "train",
                  {.mode = OrderMode::kBlock, .block_samples = 256, .window_runs = 2},
                  {.epoch = 1, .global_batch = 8});
    EXPECT_EQ(counts.wrong, 0U) << "node " << rank;
    EXPECT_EQ(counts.distinct, counts.samples);
    EXPECT_EQ(counts.samples + 8 * counts.errors.size(), records_);
    EXPECT_GT(counts.samples, records_ / 4) << "what the other nodes have is right";
    EXPECT_FALSE(counts.errors.empty());
    for (const v1::BatchError& error : counts.errors) {
      EXPECT_EQ(error.code(), static_cast<std::uint32_t>(ErrorCode::kDataLoss));
      EXPECT_THAT(error.message(), AllOf(HasSubstr("object 'x.bin', extent "),
                                         HasSubstr("changed since first read")));
    }
  }
}

// A quarter of the set is a node's own share, and it has copies of another quarter.
class CopiesTest : public NodesTest {
 protected:
  CopiesTest() : NodesTest({.records = 16'384, .ram = "64MiB", .copies = "16MiB"}) {}
};

TEST_F(CopiesTest, AreReadHereCostNoReadOfTheGfsAndAreFoundAgain) {
  StartAll();
  AwaitStagedEverywhere();
  std::uint64_t here_bytes = 0;
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    const v1::DatasetStatus status = ClientOf(rank)->Status().datasets(0);
    EXPECT_EQ(status.copied_bytes(), 16 * limits::kMiB);
    here_bytes += status.total_bytes() - status.other_nodes_bytes();
  }
  EXPECT_EQ(here_bytes, rig_.dataset_bytes() + kNodes * 16 * limits::kMiB);
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  EXPECT_EQ(GfsBytesOfAll(), rig_.dataset_bytes());
  std::uint64_t from_others = 0;
  for (const v1::NodeStatus& node : NodesSeenBy(0)) from_others += node.other_samples();
  const double predicted = static_cast<double>(here_bytes) /
                           static_cast<double>(kNodes * rig_.dataset_bytes());
  const double here = 1 - static_cast<double>(from_others) / static_cast<double>(records_);
  // Five standard deviations of the 16,384 samples, of which each is one here or elsewhere.
  EXPECT_NEAR(here, predicted, 0.02);
  // Each daemon predicts the same for itself; its reader has a quarter of the samples.
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    const v1::NodeStatus self = NodesSeenBy(rank)[rank];
    ASSERT_GT(self.samples(), 0U);
    const double measured = 1 - static_cast<double>(self.other_samples()) /
                                    static_cast<double>(self.samples());
    EXPECT_NEAR(static_cast<double>(self.predicted_local_millionths()) / 1e6, measured, 0.04);
  }

  // The next daemons find their shares and the same copies on SSD.
  for (const auto& daemon : daemons_) daemon->Signal(SIGTERM);
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) ASSERT_EQ(Outcome(rank), "0");
  daemons_.clear();
  StartAll();
  AwaitStagedEverywhere();
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    EXPECT_EQ(ClientOf(rank)->Status().datasets(0).copied_bytes(), 16 * limits::kMiB);
  }
  ExpectExact(ReadTogether({0, 1, 2, 3}, 1));
  EXPECT_EQ(GfsBytesOfAll(), 0U);
}

TEST_F(CopiesTest, OfHomeSharesSpareModePartialAllButItsExchange) {
  constexpr std::uint32_t kExchange = 100'000;  // q = 0.1
  shape_ = {.mode = OrderMode::kPartial,
            .block_samples = 256,  // an extent
            .canonical_nodes = kNodes,
            .exchange_millionths = kExchange,
            .global_batch = kGlobalBatch};
  StartAll();
  AwaitStagedEverywhere();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));  // says which samples each node reads
  AwaitStagedEverywhere();
  const auto from_others = [this] {
    std::uint64_t samples = 0;
    for (const v1::NodeStatus& node : NodesSeenBy(0)) samples += node.other_samples();
    return samples;
  };
  const std::uint64_t before = from_others();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 1));
  // Only samples of the exchange come from others, of which some are here by chance.
  EXPECT_LE(from_others() - before, records_ / 10);
  EXPECT_GE(from_others() - before, records_ / 30);
  EXPECT_EQ(GfsBytesOfAll(), rig_.dataset_bytes());
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    EXPECT_LE(ClientOf(rank)->Status().datasets(0).copied_bytes(), 16 * limits::kMiB);
  }
}

// A data set of twice the tiers of all nodes together.
class BeyondTheTiersTest : public NodesTest {
 protected:
  BeyondTheTiersTest()
      : NodesTest({.records = 32'768, .extent = "512KiB", .ram = "8MiB"}) {
    shape_ = {.mode = OrderMode::kBlock, .block_samples = 128, .window_runs = 8};
  }
  std::uint64_t BytesOnNoTier() {
    std::uint64_t bytes = 0;
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      bytes += ClientOf(rank)->Status().datasets(0).unstaged_bytes();
    }
    return bytes;
  }
};

TEST_F(BeyondTheTiersTest, AnEpochInBlocksReadsWhatIsOnNoTierOnceForAllNodes) {
  StartAll({"--set", "tier.ssd.capacity=8MiB"});
  ExpectExact(ReadTogether({0, 1, 2, 3}, {}, /*in_step=*/true));
  AwaitStagedEverywhere();
  const std::uint64_t on_no_tier = BytesOnNoTier();
  EXPECT_GT(on_no_tier, rig_.dataset_bytes() / 2);
  for (std::uint32_t epoch = 1; epoch < 3; ++epoch) {
    const std::uint64_t before = GfsBytesOfAll();
    ExpectExact(ReadTogether({0, 1, 2, 3}, {.epoch = epoch}, /*in_step=*/true));
    const std::uint64_t read = GfsBytesOfAll() - before;
    // Some extents are still there from the epoch before, and some are evicted too early: more the
    // more one reader is behind the others. Reading for one node alone would take four times as
    // much.
    EXPECT_LE(read, on_no_tier + on_no_tier * 3 / 10);
  }
}

TEST_F(BeyondTheTiersTest, AGlobalOrderIsRefusedWithTheNumbersOfTheNode) {
  StartAll({"--set", "tier.ssd.capacity=8MiB"});
  AwaitStagedEverywhere();
  shape_ = {};
  const auto client = ClientOf(1);
  const EpochCounts counts = ReadEpoch(*client, "train", shape_, {.global_batch = kGlobalBatch});
  EXPECT_THAT(counts.error,
              AllOf(HasSubstr("order mode 'global' needs all of 'records' on the tiers"),
                    HasSubstr("of the share of this node"), HasSubstr("tier.ram.capacity"),
                    HasSubstr("mode 'block'")));
  EXPECT_EQ(counts.samples, 0U);
}

TEST_F(NodesTest, NothingIsLeftInTheDirectoryWhenAllHaveEnded) {
  StartAll();
  EXPECT_FALSE(std::filesystem::is_empty(rig_.rendezvous_path()));
  AwaitStagedEverywhere();  // a disk that still writes is not waited for at the end
  for (const auto& daemon : daemons_) daemon->Signal(SIGTERM);
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) EXPECT_EQ(Outcome(rank), "0");
  EXPECT_TRUE(std::filesystem::is_empty(rig_.rendezvous_path()));
}

TEST_F(NodesTest, NodesThatHaveFinishedServeTheOthersUntilTheLastHas) {
  StartAll();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  for (const std::uint32_t rank : {0U, 1U, 2U}) Finish(rank);
  ExpectExact(ReadTogether({3}, 1));
  std::uint64_t bytes = 0;
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) bytes += GfsBytes(rank);
  EXPECT_EQ(bytes, rig_.dataset_bytes()) << "they still gave what they hold";
  Finish(3);
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) EXPECT_EQ(Outcome(rank), "0");
  EXPECT_TRUE(std::filesystem::is_empty(rig_.rendezvous_path()));
}

TEST_F(NodesTest, ALostNodeIsNotWaitedFor) {
  StartAll();
  for (const std::uint32_t rank : {0U, 1U}) Finish(rank);
  daemons_[3]->Kill();
  Finish(2);
  for (const std::uint32_t rank : {0U, 1U, 2U}) EXPECT_EQ(Outcome(rank), "0");
  EXPECT_THAT(ReadText(rig_.node_log(0)), HasSubstr("does not answer"));
}

TEST_F(NodesTest, AnOtherConfigurationIsRefusedByAllAndNamesTheNodes) {
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    daemons_.push_back(rig_.StartNode(rank, 3));
  }
  std::string text = ReadText(rig_.folder() + "/f.toml");
  const std::string extent = "extent = \"1MiB\"";
  ASSERT_THAT(text, HasSubstr(extent));
  text.replace(text.find(extent), extent.size(), "extent = \"2MiB\"");
  std::ofstream(rig_.folder() + "/other.toml") << text;
  daemons_.push_back(rig_.StartNode(2, 3, {}, "other.toml"));
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(Outcome(rank), "1");
    EXPECT_THAT(ReadText(rig_.node_log(rank)),
                AllOf(HasSubstr("data sets (digest of their configuration)"), HasSubstr("rank 2")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(rig_.rendezvous_path()));
}

TEST_F(NodesTest, ANodeThatNeverComesIsNamed) {
  for (const std::uint32_t rank : {0U, 2U}) {
    daemons_.push_back(rig_.StartNode(rank, 3, {"--set", "nodes.rendezvous_timeout_s=2"}));
  }
  EXPECT_EQ(Outcome(0), "1");
  EXPECT_EQ(Outcome(1), "1");
  EXPECT_THAT(ReadText(rig_.node_log(0)), HasSubstr("1"));
  EXPECT_TRUE(std::filesystem::is_empty(rig_.rendezvous_path()));
}

TEST_F(NodesTest, ADaemonThatWaitsForOthersEndsWhenItIsAskedTo) {
  daemons_.push_back(rig_.StartNode(0, 2));
  ASSERT_TRUE(Eventually([this] {
    return std::filesystem::exists(rig_.rendezvous_path()) &&
           !std::filesystem::is_empty(rig_.rendezvous_path());
  }));
  daemons_[0]->Signal(SIGTERM);
  EXPECT_EQ(Outcome(0), "0");
  EXPECT_TRUE(std::filesystem::is_empty(rig_.rendezvous_path()));
}

// With a list of hosts nothing is exchanged, so the daemons ping each other until all are there.
TEST_F(NodesTest, AListOfHostsWaitsForEveryNodeOnIt) {
  const std::string list = rig_.folder() + "/hosts";
  // Ports that were free a moment ago.
  std::ofstream(list) << "127.0.0.1:" << FreePort() << "\n127.0.0.1:" << FreePort() << " 2\n";
  const std::vector<std::string> more = {"--set", "nodes.rendezvous=hosts:" + list, "--set",
                                         "nodes.rendezvous_timeout_s=1"};
  daemons_.push_back(rig_.StartNode(0, 2, more));
  EXPECT_EQ(Outcome(0), "1");
  EXPECT_THAT(ReadText(rig_.node_log(0)), HasSubstr("1 of the 2 nodes that " + list));
  daemons_.clear();
  const std::vector<std::string> patient = {"--set", "nodes.rendezvous=hosts:" + list};
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    daemons_.push_back(rig_.StartNode(rank, 2, patient));
  }
  for (const auto& daemon : daemons_) ASSERT_FALSE(daemon->ready_line().empty());
  ExpectExact(ReadTogether({0, 1}, 0));
  EXPECT_EQ(GfsBytes(0) + GfsBytes(1), rig_.dataset_bytes());
  EXPECT_GT(GfsBytes(1), GfsBytes(0)) << "it is listed with twice the capacity";
}

// Connections for bytes of samples are made to numeric addresses only, so names are resolved.
TEST_F(NodesTest, SamplesOfNodesThatAreListedByNameComeByConnectionsOfTheirOwn) {
  const std::string secret = rig_.folder() + "/secret";
  std::ofstream(secret) << std::string(32, 's');
  ASSERT_EQ(chmod(secret.c_str(), 0600), 0);
  const std::string list = rig_.folder() + "/hosts";
  std::ofstream(list) << "localhost:" << FreePort() << "\nlocalhost:" << FreePort() << "\n";
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    daemons_.push_back(rig_.StartNode(rank, 2, {"--set", "nodes.rendezvous=hosts:" + list, "--set",
                                                "peer.secret=file:" + secret}));
  }
  for (const auto& daemon : daemons_) ASSERT_FALSE(daemon->ready_line().empty());
  const auto client = ClientOf(0);
  std::uint32_t epoch = 0;
  // The connection is made when the node is first asked. Smaller batches would come over gRPC.
  EXPECT_TRUE(Eventually([&] {
    ExpectExact(ReadEpoch(*client, "train", shape_, {.epoch = epoch++, .global_batch = 480}));
    v1::NodesReply reply;
    const auto context = NewContext();
    EXPECT_TRUE(client->admin().Nodes(context.get(), {}, &reply).ok());
    return reply.nodes_size() == 2 && reply.nodes(1).connection_bytes() > 0;
  })) << ReadText(rig_.node_log(0));
}

TEST_F(NodesTest, StatusShowsEveryNode) {
  StartAll();
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  daemons_[3]->Kill();
  std::uint64_t samples = 0;
  for (const v1::NodeStatus& node : NodesSeenBy(1)) {
    EXPECT_EQ(node.is_self(), node.rank() == 1);
    EXPECT_EQ(node.answers(), node.rank() != 3) << node.error();
    if (!node.answers()) continue;
    EXPECT_GT(node.gfs_bytes(), 0U);
    EXPECT_GT(node.other_samples(), node.samples() / 2) << "three quarters lie on other nodes";
    EXPECT_EQ(node.received_bytes() > 0, node.rank() != 1);
    samples += node.samples();
  }
  EXPECT_EQ(samples, records_ / 4 * 3);
  ExpectConnections(1, "plaintext_on_loopback");
}

}  // namespace
}  // namespace forebay::integration
