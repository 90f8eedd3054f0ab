// A job of several nodes in one process: each stages its share, and a stream of one node reads all
// samples, byte for byte, in both deliveries. The GFS is read once in all. When nodes are gone,
// only what they alone had is read again, by one of those that are left. Each test runs over both
// transports.
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/stream/testing/node_group.h"
#include "server/tier/ssd/segment_format.h"

namespace forebay::stream::node_group_test {

using ::testing::HasSubstr;

constexpr std::size_t kRecordBytes = 1000;
constexpr std::uint64_t kSamples = 1024;
constexpr std::uint64_t kFileBytes = kSamples * kRecordBytes;  // in 16 extents
constexpr std::uint64_t kSteps = kSamples / 8;

class NodeGroupTest : public ::testing::TestWithParam<peer::TransportKind> {
 protected:
  NodeGroupTest() {
    EXPECT_TRUE(backend_
                    .AddFile("/gfs/data.bin", ServeFixture::RecordFile(kSamples, kRecordBytes))
                    .has_value());
  }

  void Start(std::uint32_t count, const ServeOptions& options = {}) {
    auto made = NodeGroup::Create(backend_, count, kRecordBytes, options, GetParam());
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    group_ = std::move(*made);
  }
  void Stage(std::uint32_t rank) {
    const Status staged = group_->node(rank).StageAll();
    ASSERT_TRUE(staged.has_value()) << staged.error().ToString();
  }
  void StageEach(std::uint32_t count) {
    for (std::uint32_t rank = 0; rank < count; ++rank) Stage(rank);
  }

  // One stream of one node, with its reader.
  struct Reader {
    std::unique_ptr<CollectingSink> sink;
    std::shared_ptr<StreamSession> session;
  };
  Reader Open(std::uint32_t rank, const ServeFixture::Ask& ask = {}) {
    Reader reader{.sink = group_->node(rank).MakeSink(), .session = nullptr};
    auto session = group_->node(rank).Open(ask, *reader.sink);
    EXPECT_TRUE(session.has_value()) << (session ? "" : session.error().ToString());
    if (session) reader.session = *session;
    return reader;
  }
  // Pulls steps of epoch 0, a few ahead, and releases each batch as it comes. What came is appended
  // to `taken`.
  static void Pull(Reader& reader, std::uint64_t begin, std::uint64_t end,
                   std::vector<CollectingSink::Taken>& taken) {
    for (std::uint64_t step = begin; step < end; step += 4) {
      for (std::uint64_t i = step; i < step + 4; ++i) {
        const Status pulled = reader.session->Pull({.first = {.step = StepId(i)}});
        ASSERT_TRUE(pulled.has_value()) << pulled.error().ToString();
      }
      ASSERT_TRUE(reader.sink->WaitFor(4));
      ASSERT_TRUE(reader.sink->errors().empty()) << reader.sink->errors().front().ToString();
      for (CollectingSink::Taken& batch : reader.sink->TakeBatches()) {
        ASSERT_TRUE(reader.session->Release({&batch.id, 1}).has_value());
        taken.push_back(std::move(batch));
      }
    }
  }
  // Pulls a whole epoch on a node: each sample comes once, with its own bytes.
  void ExpectEpoch(std::uint32_t rank, const ServeFixture::Ask& ask = {}) {
    Reader reader = Open(rank, ask);
    ASSERT_NE(reader.session, nullptr);
    std::vector<CollectingSink::Taken> taken;
    Pull(reader, 0, kSteps, taken);
    ExpectAllSamples(taken);
    reader.session->Close();
  }
  static void ExpectAllSamples(const std::vector<CollectingSink::Taken>& taken) {
    std::set<std::uint64_t> seen;
    for (const CollectingSink::Taken& batch : taken) {
      EXPECT_EQ(batch.payload_bytes, 8 * kRecordBytes);
      for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
        ASSERT_EQ(batch.payload[i], ServeFixture::RecordOf(batch.sample_ids[i], kRecordBytes))
            << "sample " << batch.sample_ids[i];
        EXPECT_TRUE(seen.insert(batch.sample_ids[i]).second);
      }
    }
    EXPECT_EQ(seen.size(), kSamples);
  }

  io::MemoryBackend backend_;
  std::unique_ptr<NodeGroup> group_;
};

TEST_P(NodeGroupTest, AStreamOfOneNodeReadsAllAndTheGfsIsReadOnce) {
  Start(2);
  StageEach(2);
  EXPECT_EQ(group_->GfsBytes(), kFileBytes);
  EXPECT_LT(group_->node(0).dataset().progress().gfs_bytes, kFileBytes);
  for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
    ExpectEpoch(0, {.delivery = delivery});
    ExpectEpoch(1, {.delivery = delivery, .mode = OrderMode::kBlock});
  }
  EXPECT_EQ(group_->GfsBytes(), kFileBytes);
  for (const std::uint32_t rank : {0U, 1U}) {
    const std::uint64_t requests = group_->transport().row_requests(NodeRank(rank));
    EXPECT_GT(requests, 0U);
    EXPECT_LE(requests, 2 * kSteps) << "at most one request for each batch";
    EXPECT_EQ(group_->transport().extents_asked(NodeRank(rank)), 0U) << "no extent is copied";
    EXPECT_EQ(group_->node(rank).slots().used_bytes(), 0U);
  }
}

TEST_P(NodeGroupTest, ANodeThatSendsWrongRowsIsAskedForWholeExtents) {
  Start(2);
  StageEach(2);
  group_->transport().SetSendsWrongRows(NodeRank(1));
  ExpectEpoch(0);
  EXPECT_GT(group_->transport().row_requests(NodeRank(1)), 0U);
  EXPECT_GT(group_->transport().extents_asked(NodeRank(1)), 0U);
  EXPECT_EQ(group_->GfsBytes(), kFileBytes);
}

// The transport has repeated the requests until their deadlines. With three nodes the third one is
// asked; with two this node reads what the busy one refuses.
TEST_P(NodeGroupTest, SamplesOfABusyNodeComeAllTheSame) {
  for (const std::uint32_t count : {3U, 2U}) {
    group_.reset();
    Start(count);
    StageEach(count);
    group_->transport().SetIsTooBusy(NodeRank(1));
    ExpectEpoch(0);
    EXPECT_GT(group_->transport().row_requests(NodeRank(1)), 0U);
    EXPECT_GT(group_->transport().extents_asked(NodeRank(1)), 0U);
    EXPECT_GT(group_->GfsBytes(), kFileBytes);
  }
}

TEST_P(NodeGroupTest, WhatANodeThatYieldsDoesNotHaveIsReadByTheNextForAllNodes) {
  Start(3);
  StageEach(3);
  ServeFixture& yielding = group_->node(1);
  const std::uint64_t share = yielding.dataset().progress().gfs_bytes;
  // What it has it supplies.
  group_->membership(1).SetYields(plan::YieldReason::kSlowGfs, true);
  ExpectEpoch(0);
  EXPECT_GT(group_->transport().bytes_sent(NodeRank(1)), 0U);
  EXPECT_EQ(group_->GfsBytes(), kFileBytes);
  for (std::uint32_t i = 0; i < yielding.dataset().catalog()->extent_count(); ++i) {
    const tier::ExtentKey& key = yielding.dataset().key(ExtentId(i));
    if (!yielding.cache().Find(key)) continue;
    const Status evicted = yielding.cache().Evict(key, std::nullopt);
    ASSERT_TRUE(evicted.has_value()) << evicted.error().ToString();
  }
  for (const std::uint32_t reader : {0U, 1U, 2U}) ExpectEpoch(reader);
  EXPECT_EQ(yielding.dataset().progress().gfs_bytes, share);
  EXPECT_EQ(group_->GfsBytes(), kFileBytes + share) << "once more, by its substitutes";
  for (const std::uint32_t other : {0U, 2U}) {
    EXPECT_TRUE(group_->membership(other).Lives(NodeRank(1)));
  }
}

TEST_P(NodeGroupTest, WrongRowsOfOneNodeComeFromTheNext) {
  Start(3);
  StageEach(3);
  group_->transport().SetSendsWrongRows(NodeRank(1));
  group_->transport().SetSendsWrongRows(NodeRank(2));
  ExpectEpoch(0);
  ExpectEpoch(0, {.delivery = Delivery::kViews});
}

TEST_P(NodeGroupTest, RowsComeFromTheOwnersSsd) {
  Start(2, {.ram_bytes = 256 << 10, .ssd_bytes = 64 << 20});
  StageEach(2);
  ASSERT_GT(group_->node(1).cache().stats(tier::TierKind::kSsd).extents, 0U);
  ExpectEpoch(0);
  ExpectEpoch(0, {.delivery = Delivery::kViews});
  EXPECT_EQ(group_->GfsBytes(), kFileBytes);
}

TEST_P(NodeGroupTest, AFlippedBitOnTheOwnersSsdIsFoundAndTheExtentFetchedAgain) {
  Start(2, {.ram_bytes = 256 << 10, .ssd_bytes = 64 << 20});
  StageEach(2);
  const auto resident = group_->node(1).cache().Resident(tier::TierKind::kSsd);
  ASSERT_FALSE(resident.empty());
  ASSERT_TRUE(
      backend_.FlipBit("/ssd1/" + tier::SegmentName(resident.front()), 100'001).has_value());
  ExpectEpoch(0);
  EXPECT_EQ(group_->node(1).cache().stats(tier::TierKind::kSsd).bad_extents, 1U);
  const std::uint64_t extent_bytes =
      group_->node(1).dataset().catalog()->extent(resident.front().extent).bytes;
  EXPECT_EQ(group_->GfsBytes(), kFileBytes + extent_bytes);
}

// A batch has samples of both nodes, and the GFS does not answer this one for a while. The other
// node is asked all the same, and the batch is complete as soon as the GFS answers.
TEST_P(NodeGroupTest, OtherNodesAreAskedWhileOwnExtentsAreOnTheirWay) {
  Start(2);
  StageEach(2);
  for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
    for (const tier::ExtentKey& key : group_->node(0).cache().Resident(tier::TierKind::kRam)) {
      ASSERT_TRUE(group_->node(0).cache().Evict(key, std::nullopt).has_value());
    }
    group_->faults().Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kRead,
                          .is_persistent = true, .path = "data.bin"});
    const std::uint64_t before = group_->transport().row_requests(NodeRank(1));
    Reader reader = Open(0, {.delivery = delivery});
    FOREBAY_EXPECT_OK(reader.session->Pull({.first = {.step = StepId(0)}, .count = 4}));
    // Batches that wait for the GFS ask one by one, though they were pulled together.
    while (group_->transport().row_requests(NodeRank(1)) < before + 4) std::this_thread::yield();
    EXPECT_TRUE(reader.sink->TakeBatches().empty());
    group_->faults().Disarm();
    group_->faults().ReleaseStalls();
    ASSERT_TRUE(reader.sink->WaitFor(4));
    ASSERT_TRUE(reader.sink->errors().empty()) << reader.sink->errors().front().ToString();
    for (const CollectingSink::Taken& batch : reader.sink->TakeBatches()) {
      for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
        EXPECT_EQ(batch.payload[i], ServeFixture::RecordOf(batch.sample_ids[i], kRecordBytes));
      }
      EXPECT_TRUE(reader.session->Release({&batch.id, 1}).has_value());
    }
    // Only rows of the other node are counted as such.
    const stream::SessionStats stats = reader.session->stats();
    EXPECT_GT(stats.other_samples, 0U);
    EXPECT_LT(stats.other_samples, 4 * 8U);
    EXPECT_EQ(stats.waited_samples, 4 * 8U);
    reader.session->Close();
    EXPECT_EQ(group_->node(0).slots().used_bytes(), 0U);
  }
}

TEST_P(NodeGroupTest, ABatchWhoseOwnExtentsDoNotComeIsAnErrorThatPasses) {
  // The transport has a clock of its own, which the deadlines of its requests must fit.
  io::ManualClock clock(io::SteadyClock().NowNs());
  Start(2, {.clock = &clock});
  StageEach(2);
  for (const tier::ExtentKey& key : group_->node(0).cache().Resident(tier::TierKind::kRam)) {
    ASSERT_TRUE(group_->node(0).cache().Evict(key, std::nullopt).has_value());
  }
  group_->faults().Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kRead,
                        .is_persistent = true, .path = "data.bin"});
  Reader reader = Open(0);
  FOREBAY_EXPECT_OK(reader.session->Pull({.first = {.step = StepId(0)}}));
  // The request to this node is the last one, and has been made once it reads from the GFS.
  while (group_->faults().faults_injected() == 0) std::this_thread::yield();
  EXPECT_EQ(group_->transport().row_requests(NodeRank(1)), 1U);
  group_->node(0).own_rows().Expire();
  EXPECT_TRUE(reader.sink->errors().empty()) << "its time is not over";
  clock.AdvanceNs(limits::kPullDeadlineMs * 1'000'000);
  group_->node(0).own_rows().Expire();
  ASSERT_TRUE(reader.sink->WaitFor(1));
  ASSERT_EQ(reader.sink->errors().size(), 1U);
  EXPECT_EQ(reader.sink->errors().front().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(reader.sink->errors().front().message(),
              AllOf(HasSubstr("rows of 'data'"), HasSubstr("(object 'data.bin')"),
                    HasSubstr("from the GFS")));
  EXPECT_EQ(group_->node(0).slots().used_bytes(), 0U);
  group_->faults().Disarm();
  group_->faults().ReleaseStalls();
  reader.session->Close();
}

TEST_P(NodeGroupTest, AnOwnerThatHasNotBegunStagesForTheStreamThatAsks) {
  Start(2);
  Stage(0);
  ExpectEpoch(0);
  EXPECT_EQ(group_->GfsBytes(), kFileBytes);
}

TEST_P(NodeGroupTest, AStreamThatIsClosedGivesUpTheRowsThatItWaitsFor) {
  Start(2);
  StageEach(2);
  group_->transport().SetHoldsRows(NodeRank(1));
  Reader reader = Open(0);
  // One by one, because batches that are pulled together ask together.
  for (std::uint64_t step = 0; step < 4; ++step) {
    FOREBAY_EXPECT_OK(reader.session->Pull({.first = {.step = StepId(step)}}));
  }
  while (group_->transport().row_requests(NodeRank(1)) < 4) std::this_thread::yield();
  EXPECT_GT(group_->node(0).slots().used_bytes(), 0U);
  reader.session->Close();
  EXPECT_TRUE(group_->node(0).AwaitFreeSlots());
  EXPECT_TRUE(reader.sink->errors().empty()) << "nothing reaches a stream that was closed";
  EXPECT_EQ(group_->transport().row_requests(NodeRank(0)), 0U);
  EXPECT_EQ(group_->transport().row_requests(NodeRank(1)), 4U) << "nobody is asked in its place";
}

TEST_P(NodeGroupTest, AnOwnerIsToldWhereItsReaderIs) {
  Start(2);
  StageEach(2);
  Reader reader = Open(0, {.mode = OrderMode::kBlock});
  ASSERT_NE(reader.session, nullptr);
  std::vector<CollectingSink::Taken> taken;
  Pull(reader, 0, kSteps, taken);
  const StreamSpec& spec = reader.session->spec();
  const fetch::ReaderPlace place = group_->transport().place_told(NodeRank(1));
  EXPECT_EQ(place.order, spec.order.Fingerprint());
  EXPECT_EQ(place.ranks, 1U);
  EXPECT_EQ(place.epoch, EpochId(0));
  // Node 1 owns some of the last samples, and batches that may be under way are not counted.
  EXPECT_GE(place.position + (2 * spec.credits + kSteps / 4) * 8, kSamples);
  EXPECT_LE(place.position, kSamples - spec.credits * 8);
  reader.session->Close();
  // Nobody needs to know in mode global.
  ExpectEpoch(0);
  EXPECT_EQ(group_->transport().place_told(NodeRank(1)).order, 0U);
}

TEST_P(NodeGroupTest, ANodeThatGoesDuringAnEpochCostsOneReadOfItsShare) {
  Start(2);
  StageEach(2);
  const std::uint64_t share = group_->node(1).dataset().progress().gfs_bytes;
  for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
    Reader reader = Open(0, {.delivery = delivery});
    std::vector<CollectingSink::Taken> taken;
    Pull(reader, 0, kSteps / 2, taken);
    group_->transport().Silence(NodeRank(1));
    Pull(reader, kSteps / 2, kSteps, taken);
    ExpectAllSamples(taken);
    reader.session->Close();
    EXPECT_EQ(group_->node(0).dataset().progress().gfs_bytes, kFileBytes);
    EXPECT_EQ(group_->GfsBytes(), kFileBytes + share);
  }
  EXPECT_EQ(group_->node(0).slots().used_bytes(), 0U);
}

TEST_P(NodeGroupTest, OnlyTheFirstSubstituteReadsWhatTheGoneNodeHad) {
  Start(3);
  group_->transport().Silence(NodeRank(0));
  Stage(1);
  Stage(2);
  EXPECT_LT(group_->GfsBytes(), kFileBytes);
  // Two streams want the share of node 0, which nobody has read, at the same time.
  {
    std::vector<std::jthread> readers;
    for (const std::uint32_t rank : {1U, 2U}) {
      readers.emplace_back([this, rank] { ExpectEpoch(rank); });
    }
  }
  EXPECT_EQ(group_->GfsBytes(), kFileBytes);
  EXPECT_EQ(group_->node(0).dataset().progress().gfs_bytes, 0U);
}

// The owner is gone and its object altered behind its size and modification time. Whatever still
// comes is right; a batch that needs the altered bytes is an error that names object and extent.
TEST_P(NodeGroupTest, WhatTheOwnerReadFirstIsDeliveredForEverOrNothing) {
  Start(3);
  StageEach(3);
  ExpectEpoch(0);
  group_->transport().Silence(NodeRank(1));
  for (std::uint64_t byte = 77; byte < kFileBytes; byte += kRecordBytes) {
    ASSERT_TRUE(backend_.FlipBit("/gfs/data.bin", byte * 8).has_value());
  }
  for (const std::uint32_t rank : {0U, 2U}) {
    Reader reader = Open(rank, {.mode = OrderMode::kBlock});
    ASSERT_NE(reader.session, nullptr);
    std::size_t delivered = 0;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const std::size_t failed = reader.sink->errors().size();
      ASSERT_TRUE(reader.session->Pull({.first = {.step = StepId(step)}}).has_value());
      ASSERT_TRUE(reader.sink->WaitFor(failed + 1));
      for (CollectingSink::Taken& batch : reader.sink->TakeBatches()) {
        ASSERT_TRUE(reader.session->Release({&batch.id, 1}).has_value());
        for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
          ASSERT_EQ(batch.payload[i], ServeFixture::RecordOf(batch.sample_ids[i], kRecordBytes));
        }
        ++delivered;
      }
    }
    EXPECT_GT(delivered, 0U);
    EXPECT_EQ(delivered + reader.sink->errors().size(), kSteps);
    ASSERT_FALSE(reader.sink->errors().empty());
    for (const Error& error : reader.sink->errors()) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_THAT(error.message(),
                  AllOf(HasSubstr("object 'data.bin', extent "), HasSubstr("changed since first")));
    }
    reader.session->Close();
  }
}

TEST_P(NodeGroupTest, TheLastNodeReadsEverythingOnce) {
  Start(3);
  group_->transport().Silence(NodeRank(1));
  group_->transport().Silence(NodeRank(2));
  Stage(0);
  ExpectEpoch(0);
  EXPECT_EQ(group_->GfsBytes(), kFileBytes);
}

TEST_P(NodeGroupTest, ANodeThatComesBackIsAskedAgain) {
  Start(2);
  StageEach(2);
  group_->membership(0).SetLives(NodeRank(1), false);
  ExpectEpoch(0);
  EXPECT_EQ(group_->transport().row_requests(NodeRank(1)), 0U);
  for (const tier::ExtentKey& key : group_->node(0).cache().Resident(tier::TierKind::kRam)) {
    if (group_->Ranked(key.extent).front() == NodeRank(0)) continue;
    ASSERT_TRUE(group_->node(0).cache().Evict(key, std::nullopt).has_value());
  }
  const std::uint64_t read = group_->GfsBytes();
  group_->membership(0).SetLives(NodeRank(1), true);
  ExpectEpoch(0);
  EXPECT_GT(group_->transport().row_requests(NodeRank(1)), 0U);
  EXPECT_EQ(group_->GfsBytes(), read);
}

TEST_P(NodeGroupTest, WholeSamplesAreSuppliedThatLieInExtentsOfTwoNodes) {
  // Samples of 100,000 bytes in extents of 64 KiB at most: each spans two.
  constexpr std::size_t kLong = 100'000;
  ASSERT_TRUE(backend_.AddFile("/gfs/data.bin", ServeFixture::RecordFile(16, kLong)).has_value());
  auto made = NodeGroup::Create(backend_, 2, kLong, {}, GetParam());
  ASSERT_TRUE(made.has_value()) << made.error().ToString();
  group_ = std::move(*made);
  StageEach(2);
  for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
    Reader reader = Open(0, {.batch = 4, .delivery = delivery});
    std::vector<CollectingSink::Taken> taken;
    Pull(reader, 0, 4, taken);
    ASSERT_EQ(taken.size(), 4U);
    for (const CollectingSink::Taken& batch : taken) {
      for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
        EXPECT_EQ(batch.payload[i], ServeFixture::RecordOf(batch.sample_ids[i], kLong));
      }
    }
    reader.session->Close();
  }
  EXPECT_EQ(group_->GfsBytes(), 16 * kLong);
}

TEST_P(NodeGroupTest, FieldsOfVariableSizeAndConstantsComeWithTheirSamples) {
  constexpr std::uint64_t kImages = 64;
  catalog::DatasetSource folder;
  folder.format = catalog::Format::kImageFolder;
  folder.settings.SetTexts("suffixes", {".jpg"});
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < kImages; ++i) {
    const std::vector<std::byte> image = ServeFixture::RecordFile(1, 500 + 131 * i);
    const std::string name = i < 10 ? "0" + std::to_string(i) : std::to_string(i);
    ASSERT_TRUE(backend_.AddFile("/gfs/class" + std::to_string(i / 16) + "/" + name + ".jpg",
                                 image)
                    .has_value());
    bytes += image.size();
  }
  Start(2, {.extent_bytes = 16 << 10, .source = folder});
  StageEach(2);
  for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
    Reader reader = Open(0, {.delivery = delivery});
    std::vector<CollectingSink::Taken> taken;
    Pull(reader, 0, kImages / 8, taken);
    ASSERT_EQ(taken.size(), kImages / 8);
    for (const CollectingSink::Taken& batch : taken) {
      for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
        const std::uint64_t sample = batch.sample_ids[i];
        EXPECT_EQ(batch.payload[i], ServeFixture::RecordOf(0, 500 + 131 * sample));
        EXPECT_EQ(batch.fields[1][i], std::to_string(sample / 16));
      }
    }
    reader.session->Close();
  }
  EXPECT_GT(group_->transport().row_requests(NodeRank(1)), 0U);
  EXPECT_EQ(group_->GfsBytes(), bytes);
}

TEST_P(NodeGroupTest, ASampleOfTwoFieldsCountsAsOneOfAnotherNode) {
  ASSERT_TRUE(backend_
                  .AddFile("/gfs/more.bin", ServeFixture::RecordFile(kSamples, kRecordBytes))
                  .has_value());
  catalog::DatasetSource two;
  two.format = catalog::Format::kRaw;
  two.settings.SetTexts("files", {"x=data.bin", "y=more.bin"});
  two.settings.SetNumbers("shape", {kRecordBytes});
  Start(2, {.source = two});
  StageEach(2);
  Reader reader = Open(0);
  ASSERT_NE(reader.session, nullptr);
  std::vector<CollectingSink::Taken> taken;
  Pull(reader, 0, kSteps, taken);
  const SessionStats stats = reader.session->stats();
  EXPECT_EQ(stats.samples, kSamples);
  EXPECT_GT(stats.other_samples, kSamples / 4);
  EXPECT_LT(stats.other_samples, kSamples);
  reader.session->Close();
}

TEST_P(NodeGroupTest, RowsThatWereCompressedAtStagingAreDecodedByTheirOwner) {
  Start(2, {.compression = stage::Compression::kFast});
  StageEach(2);
  for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
    ExpectEpoch(0, {.delivery = delivery});
  }
  EXPECT_EQ(group_->transport().extents_asked(NodeRank(1)), 0U);
  EXPECT_GT(group_->transport().row_requests(NodeRank(1)), 0U);
  EXPECT_GT(group_->node(1).decoded().stats().decoded, 0U);
  EXPECT_EQ(group_->GfsBytes(), kFileBytes);
}

// One reader takes all samples of a window, so its rows are more bytes than compressed extents.
TEST_P(NodeGroupTest, RunsOfCompressedExtentsAreCopiedAndDecodedHere) {
  std::vector<std::byte> file;
  for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
    file.insert(file.end(), kRecordBytes, static_cast<std::byte>('a' + sample % 16));
  }
  ASSERT_TRUE(backend_.AddFile("/gfs/data.bin", file).has_value());
  Start(2, {.compression = stage::Compression::kFast});
  StageEach(2);
  Reader reader = Open(0, {.mode = OrderMode::kBlock, .block_samples = 65});
  ASSERT_NE(reader.session, nullptr);
  std::vector<CollectingSink::Taken> taken;
  Pull(reader, 0, kSteps, taken);
  for (const CollectingSink::Taken& batch : taken) {
    for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
      const char letter = static_cast<char>('a' + batch.sample_ids[i] % 16);
      EXPECT_EQ(batch.payload[i], std::string(kRecordBytes, letter));
    }
  }
  reader.session->Close();
  EXPECT_GT(group_->transport().extents_asked(NodeRank(1)), 0U);
  EXPECT_EQ(group_->transport().row_requests(NodeRank(1)), 0U);
  EXPECT_EQ(group_->GfsBytes(), kFileBytes);
}

// Records of random bytes take as much as copies as they do as rows.
TEST_P(NodeGroupTest, ExtentsThatAreNotCompressibleAreNotCopied) {
  Start(2, {.compression = stage::Compression::kFast});
  StageEach(2);
  ExpectEpoch(0, {.mode = OrderMode::kBlock, .block_samples = 65});
  EXPECT_EQ(group_->transport().extents_asked(NodeRank(1)), 0U);
  EXPECT_GT(group_->transport().row_requests(NodeRank(1)), 0U);
}

TEST_P(NodeGroupTest, NodesWithOtherObjectsAreToldApart) {
  Start(2);
  Stage(0);
  const auto longer = ServeFixture::RecordFile(kSamples + 1, kRecordBytes);
  ASSERT_TRUE(backend_.AddFile("/gfs/data.bin", longer).has_value());
  Stage(1);
  Reader reader = Open(0);
  for (std::uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(reader.session->Pull({.first = {.step = StepId(i)}}).has_value());
  }
  ASSERT_TRUE(reader.sink->WaitFor(4));
  ASSERT_FALSE(reader.sink->errors().empty());
  EXPECT_EQ(reader.sink->errors().front().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(reader.sink->errors().front().message(), HasSubstr("configured alike"));
  reader.session->Close();
}

INSTANTIATE_TEST_SUITE_P(
    Transports, NodeGroupTest,
    ::testing::Values(peer::TransportKind::kInProcess, peer::TransportKind::kGrpc),
    [](const auto& tested) { return peer::TransportName(tested.param); });

}  // namespace forebay::stream::node_group_test
