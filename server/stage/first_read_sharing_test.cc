// Checksums of first reads travel to the nodes that would read the same extents again: which nodes
// get them, what becomes of a read that a node contradicts, and what a node keeps for another one.
// Over the transports: peer/extent_exchange_test.cc.
#include "server/stage/first_read_sharing.h"

#include <chrono>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/extent_loader.h"
#include "server/stage/extent_source.h"
#include "server/stage/local_first_reads.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage::first_read_sharing_test {

using io::testing::Pattern;
using io::testing::Take;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Nodes that answer at once, each as the test has it.
class FakeKeepers final : public FirstReadKeepers {
 public:
  void Keep(KeepRequest request, Kept kept) override {
    const NodeRank node = request.node;
    EXPECT_EQ(request.from, NodeRank(0));
    if (const auto error = errors.find(node); error != errors.end()) {
      ++refused[node];
      return kept(error->second);
    }
    sizes.push_back(request.reads.size());
    kept(known[node].KeepOfOther(request.reads));
  }

  std::map<NodeRank, FirstReads> known;
  std::map<NodeRank, Error> errors;
  std::map<NodeRank, int> refused;
  std::vector<std::size_t> sizes;  // of the calls that were answered
};

class FirstReadSharingTest : public ::testing::Test {
 protected:
  FirstReadSharingTest() {
    EXPECT_TRUE(memory_.AddDirectory("/gfs").has_value());
    dataset_ = std::make_unique<Dataset>(RecordDataset(), memory_,
                                         Take(memory_.OpenDirectory("/gfs")));
    dataset_->SetSharing(&sharing_);
    ranked_ = nodes_.Ranked(kGroup);
    // The group's owner is this node.
    while (ranked_.front() != NodeRank(0)) ranked_ = nodes_.Ranked(++group_);
  }

  static std::vector<plan::Node> Nodes() {
    std::vector<plan::Node> nodes;
    for (std::uint32_t rank = 0; rank < 5; ++rank) nodes.push_back({NodeRank(rank), 1});
    return nodes;
  }
  SharedRead Read(std::uint32_t extent, std::uint64_t checksum) const {
    return {.group_key = group_, .read = {.key = Key(extent), .checksum = checksum}};
  }
  tier::ExtentKey Key(std::uint32_t extent) const {
    return {.dataset = dataset_->hash(), .extent = ExtentId(extent), .identity = 100 + extent};
  }
  static void Know(FirstReads& reads, const tier::ExtentKey& key, std::uint64_t checksum) {
    const FirstRead read{.key = key, .checksum = checksum};
    EXPECT_THAT(reads.KeepOfOther({&read, 1}), IsEmpty());
  }
  std::vector<Contradiction> Give(const std::vector<SharedRead>& reads) {
    return Take(sharing_.Give(*dataset_, reads));
  }
  // The nodes that know a first read of the extent.
  std::vector<NodeRank> Keepers(std::uint32_t extent) {
    std::vector<NodeRank> nodes;
    for (auto& [node, known] : keepers_.known) {
      if (known.Find(Key(extent))) nodes.push_back(node);
    }
    return nodes;
  }
  // Reads extent 5 as ExtentSupplier does; the node's caches hold `cached`, the GFS `device`.
  Result<tier::ExtentChecksums> ReadFromGfs(const std::vector<std::byte>& cached,
                                            const std::vector<std::byte>& device) {
    std::vector<std::byte> image(100);
    return ReadExtent(
        *dataset_, {.key = Key(5), .pieces = {}, .objects = "object 'a'", .group_key = group_},
        image, [&](std::span<std::byte> bytes, bool past_caches) -> Status {
          std::ranges::copy(past_caches ? device : cached, bytes.begin());
          return {};
        });
  }
  std::uint64_t ChecksumOf(const std::vector<std::byte>& image) const {
    return tier::ComputeChecksums(Key(5), image, {}).image;
  }

  static constexpr std::uint64_t kGroup = 1;
  const std::vector<std::byte> right_ = Pattern(100, 1), wrong_ = Pattern(100, 2);
  std::uint64_t group_ = kGroup;
  io::MemoryBackend memory_;
  io::SteadyClock clock_;
  FakeKeepers keepers_;
  plan::Membership nodes_{NodeRank(0), Nodes()};
  FirstReadSharing sharing_{nodes_, keepers_, clock_};
  std::unique_ptr<Dataset> dataset_;
  std::vector<NodeRank> ranked_;
};

TEST_F(FirstReadSharingTest, TheNextTwoNodesOfTheRankingGetARead) {
  EXPECT_THAT(Give({Read(5, 55), Read(6, 66)}), IsEmpty());
  for (const std::uint32_t extent : {5U, 6U}) {
    EXPECT_THAT(Keepers(extent), UnorderedElementsAre(ranked_[1], ranked_[2]));
  }
  EXPECT_THAT(keepers_.sizes, ElementsAre(2, 2)) << "one call for each node";
  EXPECT_EQ(keepers_.known[ranked_[1]].Find(Key(5)), 55U);
}

// As an earlier daemon leaves one where the nodes of the job were others.
TEST_F(FirstReadSharingTest, ACopyIsComparedByTheNodeThatReadsTheExtent) {
  std::uint64_t group = kGroup;
  std::vector<NodeRank> ranked = nodes_.Ranked(group);
  while (ranked.back() != NodeRank(0)) ranked = nodes_.Ranked(++group);
  const auto copy = [&](std::uint32_t extent) {
    return SharedRead{.group_key = group,
                      .read = {.key = Key(extent), .checksum = 7},
                      .is_of_other = true};
  };
  EXPECT_THAT(Give({copy(1)}), IsEmpty());
  EXPECT_THAT(Keepers(1), ElementsAre(ranked[0])) << "and no substitute";
  Know(keepers_.known[ranked[0]], Key(2), 8);
  const std::vector<Contradiction> contradictions = Give({copy(1), copy(2)});
  ASSERT_THAT(contradictions, SizeIs(1));
  EXPECT_EQ(contradictions[0].read, 1U);
  EXPECT_EQ(contradictions[0].node, ranked[0]);
  keepers_.errors.emplace(ranked[0], Error(ErrorCode::kUnavailable, "gone"));
  EXPECT_THAT(Give({copy(3)}), IsEmpty());
  EXPECT_THAT(Keepers(3), ElementsAre(ranked[1])) << "which reads it now";
}

TEST_F(FirstReadSharingTest, ANodeThatDoesNotAnswerIsReplacedByTheNextAndNotAskedAgain) {
  keepers_.errors.emplace(ranked_[1], Error(ErrorCode::kUnavailable, "no answer"));
  EXPECT_THAT(Give({Read(5, 55)}), IsEmpty());
  EXPECT_THAT(Keepers(5), UnorderedElementsAre(ranked_[2], ranked_[3]));
  EXPECT_FALSE(nodes_.Lives(ranked_[1]));
  EXPECT_THAT(Give({Read(6, 66)}), IsEmpty());
  EXPECT_EQ(keepers_.refused[ranked_[1]], 1);
}

TEST_F(FirstReadSharingTest, ANodeThatAnswersOnlyPingsIsLeftOutForAWhile) {
  keepers_.errors.emplace(ranked_[1], Error(ErrorCode::kDeadlineExceeded, "its disk hangs"));
  for (const std::uint32_t extent : {5U, 6U, 7U}) {
    EXPECT_THAT(Give({Read(extent, 1)}), IsEmpty());
    nodes_.SetLives(ranked_[1], true);
  }
  EXPECT_EQ(keepers_.refused[ranked_[1]], 1) << "staging waits for it once";
  EXPECT_THAT(Keepers(7), UnorderedElementsAre(ranked_[2], ranked_[3]));
}

// Requests before it took all places of the connection until its deadline.
TEST_F(FirstReadSharingTest, ANodeThatCouldNotBeAskedInTimeIsLeftOutForAWhileAndStillLives) {
  keepers_.errors.emplace(ranked_[1], NotSent("others went before it"));
  EXPECT_THAT(Give({Read(5, 55)}), IsEmpty());
  EXPECT_THAT(Keepers(5), UnorderedElementsAre(ranked_[2], ranked_[3]));
  EXPECT_TRUE(nodes_.Lives(ranked_[1]));
  EXPECT_THAT(Give({Read(6, 66)}), IsEmpty());
  EXPECT_EQ(keepers_.refused[ranked_[1]], 1) << "staging waits for it once";
}

TEST_F(FirstReadSharingTest, ANodeThatRefusesIsReplacedAndStillLives) {
  keepers_.errors.emplace(ranked_[2], Error(ErrorCode::kFailedPrecondition, "another catalog"));
  EXPECT_THAT(Give({Read(5, 55)}), IsEmpty());
  EXPECT_THAT(Keepers(5), UnorderedElementsAre(ranked_[1], ranked_[3]));
  EXPECT_TRUE(nodes_.Lives(ranked_[2]));
  // It has refused for a reason that passes, such as a rebuild that it has not done yet.
  keepers_.errors.clear();
  EXPECT_THAT(Give({Read(6, 66)}), IsEmpty());
  EXPECT_THAT(Keepers(6), UnorderedElementsAre(ranked_[1], ranked_[2]));
}

TEST_F(FirstReadSharingTest, ANodeThatLacksARebuildIsReplacedUntilItIsRebuilt) {
  keepers_.errors.emplace(ranked_[1], AskNext("it was started again, and has not rebuilt it"));
  ::testing::internal::CaptureStdout();
  EXPECT_THAT(Give({Read(5, 55)}), IsEmpty());
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "") << "its own log says it";
  EXPECT_THAT(Keepers(5), UnorderedElementsAre(ranked_[2], ranked_[3]));
  EXPECT_TRUE(nodes_.Lives(ranked_[1]));
  keepers_.errors.clear();
  EXPECT_THAT(Give({Read(6, 66)}), IsEmpty());
  EXPECT_THAT(Keepers(6), UnorderedElementsAre(ranked_[1], ranked_[2]));
}

TEST_F(FirstReadSharingTest, WithoutAnyOtherNodeAReadIsServedAllTheSame) {
  for (std::uint32_t rank = 1; rank < 5; ++rank) {
    keepers_.errors.emplace(NodeRank(rank), Error(ErrorCode::kDeadlineExceeded, "no answer"));
  }
  EXPECT_TRUE(ReadFromGfs(right_, right_).has_value());
  EXPECT_THAT(Keepers(5), IsEmpty());
  EXPECT_TRUE(ReadFromGfs(right_, right_).has_value());
  EXPECT_EQ(keepers_.refused.size(), 4U);
  for (const auto& [node, count] : keepers_.refused) EXPECT_EQ(count, 1) << node.value();
}

TEST_F(FirstReadSharingTest, AShutdownIsNoReasonToServe) {
  keepers_.errors.emplace(ranked_[1], Error(ErrorCode::kCancelled, "the daemon is shutting down"));
  const auto read = ReadFromGfs(right_, right_);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code(), ErrorCode::kCancelled);
  EXPECT_FALSE(dataset_->first_reads().Find(Key(5)).has_value());
}

TEST_F(FirstReadSharingTest, ManyReadsAreCutIntoCallsOfBoundedSize) {
  std::vector<SharedRead> reads;
  for (std::uint32_t i = 0; i < limits::kPeerFirstReadsMax + 5; ++i) reads.push_back(Read(i, i));
  EXPECT_THAT(Give(reads), IsEmpty());
  EXPECT_THAT(keepers_.sizes,
              UnorderedElementsAre(limits::kPeerFirstReadsMax, limits::kPeerFirstReadsMax, 5, 5));
}

TEST_F(FirstReadSharingTest, OnlyTheReadThatANodeContradictsIsNamed) {
  Know(keepers_.known[ranked_[2]], Key(6), 67);
  const std::vector<Contradiction> contradictions = Give({Read(5, 55), Read(6, 66), Read(7, 77)});
  ASSERT_EQ(contradictions.size(), 1U);
  EXPECT_EQ(contradictions.front().read, 1U);
  EXPECT_EQ(contradictions.front().node, ranked_[2]);
  EXPECT_EQ(keepers_.known[ranked_[2]].Find(Key(6)), 67U) << "what was known first stays";
}

TEST_F(FirstReadSharingTest, BytesThatASubstituteKnowsOtherwiseAreDataLossThatNamesBothNodes) {
  Know(keepers_.known[ranked_[1]], Key(5), ChecksumOf(right_));
  const auto changed = ReadFromGfs(wrong_, wrong_);
  ASSERT_FALSE(changed.has_value());
  EXPECT_EQ(changed.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(changed.error().message(), HasSubstr("object 'a', extent 5: changed"));
  EXPECT_THAT(changed.error().message(),
              HasSubstr("(node " + std::to_string(ranked_[1].value()) +
                        " has another checksum of the first read of data set 'data' than node 0 "));
  EXPECT_THAT(changed.error().message(), HasSubstr("on every node of the job"));
  EXPECT_EQ(dataset_->first_reads().mismatches(), 2U);
}

TEST_F(FirstReadSharingTest, AStalePageOfThisNodeIsFoundByASubstitute) {
  Know(keepers_.known[ranked_[1]], Key(5), ChecksumOf(right_));
  const auto read = ReadFromGfs(wrong_, right_);
  ASSERT_TRUE(read.has_value()) << read.error().ToString();
  EXPECT_EQ(dataset_->first_reads().Find(Key(5)), ChecksumOf(right_));
}

TEST_F(FirstReadSharingTest, WhatDiffersFromTheFirstReadHereIsNotGivenToOthers) {
  ASSERT_TRUE(ReadFromGfs(right_, right_).has_value());
  EXPECT_FALSE(ReadFromGfs(wrong_, wrong_).has_value());
  EXPECT_EQ(keepers_.known[ranked_[1]].Find(Key(5)), ChecksumOf(right_));
  EXPECT_EQ(keepers_.sizes.size(), 2U);
}

TEST_F(FirstReadSharingTest, AReadThatDiffersFromThatOfAnotherNodeSaysSo) {
  Know(dataset_->first_reads(), Key(5), ChecksumOf(right_));
  const auto changed = ReadFromGfs(wrong_, wrong_);
  ASSERT_FALSE(changed.has_value());
  EXPECT_EQ(changed.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(changed.error().message(), HasSubstr("another node of the job has read it first"));
}

// Nodes that answer when the test says so.
class HeldKeepers final : public FirstReadKeepers {
 public:
  void Keep(KeepRequest request, Kept kept) override {
    const MutexLock lock(mutex_);
    asked_.push_back({.node = request.node, .reads = std::move(request.reads), .kept = kept});
    changed_.NotifyAll();
  }
  struct Asked {
    NodeRank node;
    std::vector<FirstRead> reads;
    Kept kept;
  };
  // Waits for a request, and takes it away.
  Asked Next() {
    UniqueLock lock(mutex_);
    while (asked_.empty()) changed_.Wait(mutex_);
    Asked next = std::move(asked_.front());
    asked_.pop_front();
    return next;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<Asked> asked_ FOREBAY_GUARDED_BY(mutex_);
};

class JoinedFirstReadsTest : public FirstReadSharingTest {
 protected:
  JoinedFirstReadsTest() : joined_(nodes_, held_, clock_) {}

  using Given = Result<std::vector<Contradiction>>;
  std::future<Given> GiveAtOnce(std::uint32_t extent) {
    return std::async(std::launch::async, [this, extent] {
      const SharedRead read = Read(extent, extent);
      return joined_.Give(*dataset_, {&read, 1});
    });
  }
  // Begins with one read on its way to its first keeper, and two that wait for it.
  HeldKeepers::Asked BeginThree() {
    given_.push_back(GiveAtOnce(1));
    HeldKeepers::Asked first = held_.Next();
    for (const std::uint32_t extent : {2U, 3U}) given_.push_back(GiveAtOnce(extent));
    while (joined_.waiting() < 2) std::this_thread::yield();
    return first;
  }
  static std::vector<std::uint32_t> ExtentsOf(const HeldKeepers::Asked& asked) {
    std::vector<std::uint32_t> extents;
    for (const FirstRead& read : asked.reads) extents.push_back(read.key.extent.value());
    return extents;
  }

  HeldKeepers held_;
  FirstReadSharing joined_;
  std::vector<std::future<Given>> given_;
};

TEST_F(JoinedFirstReadsTest, ReadsThatComeWhileANodeIsAskedGoTogetherInTheNextRequest) {
  HeldKeepers::Asked first = BeginThree();
  EXPECT_EQ(first.node, ranked_[1]);
  EXPECT_THAT(ExtentsOf(first), ElementsAre(1));
  first.kept(std::vector<std::uint32_t>());
  // The first read goes to its second keeper, and the two others to their first one.
  HeldKeepers::Asked one = held_.Next();
  HeldKeepers::Asked other = held_.Next();
  if (one.node != ranked_[1]) std::swap(one, other);
  EXPECT_EQ(one.node, ranked_[1]);
  EXPECT_THAT(ExtentsOf(one), UnorderedElementsAre(2, 3));
  EXPECT_EQ(other.node, ranked_[2]);
  EXPECT_THAT(ExtentsOf(other), ElementsAre(1));
  EXPECT_EQ(joined_.waiting(), 0U);
  // The second keeper has not answered yet, so the two wait for it, too.
  one.kept(std::vector<std::uint32_t>());
  while (joined_.waiting() < 2) std::this_thread::yield();
  for (std::future<Given>& given : given_) {
    EXPECT_EQ(given.wait_for(std::chrono::seconds(0)), std::future_status::timeout)
        << "nobody gets an extent before both keepers have its checksum";
  }
  other.kept(std::vector<std::uint32_t>());
  HeldKeepers::Asked last = held_.Next();
  EXPECT_EQ(last.node, ranked_[2]);
  EXPECT_THAT(ExtentsOf(last), UnorderedElementsAre(2, 3));
  last.kept(std::vector<std::uint32_t>());
  for (std::future<Given>& given : given_) EXPECT_THAT(Take(given.get()), IsEmpty());
}

TEST_F(JoinedFirstReadsTest, EachCallerIsToldOfItsOwnReads) {
  HeldKeepers::Asked first = BeginThree();
  first.kept(std::vector<std::uint32_t>{0});
  // It differs, so it is given to nobody else.
  EXPECT_THAT(Take(given_[0].get()), SizeIs(1));
  const HeldKeepers::Asked both = held_.Next();
  EXPECT_EQ(both.node, ranked_[1]);
  both.kept(std::vector<std::uint32_t>{1});
  const HeldKeepers::Asked last = held_.Next();
  EXPECT_EQ(last.node, ranked_[2]);
  EXPECT_THAT(ExtentsOf(last), ElementsAre(ExtentsOf(both)[0]));
  last.kept(std::vector<std::uint32_t>());
  const std::size_t differs = ExtentsOf(both)[1] - 1;  // in given_
  EXPECT_THAT(Take(given_[differs].get()), SizeIs(1));
  EXPECT_THAT(Take(given_[3 - differs].get()), IsEmpty());
}

TEST_F(JoinedFirstReadsTest, WhatWaitsForANodeThatDoesNotAnswerGoesToTheNextAtOnce) {
  HeldKeepers::Asked first = BeginThree();
  first.kept(Error(ErrorCode::kDeadlineExceeded, "no answer"));
  // All three are given to the second node and the third one, in two requests or three.
  std::map<NodeRank, std::size_t> kept;
  while (kept[ranked_[2]] + kept[ranked_[3]] < 6) {
    const HeldKeepers::Asked next = held_.Next();
    kept[next.node] += next.reads.size();
    next.kept(std::vector<std::uint32_t>());
  }
  EXPECT_EQ(kept[ranked_[2]], 3U);
  EXPECT_EQ(kept[ranked_[3]], 3U);
  for (std::future<Given>& given : given_) EXPECT_THAT(Take(given.get()), IsEmpty());
  EXPECT_FALSE(nodes_.Lives(ranked_[1]));
}

TEST_F(JoinedFirstReadsTest, AShutdownEndsAllWhoWait) {
  HeldKeepers::Asked first = BeginThree();
  first.kept(Error(ErrorCode::kCancelled, "the daemon is shutting down"));
  for (std::future<Given>& given : given_) {
    EXPECT_EQ(given.get().error().code(), ErrorCode::kCancelled);
  }
}

// What a node keeps for another one.
class LocalFirstReadsTest : public ::testing::Test {
 protected:
  LocalFirstReadsTest() {
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", Pattern(512'000, 1)).has_value());
    FOREBAY_EXPECT_OK(rig_.Start(RecordDataset()));
    local_.emplace(NodeRank(2), rig_.stager());
  }
  Result<std::vector<std::uint32_t>> Keep(const std::vector<FirstRead>& reads,
                                          std::uint64_t fingerprint) {
    return local_->Keep(rig_.dataset(), fingerprint, NodeRank(1), reads);
  }
  std::uint64_t Fingerprint() { return rig_.dataset().catalog()->fingerprint(); }

  io::MemoryBackend memory_;
  StageRig rig_{memory_, ""};
  std::optional<LocalFirstReads> local_;
};

TEST_F(LocalFirstReadsTest, AReadOfAnotherNodeIsComparedWithThoseOfThisOne) {
  FOREBAY_EXPECT_OK(rig_.StageAll());
  const tier::ExtentKey key = rig_.dataset().key(ExtentId(3));
  const std::uint64_t ours = *rig_.dataset().first_reads().Find(key);
  EXPECT_THAT(Take(Keep({{.key = key, .checksum = ours}}, Fingerprint())), IsEmpty());
  EXPECT_THAT(Take(Keep({{.key = key, .checksum = ours + 1}}, Fingerprint())), ElementsAre(0));
  EXPECT_EQ(rig_.dataset().first_reads().Find(key), ours);
  EXPECT_EQ(rig_.dataset().first_reads().mismatches(), 1U);
}

TEST_F(LocalFirstReadsTest, ReadsThatComeBeforeTheCatalogAreComparedLater) {
  FOREBAY_EXPECT_OK(rig_.StageAll());
  const tier::ExtentKey key = rig_.dataset().key(ExtentId(0));
  rig_.Stop();
  FOREBAY_EXPECT_OK(rig_.Start(RecordDataset()));
  local_.emplace(NodeRank(2), rig_.stager());
  EXPECT_THAT(Take(Keep({{.key = key, .checksum = 1}}, 0)), IsEmpty());
  const Status staged = rig_.StageAll();
  ASSERT_FALSE(staged.has_value());
  EXPECT_EQ(staged.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(staged.error().message(), HasSubstr("extent 0: changed since first read"));
}

TEST_F(LocalFirstReadsTest, ReadsOfOtherCatalogsExtentsAndObjectsAreRefused) {
  FOREBAY_EXPECT_OK(rig_.StageAll());
  const tier::ExtentKey key = rig_.dataset().key(ExtentId(3));
  const std::size_t before = rig_.dataset().first_reads().count();
  EXPECT_EQ(Keep({{.key = key, .checksum = 1}}, Fingerprint() + 1).error().code(),
            ErrorCode::kFailedPrecondition);
  tier::ExtentKey beyond = key;
  beyond.extent = ExtentId(8);
  EXPECT_EQ(Keep({{.key = beyond, .checksum = 1}}, Fingerprint()).error().code(),
            ErrorCode::kInvalidArgument);
  tier::ExtentKey replaced = key;
  ++replaced.identity;
  const auto other = Keep({{.key = key, .checksum = 1}, {.key = replaced, .checksum = 1}}, 0);
  EXPECT_EQ(other.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(other.error().message(), HasSubstr("extent 3"));
  EXPECT_EQ(rig_.dataset().first_reads().count(), before);
}

TEST_F(LocalFirstReadsTest, WithoutACatalogTheMemoryIsBounded) {
  std::vector<FirstRead> reads(limits::kFirstReadsBeforeCatalogMax);
  for (std::uint32_t i = 0; i < reads.size(); ++i) reads[i].key.extent = ExtentId(i);
  EXPECT_THAT(Take(Keep(reads, 0)), IsEmpty());
  EXPECT_EQ(Keep({{.key = {.extent = ExtentId(1U << 30)}, .checksum = 1}}, 0).error().code(),
            ErrorCode::kResourceExhausted);
}

}  // namespace forebay::stage::first_read_sharing_test
