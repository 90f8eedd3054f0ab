// A node joins a job that runs, in the place of a node that is lost or has left, or in one that the
// job was started with. It gets what its place owns from the other nodes and not from the GFS, and
// all epochs stay exact.
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;

class NodesJoinTest : public NodesTest {
 protected:
  // 32 MiB, of which three nodes can hold all.
  explicit NodesJoinTest(const RigOptions& options = {.records = 8192, .ram = "24MiB"})
      : NodesTest(options) {}
  static constexpr std::uint32_t kNew = kNodes;  // the machine of the first node that joins

  void StartAllStaged(const std::vector<std::string>& more = {}) {
    StartAll(more);
    ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
    AwaitStagedEverywhere();
  }
  // The words by which a daemon joins the job, through the node of that rank.
  std::vector<std::string> JoinBy(std::uint32_t rank, std::vector<std::string> more = {}) {
    more.insert(more.end(),
                {"--set", "nodes.rendezvous=join:" + AllSeenBy(rank).at(rank).address()});
    return more;
  }
  // Starts a daemon on the machine. `place`: the rank that it is to have; none: any.
  std::unique_ptr<DaemonProcess> Join(std::uint32_t machine, std::optional<std::uint32_t> place,
                                      const std::vector<std::string>& words) {
    return rig_.StartNode({.machine = machine, .rank = place, .node_count = kNodes}, words);
  }
  // The places by rank, as the node on that machine sees them.
  std::vector<v1::NodeStatus> AllSeenBy(std::uint32_t machine) {
    const auto client = ClientOf(machine);
    v1::NodesReply reply;
    const auto context = NewContext();
    EXPECT_TRUE(client->admin().Nodes(context.get(), {}, &reply).ok());
    return {reply.nodes().begin(), reply.nodes().end()};
  }
  void AwaitDeadFor(const std::vector<std::uint32_t>& machines, std::uint32_t rank) {
    for (const std::uint32_t machine : machines) {
      EXPECT_TRUE(Eventually([&] { return LogSays(machine, rank, "counts as dead"); })) << machine;
    }
  }
  // Waits until these nodes have an answer of the node in that place, and it has taken over.
  void AwaitUsedBy(const std::vector<std::uint32_t>& machines, std::uint32_t rank) {
    for (const std::uint32_t machine : machines) {
      EXPECT_TRUE(Eventually([&] {
        const v1::NodeStatus seen = AllSeenBy(machine).at(rank);
        return seen.answers() && !seen.is_left_out() && !seen.is_joining();
      })) << "machine " << machine << ":\n" << ReadText(rig_.node_log(machine));
    }
  }
  std::uint64_t GfsBytesOf(const std::vector<std::uint32_t>& machines) {
    std::uint64_t bytes = 0;
    for (const std::uint32_t machine : machines) bytes += GfsBytes(machine);
    return bytes;
  }
  // A daemon that cannot join ends, with this in its log.
  void ExpectThatItEndsWith(DaemonProcess& daemon, std::uint32_t machine,
                            const std::string& what) {
    EXPECT_NE(daemon.Wait().value_or(0), 0);
    EXPECT_THAT(ReadText(rig_.node_log(machine)), HasSubstr(what));
  }
};

TEST_F(NodesJoinTest, ANodeTakesThePlaceOfOneThatIsLost) {
  StartAllStaged();
  daemons_[2]->Kill();
  AwaitDeadFor({0, 1, 3}, 2);
  ExpectExact(ReadTogether({0, 1, 3}, 1));
  const std::uint64_t before = GfsBytesOf({0, 1, 3});

  const auto added = Join(kNew, {}, JoinBy(0));
  ASSERT_FALSE(added->ready_line().empty()) << ReadText(rig_.node_log(kNew));
  AwaitUsedBy({0, 1, 3, kNew}, 2);
  ExpectExact(ReadTogether({0, 1, kNew, 3}, 2));
  ExpectExact(ReadTogether({kNew}, 3));
  EXPECT_EQ(GfsBytes(kNew), 0U) << "it has got its part from the others";
  EXPECT_EQ(GfsBytesOf({0, 1, 3}), before);
  const std::vector<v1::NodeStatus> seen = AllSeenBy(0);
  EXPECT_THAT(seen[2].name(), HasSubstr("/ssd4"));
  EXPECT_GT(seen[2].used_bytes(), 0U) << "it has staged what its place owns";
}

TEST_F(NodesJoinTest, ANodeTakesAFreePlaceWhileTheOthersRead) {
  StartAllStaged({"--set", "nodes.free_places=1"});
  EXPECT_TRUE(AllSeenBy(1).at(4).is_free());
  const std::uint64_t before = GfsBytesOfAll();
  EXPECT_EQ(before, rig_.dataset_bytes());
  std::unique_ptr<DaemonProcess> added;
  const auto join = [&](std::uint64_t batches) {
    if (batches == 10) added = Join(kNew, {}, JoinBy(3, {"--set", "nodes.free_places=1"}));
  };
  ExpectExact(ReadTogether({0, 1, 2, 3}, {.epoch = 1, .after_batch = join}));
  ASSERT_NE(added, nullptr);
  ASSERT_FALSE(added->ready_line().empty()) << ReadText(rig_.node_log(kNew));
  ExpectExact(ReadTogether({kNew, 2}, 5));  // it may not have taken over yet
  AwaitUsedBy({0, 1, 2, 3, kNew}, 4);
  ExpectExact(ReadTogether({0, 1, 2, kNew}, 2));
  EXPECT_EQ(GfsBytes(kNew), 0U);
  EXPECT_EQ(GfsBytesOfAll(), before);
  EXPECT_FALSE(AllSeenBy(1).at(4).is_free());
}

TEST_F(NodesJoinTest, ANodeThatHasJoinedFindsItsPlaceAgainAfterAKill) {
  StartAllStaged({"--set", "nodes.free_places=1"});
  const std::vector<std::string> words = JoinBy(0, {"--set", "nodes.free_places=1"});
  auto added = Join(kNew, {}, words);
  ASSERT_FALSE(added->ready_line().empty()) << ReadText(rig_.node_log(kNew));
  AwaitUsedBy({0, 1, 2, 3}, 4);
  added->Kill();
  // The node through which it has joined is not needed any more.
  daemons_[0]->Kill();
  added = Join(kNew, {}, words);
  ASSERT_FALSE(added->ready_line().empty()) << ReadText(rig_.node_log(kNew));
  EXPECT_THAT(ReadText(rig_.node_log(kNew)), HasSubstr("joins the others again"));
  AwaitUsedBy({1, 2, 3}, 4);
  ExpectExact(ReadTogether({1, 2, 3, kNew}, 1));
  // A daemon that is started again knows who has come meanwhile.
  daemons_[0] = StartNode(0, {"--set", "nodes.free_places=1"});
  ASSERT_FALSE(daemons_[0]->ready_line().empty()) << ReadText(rig_.node_log(0));
  AwaitUsedBy({0}, 4);
  ExpectExact(ReadTogether({0, 1, 2, kNew}, 2));
}

TEST_F(NodesJoinTest, ANodeThatStoodStillMeanwhileHearsOfTheNewOne) {
  StartAllStaged({"--set", "nodes.free_places=1"});
  daemons_[1]->Signal(SIGSTOP);
  AwaitDeadFor({0, 2, 3}, 1);
  const auto added = Join(kNew, 4, JoinBy(0, {"--set", "nodes.free_places=1"}));
  ASSERT_FALSE(added->ready_line().empty()) << ReadText(rig_.node_log(kNew));
  AwaitUsedBy({0, 2, 3}, 4);
  daemons_[1]->Signal(SIGCONT);
  AwaitUsedBy({1}, 4);
  ExpectExact(ReadTogether({0, 1, 2, kNew}, 1));
}

TEST_F(NodesJoinTest, TwoNodesThatJoinAtTheSameTimeGetTwoPlaces) {
  StartAllStaged({"--set", "nodes.free_places=2"});
  std::vector<std::unique_ptr<DaemonProcess>> added;
  for (const std::uint32_t machine : {kNew, kNew + 1}) {
    added.push_back(Join(machine, {}, JoinBy(machine - kNew, {"--set", "nodes.free_places=2"})));
  }
  for (const std::uint32_t machine : {kNew, kNew + 1}) {
    ASSERT_FALSE(added[machine - kNew]->ready_line().empty()) << ReadText(rig_.node_log(machine));
  }
  for (const std::uint32_t rank : {4U, 5U}) AwaitUsedBy({0, 1, 2, 3, kNew, kNew + 1}, rank);
  ExpectExact(ReadTogether({0, 1, 2, 3, kNew, kNew + 1}, 1));
  EXPECT_EQ(GfsBytesOf({kNew, kNew + 1}), 0U);
}

TEST_F(NodesJoinTest, ANodeTakesThePlaceOfOneThatHasLeft) {
  StartAllStaged();
  v1::DrainRequest request;
  request.set_node("3");
  request.set_hand_over_s(60);
  v1::DrainReply reply;
  EXPECT_TRUE(ClientOf(0)->admin().Drain(NewContext().get(), request, &reply).ok());
  EXPECT_EQ(Outcome(3), "0");
  const std::uint64_t before = GfsBytesOf({0, 1, 2});
  const auto added = Join(kNew, 3, JoinBy(1));
  ASSERT_FALSE(added->ready_line().empty()) << ReadText(rig_.node_log(kNew));
  AwaitUsedBy({0, 1, 2, kNew}, 3);
  ExpectExact(ReadTogether({0, 1, 2, kNew}, 1));
  EXPECT_EQ(GfsBytesOf({0, 1, 2}), before);
  EXPECT_EQ(GfsBytes(kNew), 0U);
}

TEST_F(NodesJoinTest, ADaemonWhosePlaceWasTakenMeanwhileSaysSo) {
  StartAllStaged();
  daemons_[2]->Kill();
  AwaitDeadFor({0, 1, 3}, 2);
  const auto added = Join(kNew, 2, JoinBy(0));
  ASSERT_FALSE(added->ready_line().empty()) << ReadText(rig_.node_log(kNew));
  AwaitUsedBy({0, 1, 3}, 2);
  ExpectThatItEndsWith(*StartNode(2, {}), 2, "has taken the place of this node");
  ExpectExact(ReadTogether({0, 1, kNew, 3}, 1));
}

TEST_F(NodesJoinTest, ANodeThatStoodStillAndWasReplacedEnds) {
  StartAllStaged();
  daemons_[2]->Signal(SIGSTOP);
  AwaitDeadFor({0, 1, 3}, 2);
  const auto added = Join(kNew, 2, JoinBy(0));
  ASSERT_FALSE(added->ready_line().empty()) << ReadText(rig_.node_log(kNew));
  AwaitUsedBy({0, 1, 3}, 2);
  daemons_[2]->Signal(SIGCONT);
  EXPECT_EQ(Outcome(2), "0");
  EXPECT_THAT(ReadText(rig_.node_log(2)), HasSubstr("has taken the place of this node"));
  ExpectExact(ReadTogether({0, 1, kNew, 3}, 1));
}

// The daemon of the node that has replaced it was killed meanwhile.
TEST_F(NodesJoinTest, ANodeThatWasReplacedHearsOfItFromADaemonThatHasReturned) {
  StartAllStaged();
  daemons_[2]->Signal(SIGSTOP);
  AwaitDeadFor({0, 1, 3}, 2);
  const std::vector<std::string> words = JoinBy(0);
  auto added = Join(kNew, 2, words);
  ASSERT_FALSE(added->ready_line().empty()) << ReadText(rig_.node_log(kNew));
  AwaitUsedBy({0, 1, 3}, 2);
  added->Kill();
  added = Join(kNew, 2, words);
  ASSERT_FALSE(added->ready_line().empty()) << ReadText(rig_.node_log(kNew));
  EXPECT_THAT(ReadText(rig_.node_log(kNew)), HasSubstr("joins the others again"));
  const auto kept =
      std::filesystem::path(rig_.node_socket(kNew)).parent_path() / "forebayd.before";
  EXPECT_TRUE(std::filesystem::exists(kept)) << "for a daemon that is started after this one";
  daemons_[2]->Signal(SIGCONT);
  EXPECT_EQ(Outcome(2), "0");
  EXPECT_THAT(ReadText(rig_.node_log(2)), HasSubstr("has taken the place of this node"));
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(kept); })) << "it was told";
  AwaitUsedBy({0, 1, 3}, 2);
  ExpectExact(ReadTogether({0, 1, kNew, 3}, 1));
}

TEST_F(NodesJoinTest, ANodeThatCannotJoinSaysWhy) {
  StartAll();
  const std::string soon = "nodes.rendezvous_timeout_s=1";
  ExpectThatItEndsWith(*Join(kNew, {}, JoinBy(0, {"--set", soon})), kNew,
                       "none of the 4 places of the job is free");
  ExpectThatItEndsWith(*Join(kNew + 1, 2, JoinBy(0, {"--set", soon})), kNew + 1,
                       "does not count as dead");
  ExpectThatItEndsWith(*Join(kNew + 2, 9, JoinBy(0, {"--set", soon})), kNew + 2,
                       "the job has 4 places, so there is none of rank 9");
  ExpectThatItEndsWith(
      *Join(kNew + 3, {}, {"--set", soon, "--set", "nodes.rendezvous=join:127.0.0.1:1"}), kNew + 3,
      "127.0.0.1:1");
  ExpectThatItEndsWith(*Join(kNew + 4, {}, JoinBy(0, {"--set", soon, "--job", "other"})), kNew + 4,
                       "job");
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
}

TEST_F(NodesJoinTest, ANodeWithSmallerTiersDoesNotTakeThePlace) {
  StartAll();
  daemons_[2]->Kill();
  AwaitDeadFor({0}, 2);
  ExpectThatItEndsWith(*Join(kNew, {}, JoinBy(0, {"--set", "nodes.rendezvous_timeout_s=1", "--set",
                                                  "tier.ram.capacity=12MiB"})),
                       kNew, "tier");
}

TEST_F(NodesJoinTest, FreePlacesAndCapsExcludeEachOther) {
  ExpectThatItEndsWith(
      *StartNode(0, {"--set", "nodes.free_places=1", "--set", "stage.job_opens_per_second=100"}), 0,
      "nodes.free_places is 1, which excludes the caps of the job (stage.job_...)");
}

// With a secret, connections are encrypted, and the new node has its certificate from it.
TEST_F(NodesJoinTest, ANodeWithTheSecretOfTheJobJoinsAndAnotherOneDoesNot) {
  const auto secret = [this](const std::string& name, char letter) {
    const std::string path = rig_.folder() + "/" + name;
    std::ofstream(path) << std::string(32, letter);
    std::filesystem::permissions(path, std::filesystem::perms::owner_read |
                                           std::filesystem::perms::owner_write);
    return "peer.secret=file:" + path;
  };
  const std::string right = secret("right", 'r'), wrong = secret("wrong", 'w');
  StartAllStaged({"--set", "nodes.free_places=1", "--set", right});
  const std::vector<std::string> stranger = {"--set", "nodes.free_places=1", "--set", wrong,
                                             "--set", "nodes.rendezvous_timeout_s=1"};
  ExpectThatItEndsWith(*Join(kNew + 1, {}, JoinBy(0, stranger)), kNew + 1, "nodes.rendezvous");
  const auto added = Join(kNew, {}, JoinBy(0, {"--set", "nodes.free_places=1", "--set", right}));
  ASSERT_FALSE(added->ready_line().empty()) << ReadText(rig_.node_log(kNew));
  AwaitUsedBy({0, 1, 2, 3}, 4);
  ExpectExact(ReadTogether({0, 1, 2, kNew}, 1));
  EXPECT_EQ(GfsBytes(kNew), 0U);
}

// The catalog of a data set without an index comes from the other nodes, too.
class NodesJoinArchivesTest : public NodesJoinTest {
 protected:
  NodesJoinArchivesTest()
      : NodesJoinTest({.records = 8192, .files = RecordFiles::kArchives, .ram = "24MiB"}) {}
};

TEST_F(NodesJoinArchivesTest, ANodeThatJoinsScansNothing) {
  StartAllStaged({"--set", "nodes.free_places=1"});
  const std::uint64_t before = GfsBytesOfAll();
  const auto added = Join(kNew, {}, JoinBy(0, {"--set", "nodes.free_places=1"}));
  ASSERT_FALSE(added->ready_line().empty()) << ReadText(rig_.node_log(kNew));
  AwaitUsedBy({0, 1, 2, 3, kNew}, 4);
  ExpectExact(ReadTogether({0, 1, 2, kNew}, 1));
  EXPECT_EQ(GfsBytes(kNew), 0U);
  EXPECT_EQ(GfsBytesOfAll(), before);
}

// A node begins to stage small files while it still lists them, but not those that others may have.
class NodesJoinFolderTest : public NodesJoinTest {
 protected:
  NodesJoinFolderTest()
      : NodesJoinTest({.records = 8192, .files = RecordFiles::kFolder, .ram = "64MiB"}) {}
};

TEST_F(NodesJoinFolderTest, ANodeThatJoinsReadsNoFile) {
  StartAll({"--set", "nodes.free_places=1"});
  AwaitStagedEverywhere();
  const std::uint64_t before = GfsBytesOfAll();
  const auto added = Join(kNew, {}, JoinBy(0, {"--set", "nodes.free_places=1"}));
  ASSERT_FALSE(added->ready_line().empty()) << ReadText(rig_.node_log(kNew));
  AwaitUsedBy({0, 1, 2, 3, kNew}, 4);
  EXPECT_GT(AllSeenBy(0)[4].used_bytes(), 0U);
  EXPECT_EQ(GfsBytes(kNew), 0U);
  EXPECT_EQ(GfsBytesOfAll(), before);
}

}  // namespace
}  // namespace forebay::integration
