// SharedStats decides which node asks the GFS for a batch, and goes on with the next one where a
// node does not supply it. A scripted StatSource plays the other nodes.
#include "server/stage/cataloguing/shared_stats.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/fault_injector.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/extent_source.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage::shared_stats_test {

using io::testing::Pattern;
using io::testing::Take;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kNodes = 5;
constexpr std::size_t kFiles = 20;
using Infos = Result<std::vector<io::FileInfo>>;

// Answers as the test says; records who was asked.
class Others final : public StatSource {
 public:
  Infos Stat(const StatRequest& request) override {
    asked.push_back(request.node);
    const auto scripted = answers.find(request.node);
    if (scripted != answers.end()) return scripted->second;
    return std::vector<io::FileInfo>(request.paths.size(), {.bytes = kSupplied});
  }
  static constexpr std::uint64_t kSupplied = 4711;  // no file has this size
  std::map<NodeRank, Infos> answers;
  std::vector<NodeRank> asked;
};

class SharedStatsTest : public ::testing::Test {
 protected:
  SharedStatsTest() {
    for (std::size_t i = 0; i < kFiles; ++i) {
      paths_.push_back("f" + std::to_string(i));
      EXPECT_TRUE(memory_.AddFile("/gfs/" + paths_.back(), Pattern(i + 1)).has_value());
    }
    dataset_.emplace(RecordDataset(), backend_, Take(backend_.OpenDirectory("/gfs")));
    RankNodes();
    faults_.Arm({.call = io::IoCall::kStat, .nth = ~0ULL});
  }
  static std::vector<plan::Node> Nodes(std::uint32_t count) {
    std::vector<plan::Node> nodes;
    for (std::uint32_t rank = 0; rank < count; ++rank) nodes.push_back({NodeRank(rank), 1});
    return nodes;
  }
  // Makes this node the last one that is asked for paths_, so that all others come before it.
  void RankNodes() {
    ranked_ = plan::Membership(NodeRank(0), Nodes(kNodes))
                  .Ranked(BatchKey(dataset_->hash(), paths_));
    UseNode(ranked_.back());
  }
  void UseNode(NodeRank self, std::uint32_t count = kNodes) {
    shared_.reset();
    nodes_.emplace(self, Nodes(count));
    shared_.emplace(*dataset_, *nodes_, others_, local_);
  }
  void ExpectFromOther(const catalog::StatOutcome& outcome) {
    EXPECT_FALSE(outcome.error);
    ASSERT_EQ(outcome.infos.size(), kFiles);
    for (const io::FileInfo& info : outcome.infos) EXPECT_EQ(info.bytes, Others::kSupplied);
    EXPECT_EQ(faults_.candidates_seen(), 0U);
  }
  // From the GFS: all files but the first ones, which another node has supplied.
  void ExpectFromGfs(const catalog::StatOutcome& outcome, std::size_t supplied = 0) {
    EXPECT_FALSE(outcome.error);
    ASSERT_EQ(outcome.infos.size(), kFiles);
    for (std::size_t i = 0; i < kFiles; ++i) {
      EXPECT_EQ(outcome.infos[i].bytes, i < supplied ? Others::kSupplied : i + 1) << i;
    }
    EXPECT_EQ(faults_.candidates_seen(), kFiles - supplied);
    EXPECT_EQ(dataset_->progress().gfs_stats, kFiles - supplied);
  }
  static Infos Supplied(std::size_t count) {
    return std::vector<io::FileInfo>(count, {.bytes = Others::kSupplied});
  }

  io::MemoryBackend memory_;
  io::FaultInjector faults_;
  io::FaultyBackend backend_{memory_, faults_};
  io::ManualClock clock_;
  std::vector<std::string> paths_;
  std::optional<Dataset> dataset_;
  LocalStats local_{backend_, clock_};
  Others others_;
  std::vector<NodeRank> ranked_;  // for paths_
  std::optional<plan::Membership> nodes_;
  std::optional<SharedStats> shared_;
};

TEST_F(SharedStatsTest, TheFirstNodeOfTheRankingSuppliesTheBatch) {
  ExpectFromOther(shared_->Stat(paths_));
  EXPECT_THAT(others_.asked, ElementsAre(ranked_[0]));
  EXPECT_EQ(shared_->paths_asked(), kFiles);
}

TEST_F(SharedStatsTest, ANodeAsksTheGfsIfItIsTheFirstThatLives) {
  for (std::uint32_t rank = 0; rank + 1 < kNodes; ++rank) nodes_->SetLives(ranked_[rank], false);
  ExpectFromGfs(shared_->Stat(paths_));
  EXPECT_TRUE(others_.asked.empty());
}

TEST_F(SharedStatsTest, ANodeDoesNotAskThoseThatAreRankedBehindIt) {
  UseNode(ranked_.front());
  ExpectFromGfs(shared_->Stat(paths_));
  EXPECT_TRUE(others_.asked.empty());
}

TEST_F(SharedStatsTest, ABatchHasAsManyPathsAsItIsTold) {
  EXPECT_EQ(shared_->paths_in_batch(), limits::kStatPathsMax);
  const SharedStats small(*dataset_, *nodes_, others_, local_, 250);
  EXPECT_EQ(small.paths_in_batch(), 250U);
}

TEST_F(SharedStatsTest, AsManyBatchesAreUnderWayAsThereAreNodesUpToALimit) {
  EXPECT_EQ(shared_->batches_at_once(), kNodes);
  UseNode(NodeRank(0), 1);
  EXPECT_EQ(shared_->batches_at_once(), 1U);
  UseNode(NodeRank(0), 100);
  EXPECT_EQ(shared_->batches_at_once(), 8U);
}

// --- every error branch -------------------------------------------------------------------

TEST_F(SharedStatsTest, InPlaceOfASilentNodeTheNextOneIsAskedAlsoForLaterBatches) {
  others_.answers.insert({ranked_[0], Error(ErrorCode::kUnavailable, "gone")});
  ExpectFromOther(shared_->Stat(paths_));
  EXPECT_THAT(others_.asked, ElementsAre(ranked_[0], ranked_[1]));
  EXPECT_FALSE(nodes_->Lives(ranked_[0]));
  ExpectFromOther(shared_->Stat(paths_));
  EXPECT_THAT(others_.asked, ElementsAre(ranked_[0], ranked_[1], ranked_[1]));
}

TEST_F(SharedStatsTest, AfterTwoSilentNodesTheGfsIsAsked) {
  others_.answers.insert({ranked_[0], Error(ErrorCode::kUnavailable, "gone")});
  others_.answers.insert({ranked_[1], Error(ErrorCode::kDeadlineExceeded, "too slow")});
  ExpectFromGfs(shared_->Stat(paths_));
  EXPECT_THAT(others_.asked, ElementsAre(ranked_[0], ranked_[1]));
}

TEST_F(SharedStatsTest, ANodeThatMayWaitForACapAndIsLateCountsAsAlive) {
  others_.answers.insert({ranked_[0], Error(ErrorCode::kDeadlineExceeded, "too slow")});
  others_.answers.insert({ranked_[1], Error(ErrorCode::kUnavailable, "gone")});
  SharedStats capped(*dataset_, *nodes_, others_, local_, kFiles, /*has_cap=*/true);
  ExpectFromGfs(capped.Stat(paths_));
  EXPECT_TRUE(nodes_->Lives(ranked_[0]));
  EXPECT_FALSE(nodes_->Lives(ranked_[1]));
}

TEST_F(SharedStatsTest, InPlaceOfABusyNodeTheNextOneIsAskedAndItCountsAsAlive) {
  others_.answers.insert({ranked_[0], Error(ErrorCode::kResourceExhausted, "busy")});
  ExpectFromOther(shared_->Stat(paths_));
  EXPECT_THAT(others_.asked, ElementsAre(ranked_[0], ranked_[1]));
  EXPECT_TRUE(nodes_->Lives(ranked_[0]));
}

TEST_F(SharedStatsTest, IfAllNodesAreBusyTheGfsIsAsked) {
  for (std::uint32_t i = 0; i + 1 < kNodes; ++i) {
    others_.answers.insert({ranked_[i], Error(ErrorCode::kResourceExhausted, "busy")});
  }
  ExpectFromGfs(shared_->Stat(paths_));
  EXPECT_EQ(others_.asked.size(), kNodes - 1);
}

// The GFS answers nobody, so each node in turn would be waited for until the deadline.
TEST_F(SharedStatsTest, AfterTwoNodesThatCouldNotBeAskedInTimeTheGfsIsAskedAndTheyCountAsAlive) {
  for (const NodeRank node : {ranked_[0], ranked_[1]}) {
    others_.answers.insert({node, NotSent("others went before it")});
  }
  ExpectFromGfs(shared_->Stat(paths_));
  EXPECT_THAT(others_.asked, ElementsAre(ranked_[0], ranked_[1]));
  for (const NodeRank node : ranked_) EXPECT_TRUE(nodes_->Lives(node));
}

TEST_F(SharedStatsTest, AnAnswerThatIsMalformedOrTooLongIsNotUsed) {
  others_.answers.insert({ranked_[0], Supplied(kFiles + 1)});
  others_.answers.insert({ranked_[1], Error(ErrorCode::kDataLoss, "altered")});
  others_.answers.insert({ranked_[2], Error(ErrorCode::kInvalidArgument, "no answer")});
  ExpectFromOther(shared_->Stat(paths_));
  EXPECT_THAT(others_.asked, ElementsAre(ranked_[0], ranked_[1], ranked_[2], ranked_[3]));
  for (const NodeRank node : ranked_) EXPECT_TRUE(nodes_->Lives(node));
}

TEST_F(SharedStatsTest, AFileThatFailsOnTheOtherNodeAndHereIsNamed) {
  paths_[7] = "missing";
  RankNodes();
  others_.answers.insert({ranked_[0], Supplied(7)});
  const catalog::StatOutcome outcome = shared_->Stat(paths_);
  EXPECT_EQ(outcome.infos.size(), 7U);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code(), ErrorCode::kNotFound);
  EXPECT_THAT(outcome.error->message(), HasSubstr("missing"));
  EXPECT_EQ(faults_.candidates_seen(), 1U) << "those behind it are of no use";
  EXPECT_THAT(others_.asked, ElementsAre(ranked_[0]));
}

// It may be that node's own way to the GFS that has failed.
TEST_F(SharedStatsTest, WhereOnlyTheOtherNodeHasFailedTheGfsIsAskedForTheRest) {
  others_.answers.insert({ranked_[0], Supplied(7)});
  ExpectFromGfs(shared_->Stat(paths_), /*supplied=*/7);
}

TEST_F(SharedStatsTest, AnAnswerWithoutAnySizeIsCompletedFromTheGfs) {
  others_.answers.insert({ranked_[0], Supplied(0)});
  ExpectFromGfs(shared_->Stat(paths_));
}

TEST_F(SharedStatsTest, TheLastFileMayBeTheOneThatFailed) {
  others_.answers.insert({ranked_[0], Supplied(kFiles - 1)});
  ExpectFromGfs(shared_->Stat(paths_), kFiles - 1);
}

TEST_F(SharedStatsTest, WhenThisDaemonStopsNobodyElseIsAsked) {
  others_.answers.insert({ranked_[0], Error(ErrorCode::kCancelled, "shutting down")});
  const catalog::StatOutcome outcome = shared_->Stat(paths_);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code(), ErrorCode::kCancelled);
  EXPECT_THAT(others_.asked, ElementsAre(ranked_[0]));
  EXPECT_EQ(faults_.candidates_seen(), 0U);
}

// --- BatchKey and CheckBatch ----------------------------------------------------------------

TEST(StatBatchTest, TheKeyDependsOnTheDataSetAndOnEachPath) {
  using Paths = std::vector<std::string>;
  const std::uint64_t key = BatchKey(1, Paths{"ab", "c"});
  EXPECT_EQ(BatchKey(1, Paths{"ab", "c"}), key);
  EXPECT_NE(BatchKey(2, Paths{"ab", "c"}), key);
  EXPECT_NE(BatchKey(1, Paths{"a", "bc"}), key);
  EXPECT_NE(BatchKey(1, Paths{"c", "ab"}), key);
  EXPECT_NE(BatchKey(1, Paths{"abc"}), key);
}

TEST(StatBatchTest, PathsBeneathARootAreAccepted) {
  for (const char* path : {"a", "a/b.jpg", "...", "a/..b/c..", "-", " ", "\xff/\n"}) {
    FOREBAY_EXPECT_OK(CheckBatch(std::vector<std::string>{path}));
  }
  FOREBAY_EXPECT_OK(CheckBatch(std::vector<std::string>{std::string(limits::kPathBytesMax, 'a')}));
  FOREBAY_EXPECT_OK(CheckBatch(std::vector<std::string>(limits::kStatPathsMax, "a")));
}

TEST(StatBatchTest, PathsThatNoNodeAsksForAreRefused) {
  const std::string too_long(limits::kPathBytesMax + 1, 'a');
  for (const std::string& path :
       {std::string(""), std::string("/etc/passwd"), std::string(".."), std::string("../a"),
        std::string("a/../../b"), std::string("a/.."), std::string("a//b"), std::string("a/"),
        std::string("."), std::string("./a"), std::string("a\0b", 3), too_long}) {
    const Status refused = CheckBatch(std::vector<std::string>{"good", path});
    ASSERT_FALSE(refused.has_value()) << path;
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message(), HasSubstr("not a canonical path"));
  }
}

TEST(StatBatchTest, BatchesBeyondTheLimitsAreRefused) {
  const std::vector<std::string> none;
  const std::vector<std::string> too_many(limits::kStatPathsMax + 1, "a");
  const std::vector<std::string> too_long(limits::kStatPathBytesMax / 4000 + 1,
                                          std::string(4000, 'a'));
  for (const auto& paths : {none, too_many, too_long}) {
    const Status refused = CheckBatch(paths);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message(), HasSubstr("a batch has 1 to 4096 paths"));
  }
}

}  // namespace forebay::stage::shared_stats_test
