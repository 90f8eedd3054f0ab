// Daemons that find each other by files: whole jobs in threads, over files in memory and in a real
// folder; what a single daemon does step by step; and launches that are killed at random points
// and started again at once.
#include "server/rendezvous/directory_rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "proto/contract/thread_annotations.h"
#include "server/io/backend_selection.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::rendezvous::directory_rendezvous_test {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::int64_t kLongMs = 60'000;
constexpr std::int64_t kShortMs = 3000;  // those who are there answer within it, on slow disks too

NodeEntry Node(std::uint32_t rank, std::uint64_t nonce, const std::string& job = "4711") {
  const NodeIdentity identity = {
      .job = job, .host = "n" + std::to_string(rank), .ssd_directory = "/ssd"};
  return {.identity = identity,
          .place = identity,
          .rank = NodeRank(rank),
          .address = {.host = "10.0.0." + std::to_string(rank + 1), .port = 7000},
          .capacity_bytes = 1 << 30,
          .nonce = nonce,
          .agreed = {{"protocol version", "1"}, {"configuration", "9f3c"}}};
}

// The pause of a daemon, cut short so that tests with long pauses are quick.
PauseEnd ShortPause(std::int64_t ms) {
  Mutex mutex;
  CondVar never;
  const MutexLock lock(mutex);
  never.WaitFor(mutex, std::chrono::milliseconds(std::min<std::int64_t>(ms, 2)));
  return PauseEnd::kOver;
}

using Nodes = Result<std::vector<NodeEntry>>;

// A directory on the GFS, as one or several jobs see it.
class SharedFolder {
 public:
  virtual ~SharedFolder() = default;
  virtual io::IoBackend& backend() = 0;
  virtual std::string path() const = 0;

  std::vector<std::string> Names(const std::string& below = "") {
    auto directory = io::testing::Take(backend().OpenDirectory(path()));
    std::vector<std::string> names;
    const auto entries = directory->List(below);
    if (!entries.has_value()) return {};
    for (const io::DirectoryEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }
};

class MemoryFolder final : public SharedFolder {
 public:
  MemoryFolder() { FOREBAY_EXPECT_OK(memory.AddDirectory("/rdv")); }
  io::IoBackend& backend() override { return memory; }
  std::string path() const override { return "/rdv"; }
  void Put(const std::string& name, const NodeFile& file) {
    FOREBAY_EXPECT_OK(memory.AddFile("/rdv/" + name, Encode(file)));
  }
  io::MemoryBackend memory;
};

class RealFolder final : public SharedFolder {
 public:
  RealFolder()
      : selected_(io::testing::Take(io::SelectBackend(io::BackendChoice::kThreads, 4))) {}
  io::IoBackend& backend() override { return *selected_.backend; }
  std::string path() const override { return folder_.path(); }

 private:
  io::testing::TempFolder folder_;
  io::SelectedBackend selected_;
};

// A daemon as far as the rendezvous goes.
struct Daemon {
  Daemon(SharedFolder& folder, NodeEntry own_entry, std::uint32_t count)
      : own(std::move(own_entry)),
        node_count(count),
        directory(io::testing::Take(folder.backend().OpenDirectory(folder.path()))),
        rendezvous({folder.backend(), *directory, clock, ShortPause, ShortPause}, folder.path()) {}

  void Run(std::int64_t deadline_ms = kLongMs) {
    nodes = rendezvous.Exchange(own, node_count, clock.NowNs() + deadline_ms * kNsPerMs);
  }

  const NodeEntry own;
  const std::uint32_t node_count;
  const io::SteadyClock clock;
  const std::unique_ptr<io::Directory> directory;
  DirectoryRendezvous rendezvous;
  Nodes nodes = Error(ErrorCode::kUnknown, "did not run");
};

using Job = std::vector<std::unique_ptr<Daemon>>;

Job MakeJob(SharedFolder& folder, std::uint32_t count, std::uint64_t first_nonce,
            const std::string& job = "4711") {
  Job daemons;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    daemons.push_back(
        std::make_unique<Daemon>(folder, Node(rank, first_nonce + rank, job), count));
  }
  return daemons;
}

void RunAll(Job& daemons, std::int64_t leader_ms = kLongMs, std::int64_t follower_ms = kLongMs) {
  std::vector<std::jthread> threads;
  // In reverse, so that the leader comes last.
  for (auto daemon = daemons.rbegin(); daemon != daemons.rend(); ++daemon) {
    const std::int64_t ms = (*daemon)->own.rank == NodeRank(0) ? leader_ms : follower_ms;
    threads.emplace_back([&daemon = **daemon, ms] { daemon.Run(ms); });
  }
}

void ExpectAllFound(const Job& daemons) {
  std::vector<NodeEntry> expected;
  for (const auto& daemon : daemons) expected.push_back(daemon->own);
  for (const auto& daemon : daemons) {
    ASSERT_TRUE(daemon->nodes.has_value()) << daemon->nodes.error().ToString();
    EXPECT_EQ(*daemon->nodes, expected);
  }
}

void LeaveAll(Job& daemons) {
  for (const auto& daemon : daemons) daemon->rendezvous.Leave();
}

template <typename Matcher>
void ExpectFailed(const Daemon& daemon, const Matcher& message) {
  ASSERT_FALSE(daemon.nodes.has_value()) << daemon.own.Text();
  EXPECT_THAT(daemon.nodes.error().message(), message);
}

// ---- whole jobs -----------------------------------------------------------------------------

template <typename Folder>
class DirectoryRendezvousTest : public ::testing::Test {
 protected:
  Folder folder_;
};
using Folders = ::testing::Types<MemoryFolder, RealFolder>;
TYPED_TEST_SUITE(DirectoryRendezvousTest, Folders);

TYPED_TEST(DirectoryRendezvousTest, ThirtyTwoNodesFindEachOtherAndLeaveNothing) {
  Job job = MakeJob(this->folder_, 32, 1000);
  RunAll(job);
  ExpectAllFound(job);
  EXPECT_THAT(this->folder_.Names("4711"), ::testing::ElementsAre("list"))
      << "answers are removed as soon as they have been used";
  LeaveAll(job);
  EXPECT_THAT(this->folder_.Names(), IsEmpty());
}

TYPED_TEST(DirectoryRendezvousTest, ANodeThatIsAloneWritesNothing) {
  Job job = MakeJob(this->folder_, 1, 1000);
  RunAll(job);
  ExpectAllFound(job);
  EXPECT_THAT(this->folder_.Names(), IsEmpty());
  LeaveAll(job);
}

TYPED_TEST(DirectoryRendezvousTest, TwoJobsShareADirectory) {
  Job one = MakeJob(this->folder_, 4, 1000, "one");
  Job two = MakeJob(this->folder_, 3, 2000, "two");
  std::jthread other([&two] { RunAll(two); });
  RunAll(one);
  other.join();
  ExpectAllFound(one);
  ExpectAllFound(two);
  LeaveAll(one);
  EXPECT_THAT(this->folder_.Names(), ::testing::ElementsAre("two"));
  LeaveAll(two);
  EXPECT_THAT(this->folder_.Names(), IsEmpty());
}

TYPED_TEST(DirectoryRendezvousTest, AJobThatWasKilledIsStartedAgainWithOtherRanks) {
  {
    Job killed = MakeJob(this->folder_, 4, 1000);
    RunAll(killed);
    ExpectAllFound(killed);
    // Nobody leaves.
  }
  ASSERT_THAT(this->folder_.Names("4711"), ::testing::ElementsAre("list"));
  Job again;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    NodeEntry node = Node(3 - rank, 2000 + rank);
    node.rank = NodeRank(rank);
    again.push_back(std::make_unique<Daemon>(this->folder_, node, 4));
  }
  RunAll(again);
  ExpectAllFound(again);
  EXPECT_EQ((*again[0]->nodes)[3].identity.host, "n0") << "names follow the node, not the rank";
  LeaveAll(again);
  EXPECT_THAT(this->folder_.Names(), IsEmpty());
}

TYPED_TEST(DirectoryRendezvousTest, TwoNodesWithOneRankAreNamedEverywhere) {
  Job job = MakeJob(this->folder_, 3, 1000);
  NodeEntry twin = Node(2, 1009);
  twin.rank = NodeRank(1);
  job[2] = std::make_unique<Daemon>(this->folder_, twin, 3);
  RunAll(job);
  for (const auto& daemon : job) {
    ExpectFailed(*daemon, AllOf(HasSubstr("n1:"), HasSubstr("n2:"), HasSubstr("same rank")));
  }
  EXPECT_THAT(this->folder_.Names(), IsEmpty()) << "also after an error nothing is left";
}

TYPED_TEST(DirectoryRendezvousTest, NodesThatDifferAreNamedEverywhereWithTheirValues) {
  Job job = MakeJob(this->folder_, 3, 1000);
  NodeEntry other = Node(2, 1002);
  other.agreed[1].value = "77aa";
  job[2] = std::make_unique<Daemon>(this->folder_, other, 3);
  RunAll(job);
  for (const auto& daemon : job) {
    ExpectFailed(*daemon, AllOf(HasSubstr("n0:"), HasSubstr("n2:"), HasSubstr("configuration"),
                                HasSubstr("'9f3c'"), HasSubstr("'77aa'")));
    EXPECT_EQ(daemon->nodes.error().code(), ErrorCode::kFailedPrecondition);
  }
  EXPECT_THAT(this->folder_.Names(), IsEmpty());
}

TYPED_TEST(DirectoryRendezvousTest, TwoDaemonsOfOneNodeAreNamedEverywhere) {
  Job job = MakeJob(this->folder_, 3, 1000);
  NodeEntry same = Node(2, 1002);
  same.identity = job[1]->own.identity;
  job[2] = std::make_unique<Daemon>(this->folder_, same, 3);
  RunAll(job);
  for (const auto& daemon : job) {
    ExpectFailed(*daemon, AllOf(HasSubstr("(rank 1)"), HasSubstr("(rank 2)"),
                                HasSubstr("tier.ssd.directory")));
  }
}

TYPED_TEST(DirectoryRendezvousTest, AnotherNumberOfNodesIsNamedWithBothNumbers) {
  Job job = MakeJob(this->folder_, 3, 1000);
  job[2] = std::make_unique<Daemon>(this->folder_, Node(2, 1002), 5);
  RunAll(job);
  for (const auto& daemon : job) {
    ExpectFailed(*daemon, AllOf(HasSubstr("n0:"), HasSubstr("n2:"), HasSubstr("3 and 5 nodes")));
  }
}

TYPED_TEST(DirectoryRendezvousTest, RanksThatNeverComeAreNamedEverywhere) {
  Job job = MakeJob(this->folder_, 6, 1000);
  job.erase(job.begin() + 2);
  job.erase(job.begin() + 3);
  RunAll(job, kShortMs);
  EXPECT_EQ(job[0]->nodes.error().code(), ErrorCode::kDeadlineExceeded);
  for (const auto& daemon : job) {
    ExpectFailed(*daemon, AllOf(HasSubstr("6 ranks"), HasSubstr(": 2, 4")));
  }
  EXPECT_THAT(this->folder_.Names(), IsEmpty());
}

TYPED_TEST(DirectoryRendezvousTest, AJobWithoutRankZeroSaysSo) {
  Job job = MakeJob(this->folder_, 3, 1000);
  job.erase(job.begin());
  RunAll(job, kLongMs, 50);
  for (const auto& daemon : job) {
    ExpectFailed(*daemon, AllOf(HasSubstr("/4711/list"), HasSubstr("rank 0")));
    EXPECT_EQ(daemon->nodes.error().code(), ErrorCode::kDeadlineExceeded);
  }
}

TYPED_TEST(DirectoryRendezvousTest, OfTwoNodesThatClaimRankZeroOneIsTold) {
  Job job = MakeJob(this->folder_, 2, 1000);
  NodeEntry second = Node(1, 1001);
  second.rank = NodeRank(0);
  job[1] = std::make_unique<Daemon>(this->folder_, second, 2);
  RunAll(job, kShortMs);
  ASSERT_FALSE(job[0]->nodes.has_value());
  ASSERT_FALSE(job[1]->nodes.has_value());
  const std::string both =
      job[0]->nodes.error().message() + " / " + job[1]->nodes.error().message();
  EXPECT_THAT(both, AllOf(HasSubstr("claim rank 0"), HasSubstr("n0:"), HasSubstr("n1:")));
  EXPECT_THAT(this->folder_.Names(), IsEmpty());
}

// ---- one daemon, step by step ---------------------------------------------------------------

// A daemon on one thread. Between its looks at the directory a test does what others would do.
class StepTest : public ::testing::Test {
 protected:
  // Called with the number of the pause, from 1.
  using Step = std::function<void(int pause)>;

  Nodes Run(const NodeEntry& own, std::uint32_t count, std::int64_t deadline_ms, Step step) {
    directory_ = io::testing::Take(folder_.memory.OpenDirectory("/rdv"));
    const auto sleep = [this, step, pause = std::make_shared<int>(0)](std::int64_t ms) {
      EXPECT_GT(ms, 0);
      clock_.AdvanceNs(ms * kNsPerMs);
      step(++*pause);
      return pause_end_;
    };
    rendezvous_ = std::make_unique<DirectoryRendezvous>(
        DirectoryRendezvousParts{folder_.memory, *directory_, clock_, sleep, sleep}, "/rdv");
    return rendezvous_->Exchange(own, count, clock_.NowNs() + deadline_ms * kNsPerMs);
  }
  static void Nothing(int) {}

  NodeFile Call(const NodeEntry& leader, std::uint32_t count) {
    return {.kind = NodeFileKind::kOpen,
            .leader_nonce = leader.nonce,
            .node_count = count,
            .nodes = {leader}};
  }
  NodeFile List(std::vector<NodeEntry> nodes) {
    return {.kind = NodeFileKind::kComplete,
            .leader_nonce = nodes.front().nonce,
            .node_count = static_cast<std::uint32_t>(nodes.size()),
            .nodes = std::move(nodes)};
  }
  NodeFile AnswerOf(const NodeEntry& node, const NodeEntry& leader, std::uint32_t count) {
    return {.kind = NodeFileKind::kAnswer,
            .leader_nonce = leader.nonce,
            .node_count = count,
            .nodes = {node}};
  }
  std::string AnswerName(const NodeEntry& node, const NodeEntry& leader) {
    return fmt::format("4711/node.{:016x}.{}.{:016x}", leader.nonce, node.rank.value(),
                       node.identity.Id());
  }
  // The content of a file, if it is there.
  std::optional<NodeFile> Get(const std::string& name) {
    const auto bytes = folder_.memory.FileBytes("/rdv/" + name);
    if (!bytes.has_value()) return std::nullopt;
    return io::testing::Take(Decode(*bytes));
  }

  MemoryFolder folder_;
  io::ManualClock clock_{5 * kNsPerMs};
  std::unique_ptr<io::Directory> directory_;
  std::unique_ptr<DirectoryRendezvous> rendezvous_;
  PauseEnd pause_end_ = PauseEnd::kOver;
  const NodeEntry leader_ = Node(0, 100);
  const NodeEntry follower_ = Node(1, 101);
};
using DirectoryStepTest = StepTest;

TEST_F(DirectoryStepTest, AFollowerAnswersACallAndReadsTheList) {
  const auto nodes = Run(follower_, 2, 1000, [&](int pause) {
    if (pause == 2) folder_.Put("4711/list", Call(leader_, 2));
    if (pause == 3) {
      const auto answer = Get(AnswerName(follower_, leader_));
      ASSERT_TRUE(answer.has_value());
      EXPECT_EQ(*answer, AnswerOf(follower_, leader_, 2));
      folder_.Put("4711/list", List({leader_, follower_}));
    }
  });
  ASSERT_TRUE(nodes.has_value()) << nodes.error().ToString();
  EXPECT_EQ(*nodes, (std::vector<NodeEntry>{leader_, follower_}));
  EXPECT_THAT(folder_.Names("4711"), ::testing::ElementsAre("list"));
}

TEST_F(DirectoryStepTest, AFollowerWaitsWhileAListOfAnEarlierLaunchLiesThere) {
  // The same node with the same rank, but an earlier daemon.
  NodeEntry before = follower_;
  before.nonce = 55;
  NodeEntry leader_before = leader_;
  leader_before.nonce = 54;
  folder_.Put("4711/list", List({leader_before, before}));
  const auto nodes = Run(follower_, 2, 1000, [&](int pause) {
    if (pause == 5) folder_.Put("4711/list", Call(leader_, 2));
    if (pause == 6) folder_.Put("4711/list", List({leader_, follower_}));
  });
  ASSERT_TRUE(nodes.has_value()) << nodes.error().ToString();
  EXPECT_EQ((*nodes)[1].nonce, 101U);
}

TEST_F(DirectoryStepTest, AFollowerThatCameTooLateSaysWhatItSaw) {
  NodeEntry before = follower_;
  before.nonce = 55;
  folder_.Put("4711/list", List({leader_, before}));
  const auto nodes = Run(follower_, 2, 1000, Nothing);
  ASSERT_FALSE(nodes.has_value());
  EXPECT_EQ(nodes.error().code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(nodes.error().message(),
              AllOf(HasSubstr("n0:/ssd"), HasSubstr("before this daemon started")));
}

TEST_F(DirectoryStepTest, AFollowerAnswersEachNewLeaderAndTakesItsOldAnswerBack) {
  NodeEntry dead = leader_;
  dead.nonce = 54;
  folder_.Put("4711/list", Call(dead, 2));
  const auto nodes = Run(follower_, 2, 1000, [&](int pause) {
    if (pause == 3) {
      EXPECT_TRUE(Get(AnswerName(follower_, dead)).has_value());
      folder_.Put("4711/list", Call(leader_, 2));
    }
    if (pause == 4) {
      EXPECT_FALSE(Get(AnswerName(follower_, dead)).has_value());
      EXPECT_TRUE(Get(AnswerName(follower_, leader_)).has_value());
      folder_.Put("4711/list", List({leader_, follower_}));
    }
  });
  ASSERT_TRUE(nodes.has_value()) << nodes.error().ToString();
}

TEST_F(DirectoryStepTest, ARefusalCountsOnlyFromALeaderThatWasAnswered) {
  NodeFile refused = {.kind = NodeFileKind::kRefused,
                      .leader_nonce = 54,
                      .node_count = 2,
                      .refusal = "of an earlier launch",
                      .nodes = {leader_}};
  folder_.Put("4711/list", refused);
  const auto nodes = Run(follower_, 2, 1000, [&](int pause) {
    if (pause == 3) folder_.Put("4711/list", Call(leader_, 2));
    if (pause == 4) {
      refused.leader_nonce = leader_.nonce;
      refused.refusal = "because";
      folder_.Put("4711/list", refused);
    }
    EXPECT_LE(pause, 4);
  });
  ASSERT_FALSE(nodes.has_value());
  EXPECT_EQ(nodes.error().message(), "because");
  EXPECT_THAT(folder_.Names("4711"), ::testing::ElementsAre("list")) << "the answer is gone";
}

TEST_F(DirectoryStepTest, AFollowerThatIsLeftOutByItsLeaderIsTold) {
  NodeEntry other = Node(2, 102);
  other.rank = NodeRank(1);
  folder_.Put("4711/list", Call(leader_, 2));
  const auto nodes = Run(follower_, 2, 1000, [&](int pause) {
    if (pause == 1) folder_.Put("4711/list", List({leader_, other}));
    EXPECT_LE(pause, 1);
  });
  ASSERT_FALSE(nodes.has_value());
  EXPECT_THAT(nodes.error().message(), AllOf(HasSubstr("n1:"), HasSubstr("another node")));
}

TEST_F(DirectoryStepTest, ADamagedListOrOneOfAnotherVersionIsWaitedOut) {
  std::vector<std::byte> bytes = Encode(Call(leader_, 2));
  bytes[8] = std::byte{9};  // the version
  FOREBAY_EXPECT_OK(folder_.memory.AddFile("/rdv/4711/list", bytes));
  const auto late = Run(follower_, 2, 200, Nothing);
  ASSERT_FALSE(late.has_value());
  EXPECT_THAT(late.error().message(), HasSubstr("version 9"));

  const auto nodes = Run(follower_, 2, 1000, [&](int pause) {
    if (pause == 2) FOREBAY_EXPECT_OK(folder_.memory.FlipBit("/rdv/4711/list", 300));
    if (pause == 4) folder_.Put("4711/list", Call(leader_, 2));
    if (pause == 5) folder_.Put("4711/list", List({leader_, follower_}));
  });
  ASSERT_TRUE(nodes.has_value()) << nodes.error().ToString();
}

TEST_F(DirectoryStepTest, AListOfAnotherJobIsRefused) {
  folder_.Put("4711/list", Call(Node(0, 100, "4712"), 2));
  const auto nodes = Run(follower_, 2, 1000, Nothing);
  ASSERT_FALSE(nodes.has_value());
  EXPECT_THAT(nodes.error().message(), AllOf(HasSubstr("job 4712"), HasSubstr("4711")));

  const auto led = Run(leader_, 2, 1000, [&](int pause) {
    NodeEntry stranger = follower_;
    stranger.identity.job = "4712";
    stranger.place.job = "4712";
    if (pause == 1) {
      folder_.Put(AnswerName(follower_, leader_), AnswerOf(stranger, leader_, 2));
    }
  });
  ASSERT_FALSE(led.has_value());
  EXPECT_THAT(led.error().message(), AllOf(HasSubstr("job 4711"), HasSubstr("job 4712")));
}

TEST_F(DirectoryStepTest, ALeaderReadsOnlyAnswersToItself) {
  NodeEntry before = follower_;
  before.nonce = 55;
  NodeEntry leader_before = leader_;
  leader_before.nonce = 54;
  folder_.Put(AnswerName(before, leader_before), AnswerOf(before, leader_before, 2));
  FOREBAY_EXPECT_OK(folder_.memory.AddFile("/rdv/4711/new.0000000000000037", {}));
  const auto nodes = Run(leader_, 2, 10'000, [&](int pause) {
    // The pauses after the fourth are those of Leave.
    if (pause <= 4) {
      EXPECT_EQ(Get("4711/list"), Call(leader_, 2));
    }
    if (pause == 4) folder_.Put(AnswerName(follower_, leader_), AnswerOf(follower_, leader_, 2));
  });
  ASSERT_TRUE(nodes.has_value()) << nodes.error().ToString();
  EXPECT_EQ(*nodes, (std::vector<NodeEntry>{leader_, follower_}));
  EXPECT_EQ(Get("4711/list"), List(*nodes));
  EXPECT_THAT(folder_.Names("4711"),
              ::testing::ElementsAre("list",
                                     AnswerName(follower_, leader_).substr(strlen("4711/"))))
      << "what the killed launch has left is gone";
  rendezvous_->Leave();
  EXPECT_THAT(folder_.Names(), IsEmpty()) << "also the answer of a daemon that never read the list";
}

TEST_F(DirectoryStepTest, ALeaderPublishesItsCallAgainIfItVanishes) {
  const auto nodes = Run(leader_, 2, 10'000, [&](int pause) {
    if (pause == 1) FOREBAY_EXPECT_OK(directory_->Unlink("4711/list"));
    if (pause == 3) {
      EXPECT_EQ(Get("4711/list"), Call(leader_, 2));
      folder_.Put(AnswerName(follower_, leader_), AnswerOf(follower_, leader_, 2));
    }
  });
  EXPECT_TRUE(nodes.has_value()) << nodes.error().ToString();
}

TEST_F(DirectoryStepTest, ALeaderWhoseListIsTakenOverGivesUpAndLeavesTheNewOne) {
  NodeEntry newer = Node(5, 105);
  newer.rank = NodeRank(0);
  const auto nodes = Run(leader_, 2, 10'000, [&](int pause) {
    if (pause == 2) folder_.Put("4711/list", Call(newer, 2));
    EXPECT_LE(pause, 2);
  });
  ASSERT_FALSE(nodes.has_value());
  EXPECT_THAT(nodes.error().message(), AllOf(HasSubstr("n0:"), HasSubstr("n5:")));
  EXPECT_EQ(Get("4711/list"), Call(newer, 2));
}

TEST_F(DirectoryStepTest, AnAnswerThatIsNoneIsRefusedAndADamagedOneIsWaitedFor) {
  const auto refused = Run(leader_, 2, 10'000, [&](int pause) {
    if (pause == 1) folder_.Put(AnswerName(follower_, leader_), Call(follower_, 2));
  });
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("is not an answer"));

  const auto nodes = Run(leader_, 2, 10'000, [&](int pause) {
    if (pause == 1) {
      folder_.Put(AnswerName(follower_, leader_), AnswerOf(follower_, leader_, 2));
      FOREBAY_EXPECT_OK(
          folder_.memory.FlipBit("/rdv/" + AnswerName(follower_, leader_), 500));
    }
    if (pause == 3) folder_.Put(AnswerName(follower_, leader_), AnswerOf(follower_, leader_, 2));
  });
  EXPECT_TRUE(nodes.has_value()) << nodes.error().ToString();
}

TEST_F(DirectoryStepTest, AfterAClashTheLeaderWaitsForTheOthersAnswers) {
  NodeEntry twin = Node(2, 102);
  twin.rank = NodeRank(1);
  const NodeEntry late = Node(3, 103);
  const auto nodes = Run(leader_, 4, 60'000, [&](int pause) {
    if (pause == 1) {
      folder_.Put(AnswerName(follower_, leader_), AnswerOf(follower_, leader_, 4));
      folder_.Put(AnswerName(twin, leader_), AnswerOf(twin, leader_, 4));
    }
    const std::optional<NodeFile> list = Get("4711/list");
    EXPECT_EQ(list->kind, pause <= 4 ? NodeFileKind::kOpen : NodeFileKind::kRefused) << pause;
    if (pause == 4) folder_.Put(AnswerName(late, leader_), AnswerOf(late, leader_, 4));
    // All have read it.
    if (pause == 6) {
      for (const NodeEntry& node : {follower_, twin, late}) {
        FOREBAY_EXPECT_OK(directory_->Unlink(AnswerName(node, leader_)));
      }
    }
    EXPECT_LE(pause, 6);
  });
  ASSERT_FALSE(nodes.has_value());
  EXPECT_THAT(nodes.error().message(), AllOf(HasSubstr("n1:"), HasSubstr("n2:")));
  EXPECT_THAT(folder_.Names(), IsEmpty());
}

TEST_F(DirectoryStepTest, AClashIsToldWithinSecondsAlsoIfOthersNeverCome) {
  NodeEntry twin = Node(2, 102);
  twin.rank = NodeRank(1);
  const std::int64_t begun_ns = clock_.NowNs();
  const auto nodes = Run(leader_, 9, 600'000, [&](int pause) {
    if (pause > 1) return;
    folder_.Put(AnswerName(follower_, leader_), AnswerOf(follower_, leader_, 9));
    folder_.Put(AnswerName(twin, leader_), AnswerOf(twin, leader_, 9));
  });
  ASSERT_FALSE(nodes.has_value());
  EXPECT_LT(clock_.NowNs() - begun_ns, 10'000 * kNsPerMs);
  EXPECT_THAT(folder_.Names(), IsEmpty());
}

TEST_F(DirectoryStepTest, ADaemonThatIsToldToStopLeavesNothing) {
  for (const NodeEntry& own : {leader_, follower_}) {
    pause_end_ = PauseEnd::kOver;
    const auto nodes = Run(own, 2, 10'000, [&](int pause) {
      if (pause == 3) pause_end_ = PauseEnd::kToldToStop;
    });
    ASSERT_FALSE(nodes.has_value());
    EXPECT_EQ(nodes.error().code(), ErrorCode::kCancelled);
    EXPECT_THAT(folder_.Names(), IsEmpty());
  }
}

TEST_F(DirectoryStepTest, ADaemonThatNeedsNoRendezvousLeavesWithoutAWord) {
  for (const NodeEntry& own : {leader_, follower_}) {
    pause_end_ = PauseEnd::kOver;
    const auto nodes = Run(own, 3, 10'000, [&](int pause) {
      if (pause == 1 && own == leader_) {
        folder_.Put(AnswerName(follower_, leader_), AnswerOf(follower_, leader_, 3));
      }
      if (pause == 3) pause_end_ = PauseEnd::kNotNeeded;
      // A refusal would end the others, and a leader would wait until they have read it.
      EXPECT_LE(pause, 3);
    });
    ASSERT_FALSE(nodes.has_value());
    EXPECT_THAT(nodes.error().message(), HasSubstr("without a rendezvous"));
    EXPECT_THAT(folder_.Names(), IsEmpty());
  }
}

TEST_F(DirectoryStepTest, ALeaderThatLeavesWaitsUntilItsListIsRead) {
  int read_at = 0;
  const auto nodes = Run(leader_, 2, 10'000, [&](int pause) {
    if (pause == 1) folder_.Put(AnswerName(follower_, leader_), AnswerOf(follower_, leader_, 2));
    // Everything after is in Leave, of a daemon that was told to stop.
    if (pause > 1) pause_end_ = PauseEnd::kToldToStop;
    const auto list = Get("4711/list");
    ASSERT_TRUE(list) << "removed before it was read";
    if (pause == 5) {
      EXPECT_EQ(list->kind, NodeFileKind::kComplete);
      FOREBAY_EXPECT_OK(directory_->Unlink(AnswerName(follower_, leader_)));
      read_at = pause;
    }
    EXPECT_LE(pause, 5);
  });
  ASSERT_TRUE(nodes.has_value()) << nodes.error().ToString();
  EXPECT_EQ(read_at, 0) << "the leader does not wait before it works";
  rendezvous_->Leave();
  EXPECT_EQ(read_at, 5);
  EXPECT_THAT(folder_.Names(), IsEmpty());
}

TEST_F(DirectoryStepTest, ALeaderThatLeavesWaitsForSecondsOnly) {
  const auto nodes = Run(leader_, 2, 10'000, [&](int pause) {
    if (pause == 1) folder_.Put(AnswerName(follower_, leader_), AnswerOf(follower_, leader_, 2));
  });
  ASSERT_TRUE(nodes.has_value()) << nodes.error().ToString();
  const std::int64_t begun_ns = clock_.NowNs();
  rendezvous_->Leave();  // the follower was killed
  EXPECT_GE(clock_.NowNs() - begun_ns, 3'000 * kNsPerMs);
  EXPECT_LT(clock_.NowNs() - begun_ns, 4'000 * kNsPerMs);
  EXPECT_THAT(folder_.Names(), IsEmpty());
}

TEST_F(DirectoryStepTest, ALeaderThatHasWorkedForLongLeavesAtOnce) {
  const auto nodes = Run(leader_, 2, 10'000, [&](int pause) {
    if (pause == 1) folder_.Put(AnswerName(follower_, leader_), AnswerOf(follower_, leader_, 2));
    EXPECT_EQ(pause, 1);
  });
  ASSERT_TRUE(nodes.has_value()) << nodes.error().ToString();
  clock_.AdvanceNs(61'000 * kNsPerMs);
  rendezvous_->Leave();
  EXPECT_THAT(folder_.Names(), IsEmpty());
}

TEST_F(DirectoryStepTest, ALeaderThatLeavesWhileTheNextLaunchBeginsLeavesItsList) {
  const NodeEntry next = Node(0, 200);
  const NodeFile list = List({next, follower_});
  const auto nodes = Run(leader_, 2, 10'000, [&](int pause) {
    if (pause == 1) folder_.Put(AnswerName(follower_, leader_), AnswerOf(follower_, leader_, 2));
    if (pause == 3) folder_.Put("4711/list", list);
    EXPECT_LE(pause, 3);
  });
  ASSERT_TRUE(nodes.has_value()) << nodes.error().ToString();
  rendezvous_->Leave();
  EXPECT_EQ(Get("4711/list"), list);
}

TEST_F(DirectoryStepTest, ALeaderThatIsToldToStopStillTellsThoseWhoAnswered) {
  const auto nodes = Run(leader_, 3, 10'000, [&](int pause) {
    if (pause == 1) folder_.Put(AnswerName(follower_, leader_), AnswerOf(follower_, leader_, 3));
    if (pause >= 2) pause_end_ = PauseEnd::kToldToStop;
    const auto list = Get("4711/list");
    ASSERT_TRUE(list) << "removed before it was read";
    EXPECT_EQ(list->kind, pause <= 2 ? NodeFileKind::kOpen : NodeFileKind::kRefused) << pause;
    if (pause == 4) {
      EXPECT_THAT(list->refusal, HasSubstr("told to stop"));
      FOREBAY_EXPECT_OK(directory_->Unlink(AnswerName(follower_, leader_)));
    }
    EXPECT_LE(pause, 4);
  });
  ASSERT_FALSE(nodes.has_value());
  EXPECT_EQ(nodes.error().code(), ErrorCode::kCancelled);
  EXPECT_THAT(folder_.Names(), IsEmpty());
}

TEST_F(DirectoryStepTest, AFullFileSystemIsAnErrorAtOnce) {
  folder_.memory.SetCapacity(1);
  const auto nodes = Run(leader_, 2, 10'000, [&](int pause) { EXPECT_LE(pause, 1); });
  ASSERT_FALSE(nodes.has_value());
  EXPECT_EQ(nodes.error().system_errno(), ENOSPC);
  EXPECT_THAT(nodes.error().message(), HasSubstr("/rdv/4711/list"));
  EXPECT_THAT(folder_.Names(), IsEmpty());
}

TEST_F(DirectoryStepTest, PausesGrowSoThatWaitingCostsLittle) {
  int pauses = 0;
  const auto nodes = Run(follower_, 2, 60'000, [&](int pause) { pauses = pause; });
  ASSERT_FALSE(nodes.has_value());
  // About a dozen until a pause takes a second, and then one per second.
  EXPECT_GT(pauses, 50);
  EXPECT_LT(pauses, 110);
}

// ---- launches that are killed ---------------------------------------------------------------

// The directory of a daemon that is killed after some number of calls: nothing that it does from
// then on has an effect, not even its own cleaning up.
class MortalDirectory final : public io::Directory {
 public:
  MortalDirectory(io::Directory& inner, std::uint64_t calls_left)
      : inner_(inner), calls_left_(calls_left) {}

  Result<std::unique_ptr<io::File>> Open(std::string_view path, io::OpenMode mode) override {
    FOREBAY_TRY(Live());
    return inner_.Open(path, mode);
  }
  Result<io::FileInfo> Stat(std::string_view path) override {
    FOREBAY_TRY(Live());
    return inner_.Stat(path);
  }
  Result<std::vector<io::DirectoryEntry>> List(std::string_view path) override {
    FOREBAY_TRY(Live());
    return inner_.List(path);
  }
  Status MakeDirectory(std::string_view path) override {
    FOREBAY_TRY(Live());
    return inner_.MakeDirectory(path);
  }
  Status Rename(std::string_view from, std::string_view to) override {
    FOREBAY_TRY(Live());
    return inner_.Rename(from, to);
  }
  // Without an error, which would be logged.
  Status Unlink(std::string_view path) override {
    return Live().has_value() ? inner_.Unlink(path) : Status();
  }
  Status RemoveDirectory(std::string_view path) override {
    return Live().has_value() ? inner_.RemoveDirectory(path) : Status();
  }
  Status Sync(std::string_view path) override {
    FOREBAY_TRY(Live());
    return inner_.Sync(path);
  }
  Result<Space> FreeSpace() override {
    FOREBAY_TRY(Live());
    return inner_.FreeSpace();
  }

 private:
  Status Live() {
    if (calls_left_ == 0) return Error(ErrorCode::kInternal, "this daemon was killed");
    --calls_left_;
    return {};
  }

  io::Directory& inner_;
  std::uint64_t calls_left_;
};

constexpr std::uint32_t kCount = 4;

// Starts a launch whose daemons die after so many calls each.
std::vector<Nodes> RunMortals(MemoryFolder& folder, std::uint64_t first_nonce,
                              const std::vector<std::uint64_t>& lives) {
  std::vector<Nodes> results(kCount, Error(ErrorCode::kUnknown, "did not run"));
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < kCount; ++rank) {
    threads.emplace_back([&, rank] {
      const io::SteadyClock clock;
      auto inner = io::testing::Take(folder.memory.OpenDirectory("/rdv"));
      MortalDirectory directory(*inner, lives[rank]);
      DirectoryRendezvous rendezvous(
          {folder.memory, directory, clock, ShortPause, ShortPause}, "/rdv");
      results[rank] = rendezvous.Exchange(Node(rank, first_nonce + rank), kCount,
                                          clock.NowNs() + 60 * kNsPerMs);
    });
  }
  threads.clear();
  return results;
}

TEST(DirectoryKillTest, ALaunchFindsItselfWhateverAKilledOneHasLeft) {
  std::mt19937_64 random(4711);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    MemoryFolder folder;
    std::vector<std::uint64_t> lives;
    for (std::uint32_t rank = 0; rank < kCount; ++rank) lives.push_back(random() % 40);
    RunMortals(folder, 1000, lives);
    Job again = MakeJob(folder, kCount, 2000);
    RunAll(again);
    ExpectAllFound(again);
    LeaveAll(again);
    EXPECT_THAT(folder.Names(), IsEmpty());
  }
}

TEST(DirectoryKillTest, LaunchesThatOverlapNeverMixADeadLaunchIntoALivingOne) {
  std::mt19937_64 random(4712);
  int found = 0;
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    MemoryFolder folder;
    std::vector<std::uint64_t> lives;
    for (std::uint32_t rank = 0; rank < kCount; ++rank) lives.push_back(random() % 60);
    std::vector<Nodes> before;
    std::jthread killed([&] { before = RunMortals(folder, 1000, lives); });
    const std::vector<Nodes> after =
        RunMortals(folder, 2000, std::vector<std::uint64_t>(kCount, ~0ULL));
    killed.join();
    // Whoever has a list is in it, and all who have the list of one leader have the same.
    std::map<std::uint64_t, std::vector<NodeEntry>> lists;
    for (std::size_t i = 0; i < 2 * kCount; ++i) {
      const Nodes& nodes = i < kCount ? before[i] : after[i - kCount];
      if (!nodes.has_value()) continue;
      ++found;
      const std::uint64_t nonce = i < kCount ? 1000 + i : 2000 + i - kCount;
      EXPECT_EQ(std::ranges::count(*nodes, nonce, &NodeEntry::nonce), 1);
      const auto [list, is_new] = lists.try_emplace(nodes->front().nonce, *nodes);
      EXPECT_EQ(list->second, *nodes);
    }
  }
  EXPECT_GT(found, 0) << "some launches have succeeded";
}

}  // namespace forebay::rendezvous::directory_rendezvous_test
