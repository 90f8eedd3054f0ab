// Packs in a job of several nodes in one process, over both transports: whether samples come as
// rows, in chunks or with copies of extents, they are the pack's to the byte; damage, lost nodes
// and readers that leave cost no sample that could be had.
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compress/decode/pack/pack_file.h"
#include "compress/encode/chunk/error_bound.h"
#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/stream/testing/node_group.h"
#include "server/stream/testing/packed_stream_fixture.h"

namespace forebay::stream::packed_nodes_test {

using ::testing::HasSubstr;

constexpr std::uint32_t kBatch = 8;

class PackedNodesTest : public ::testing::TestWithParam<peer::TransportKind> {
 protected:
  // Writes the pack and starts the nodes, which stage their shares.
  void Start(const PackModel& model, std::uint32_t count, ServeOptions options = {}) {
    pack_ = compress::WritePack(model, folder_);
    Serve(count, std::move(options));
  }
  void Serve(std::uint32_t count, ServeOptions options = {}) {
    backend_ = std::make_unique<io::MemoryBackend>();
    ASSERT_TRUE(backend_->AddFile("/gfs/data.pack", pack_).has_value());
    options.source = catalog::DatasetSource();
    options.source->format = catalog::Format::kPack;
    if (options.extent_bytes == ServeOptions().extent_bytes) options.extent_bytes = 16 << 10;
    auto made = NodeGroup::Create(*backend_, count, 0, options, GetParam());
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    group_ = std::move(*made);
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      const Status staged = group_->node(rank).StageAll();
      ASSERT_TRUE(staged.has_value()) << staged.error().ToString();
    }
  }

  // Pulls an epoch on node 0, a few steps ahead, and compares each batch that comes with the pack.
  // Returns how many different samples came; errors stay in errors_.
  std::size_t PullEpoch(const ServeFixture::Ask& asked, std::uint64_t silent_after = ~0ULL) {
    ServeFixture::Ask ask = asked;
    ask.batch = kBatch * ask.ranks;
    const auto sink = group_->node(0).MakeSink();
    auto opened = group_->node(0).Open(ask, *sink);
    EXPECT_TRUE(opened.has_value()) << (opened ? "" : opened.error().ToString());
    if (!opened) return 0;
    StreamSession& session = **opened;
    std::set<std::uint64_t> seen;
    const std::uint64_t steps = session.spec().plan.steps();
    for (std::uint64_t step = 0; step < steps; step += 4) {
      if (step >= silent_after) group_->transport().Silence(NodeRank(1));
      const std::uint64_t count = std::min<std::uint64_t>(4, steps - step);
      const std::size_t failed = sink->errors().size();
      for (std::uint64_t i = 0; i < count; ++i) {
        EXPECT_TRUE(session.Pull({.first = {.step = StepId(step + i)}}).has_value());
      }
      EXPECT_TRUE(sink->WaitFor(failed + count));
      for (const CollectingSink::Taken& batch : sink->TakeBatches()) {
        Compare(batch, seen);
        EXPECT_TRUE(session.Release({&batch.id, 1}).has_value());
      }
    }
    other_samples_ = session.stats().other_samples;
    session.Close();
    errors_ = sink->errors();
    EXPECT_EQ(group_->node(0).slots().used_bytes(), 0U);
    return seen.size();
  }
  void Compare(const CollectingSink::Taken& batch, std::set<std::uint64_t>& seen) {
    const auto source = compress::MemorySource(pack_);
    const auto pack = compress::PackFile::Open(*source);
    ASSERT_TRUE(pack.has_value()) << pack.error().ToString();
    std::vector<std::byte> scratch(pack->ScratchBytes());
    for (std::uint32_t field = 0; field < batch.fields.size(); ++field) {
      for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
        const auto value = compress::ReadField(*pack, field, batch.sample_ids[i], scratch);
        ASSERT_TRUE(value.has_value()) << value.error().ToString();
        ASSERT_EQ(batch.fields[field][i], TextOf(*value))
            << "sample " << batch.sample_ids[i] << ", field " << field;
        seen.insert(batch.sample_ids[i]);
      }
    }
  }
  std::uint64_t RowRequests() {
    std::uint64_t requests = 0;
    for (std::uint32_t rank = 0; rank < group_->size(); ++rank) {
      requests += group_->transport().row_requests(NodeRank(rank));
    }
    return requests;
  }
  std::uint64_t ChunkRequests() {
    std::uint64_t requests = 0;
    for (std::uint32_t rank = 0; rank < group_->size(); ++rank) {
      requests += group_->transport().chunk_requests(NodeRank(rank));
    }
    return requests;
  }
  // The chunks that node 1 owns, in the order of the table.
  std::vector<catalog::PackChunk> ChunksOfNodeOne() {
    const catalog::PackTable& table = *group_->node(0).dataset().catalog()->packs();
    std::vector<catalog::PackChunk> chunks;
    for (std::uint64_t number = 0; number < table.chunk_count(); ++number) {
      const catalog::PackChunk chunk = table.chunk(number);
      if (group_->Ranked(chunk.extent).front() == NodeRank(1)) chunks.push_back(chunk);
    }
    EXPECT_FALSE(chunks.empty()) << "node 1 owns nothing";
    return chunks;
  }
  // The first step of OfTwoReaders whose chunk node 1 owns, in an extent that is not copied.
  std::optional<StepId> StepOfAChunk() {
    const std::shared_ptr<const catalog::Catalog> catalog = group_->node(0).dataset().catalog();
    for (const catalog::PackChunk& chunk : ChunksOfNodeOne()) {
      const bool is_copied = catalog->extent(chunk.extent).sample_count < 3 * kBatch;
      if (is_copied || chunk.first_sample() / kBatch % 2 != 0) continue;
      return StepId(chunk.first_sample() / (2 * kBatch));
    }
    return std::nullopt;
  }
  std::uint64_t ExtentsAsked() {
    std::uint64_t extents = 0;
    for (std::uint32_t rank = 0; rank < group_->size(); ++rank) {
      extents += group_->transport().extents_asked(NodeRank(rank));
    }
    return extents;
  }
  // Returns an extent that node 1 owns, with the number of a chunk in it.
  std::pair<ExtentId, catalog::PackChunk> ChunkOfNodeOne() {
    const catalog::PackTable& table = *group_->node(0).dataset().catalog()->packs();
    for (std::uint64_t number = 0; number < table.chunk_count(); ++number) {
      const catalog::PackChunk chunk = table.chunk(number);
      if (group_->Ranked(chunk.extent).front() == NodeRank(1)) return {chunk.extent, chunk};
    }
    ADD_FAILURE() << "node 1 owns nothing";
    return {};
  }

  compress::TestFolder folder_;
  std::unique_ptr<io::MemoryBackend> backend_;
  std::vector<std::byte> pack_;
  std::unique_ptr<NodeGroup> group_;
  std::vector<Error> errors_;
  std::uint64_t other_samples_ = 0;  // of the last PullEpoch
};

// Each step has 16 consecutive samples, which are two chunks of a movie; one of them is rank 0's.
ServeFixture::Ask OfTwoReaders() { return {.mode = OrderMode::kSequential, .ranks = 2}; }

// Returns a pack with fields of one chunk and of several tiles, all of fixed size.
PackModel FixedModel(std::size_t samples) {
  PackModel model = MakeModel(samples, 3);
  model.schema.fields.pop_back();  // byte strings
  for (auto& fields : model.samples) fields.pop_back();
  return model;
}

// The owner is too busy, and the GFS does not answer this node, which is next. The rows of a pack
// do not say in which extent they lie, so the error does not name one.
TEST_P(PackedNodesTest, RowsThatDoNotComeFromTheGfsInTimeAreAnErrorThatPasses) {
  // The transport has a clock of its own, which the deadlines of its requests must fit.
  io::ManualClock clock(io::SteadyClock().NowNs());
  Start(FixedModel(256), 2, {.extent_bytes = 48 << 10, .clock = &clock});
  group_->transport().SetIsTooBusy(NodeRank(1));
  group_->faults().Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kRead,
                        .is_persistent = true, .path = "data.pack"});
  const auto sink = group_->node(0).MakeSink();
  const auto session = group_->node(0).Open({.batch = kBatch}, *sink);
  ASSERT_TRUE(session.has_value()) << session.error().ToString();
  FOREBAY_EXPECT_OK((*session)->Pull({.first = {.step = StepId(0)}}));
  while (group_->faults().faults_injected() == 0) std::this_thread::yield();
  clock.AdvanceNs(limits::kPullDeadlineMs * 1'000'000);
  group_->node(0).own_rows().Expire();
  ASSERT_TRUE(sink->WaitFor(1));
  ASSERT_EQ(sink->errors().size(), 1U);
  EXPECT_EQ(sink->errors().front().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(sink->errors().front().message(), HasSubstr("rows of 'data' have not arrived"));
  EXPECT_EQ(group_->node(0).slots().used_bytes(), 0U);
  group_->faults().Disarm();
  group_->faults().ReleaseStalls();
  (*session)->Close();
}

TEST_P(PackedNodesTest, AGlobalOrderTakesRowsAndCopiesNoExtents) {
  Start(FixedModel(256), 2, {.extent_bytes = 48 << 10});
  const std::uint64_t read = group_->GfsBytes();
  for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
    EXPECT_EQ(PullEpoch({.delivery = delivery}), 256U);
    EXPECT_TRUE(errors_.empty());
  }
  EXPECT_GT(RowRequests(), 0U);
  EXPECT_LE(RowRequests(), 2U * 256 / kBatch) << "at most one request for each batch";
  // Tiles of a sample may lie in extents of two nodes; then the owner that is asked copies one.
  // The last extent is small, so a batch may take more bytes of it than it has.
  EXPECT_LE(group_->transport().extents_asked(NodeRank(1)), 1U);
  EXPECT_EQ(group_->GfsBytes(), read);
  EXPECT_GT(group_->node(1).decoded().stats().decoded, 0U) << "the owner decodes";
  std::uint64_t sample_bytes = 0;
  for (const compress::PackField& field :
       group_->node(0).dataset().catalog()->packs()->schema().fields) {
    sample_bytes += field.sample_bytes();
  }
  const std::uint64_t sent = group_->transport().bytes_sent(NodeRank(1));
  EXPECT_GT(sent, 0U);
  EXPECT_LT(sent, 2 * 256 * sample_bytes) << "a part of the samples of two epochs";
}

TEST_P(PackedNodesTest, RowsOfDifferencesToTheFrameBeforeAreRight) {
  Start(Movie(256), 2);
  EXPECT_EQ(PullEpoch({}), 256U);
  EXPECT_GT(RowRequests(), 0U);
  EXPECT_EQ(ExtentsAsked(), 0U);
}

TEST_P(PackedNodesTest, RowsOfALossyPackAreWhatThePackDecodesTo) {
  PackModel model = Movie(1024);
  model.schema.fields[0].bound = {
      .mode = static_cast<std::uint8_t>(compress::BoundMode::kAbsolute), .absolute = 3};
  Start(model, 2);
  EXPECT_EQ(PullEpoch({}), 1024U);
  EXPECT_GT(RowRequests(), 0U);
  EXPECT_EQ(ExtentsAsked(), 0U);
}

TEST_P(PackedNodesTest, OwnersWithoutACacheDecodeOnlyWhatIsWanted) {
  Start(FixedModel(256), 2, {.decoded_bytes = 0});
  EXPECT_EQ(PullEpoch({}), 256U);
  EXPECT_GT(RowRequests(), 0U);
  EXPECT_EQ(group_->node(1).decoded().stats().decoded, 0U);
}

TEST_P(PackedNodesTest, RunsOfWholeExtentsAreCopiedOnceWhereThatIsFewerBytes) {
  Start(Movie(256), 2);
  const ServeFixture::Ask blocks = {.mode = OrderMode::kBlock, .block_samples = 64,
                                    .window_runs = 2};
  EXPECT_EQ(PullEpoch(blocks), 256U);
  EXPECT_EQ(RowRequests(), 0U);
  EXPECT_GT(ExtentsAsked(), 0U);
  EXPECT_LT(ExtentsAsked(), group_->node(0).dataset().catalog()->extent_count());
}

TEST_P(PackedNodesTest, ShortRunsTakeRows) {
  Start(Movie(256), 2, {.extent_bytes = 64 << 10});
  const ServeFixture::Ask blocks = {.mode = OrderMode::kBlock, .block_samples = 1,
                                    .window_runs = 8};
  EXPECT_EQ(PullEpoch(blocks), 256U);
  EXPECT_GT(RowRequests(), 0U);
  const fetch::ReaderPlace place = group_->transport().place_told(NodeRank(1));
  EXPECT_NE(place.order, 0U) << "the owner learns where its reader is, as with raw rows";
  EXPECT_GT(place.position, 0U);
}

TEST_P(PackedNodesTest, ASequentialOrderTakesTheChunksOfItsBatches) {
  Start(Movie(256), 2);
  std::uint64_t wanted_bytes = 0;
  std::uint64_t wanted_samples = 0;
  for (const catalog::PackChunk& chunk : ChunksOfNodeOne()) {
    if (chunk.first_sample() / kBatch % 2 != 0) continue;  // it is the other reader's
    wanted_bytes += chunk.bytes();
    wanted_samples += chunk.entry.sample_count;
  }
  EXPECT_EQ(PullEpoch(OfTwoReaders()), 128U);
  EXPECT_TRUE(errors_.empty());
  EXPECT_GT(ChunkRequests(), 0U);
  EXPECT_EQ(RowRequests(), ChunkRequests()) << "no owner decodes a row";
  EXPECT_EQ(group_->node(1).decoded().stats().decoded, 0U);
  // An extent of a single chunk may be copied in its place.
  const std::uint64_t sent = group_->transport().bytes_sent(NodeRank(1));
  EXPECT_LE(sent, wanted_bytes + 64 * ExtentsAsked());
  EXPECT_LE(other_samples_, wanted_samples);
  EXPECT_GT(other_samples_, 0U);
}

TEST_P(PackedNodesTest, RunsShorterThanExtentsTakeChunks) {
  Start(Movie(1024), 2, {.extent_bytes = 64 << 10, .decoded_bytes = 4 << 20});
  const ServeFixture::Ask blocks = {.mode = OrderMode::kBlock, .block_samples = 16,
                                    .window_runs = 2};
  std::uint64_t row_bytes = 0;
  for (const catalog::PackChunk& chunk : ChunksOfNodeOne()) {
    row_bytes += chunk.entry.sample_count * 32 * 48;
  }
  EXPECT_EQ(PullEpoch(blocks), 1024U);
  EXPECT_TRUE(errors_.empty());
  EXPECT_GT(ChunkRequests(), 0U);
  EXPECT_EQ(RowRequests(), ChunkRequests());
  const std::uint64_t sent = group_->transport().bytes_sent(NodeRank(1));
  EXPECT_GT(sent, 0U);
  EXPECT_LT(sent, row_bytes / 2) << "the four batches of a window share its chunks";
  EXPECT_NE(group_->transport().place_told(NodeRank(1)).order, 0U);
}

TEST_P(PackedNodesTest, ValuesWithoutAFixedSizeComeInChunks) {
  Start(MakeModel(256, 3), 2, {.extent_bytes = 48 << 10});
  EXPECT_EQ(PullEpoch({}), 256U);
  EXPECT_TRUE(errors_.empty());
  EXPECT_GT(ChunkRequests(), 0U);
  EXPECT_GT(RowRequests(), ChunkRequests()) << "values of fixed size come as rows";
  // Tiles of a sample may lie in extents of two nodes, and the last extent is small.
  EXPECT_LE(group_->transport().extents_asked(NodeRank(1)), 2U);
  EXPECT_LE(other_samples_, 256U);
}

TEST_P(PackedNodesTest, WithoutMemoryForChunksRowsOrExtentsComeInTheirPlace) {
  Start(Movie(256), 2, {.sent_chunk_bytes = 0});
  EXPECT_EQ(PullEpoch(OfTwoReaders()), 128U);
  EXPECT_TRUE(errors_.empty());
  EXPECT_EQ(ChunkRequests(), 0U);
  EXPECT_GT(RowRequests() + ExtentsAsked(), 0U);
}

TEST_P(PackedNodesTest, WithoutMemoryForChunksValuesWithoutAFixedSizeComeWithTheirExtents) {
  Start(MakeModel(128, 3), 2, {.sent_chunk_bytes = 0});
  EXPECT_EQ(PullEpoch({}), 128U);
  EXPECT_TRUE(errors_.empty());
  EXPECT_EQ(ChunkRequests(), 0U);
  EXPECT_GT(ExtentsAsked(), 0U);
}

TEST_P(PackedNodesTest, WrongChunksComeFromTheNextNode) {
  Start(Movie(256), 3);
  group_->transport().SetFlipsBits(NodeRank(1));
  EXPECT_EQ(PullEpoch(OfTwoReaders()), 128U);
  EXPECT_TRUE(errors_.empty());
  EXPECT_GT(group_->transport().chunk_requests(NodeRank(1)), 0U);
  EXPECT_GT(group_->transport().wrong_extents(NodeRank(1)), 0U);
}

TEST_P(PackedNodesTest, ChunksThatNobodyCanSendAreReadFromAnExtentOfThisNode) {
  Start(Movie(256), 3);
  group_->transport().SetSendsWrongRows(NodeRank(1));
  group_->transport().SetSendsWrongRows(NodeRank(2));
  EXPECT_EQ(PullEpoch(OfTwoReaders()), 128U);
  EXPECT_TRUE(errors_.empty());
  EXPECT_GT(ChunkRequests(), 0U);
  EXPECT_GT(ExtentsAsked(), 0U);
}

TEST_P(PackedNodesTest, TheChunksOfALostOwnerAreReadFromItsShare) {
  Start(Movie(256), 2);
  const std::uint64_t share = group_->node(1).dataset().progress().gfs_bytes;
  const std::uint64_t read = group_->GfsBytes();
  group_->transport().Silence(NodeRank(1));
  EXPECT_EQ(PullEpoch(OfTwoReaders()), 128U);
  EXPECT_TRUE(errors_.empty());
  EXPECT_GT(group_->GfsBytes(), read);
  EXPECT_LE(group_->GfsBytes(), read + share);
}

TEST_P(PackedNodesTest, AStreamThatIsClosedGivesUpTheChunksThatItWaitsFor) {
  Start(Movie(256), 2);
  group_->transport().SetHoldsRows(NodeRank(1));
  const auto sink = group_->node(0).MakeSink();
  ServeFixture::Ask ask = OfTwoReaders();
  ask.batch = 2 * kBatch;
  auto session = group_->node(0).Open(ask, *sink);
  ASSERT_TRUE(session.has_value()) << session.error().ToString();
  const std::optional<StepId> step = StepOfAChunk();
  ASSERT_TRUE(step.has_value());
  ASSERT_TRUE((*session)->Pull({.first = {.step = *step}}).has_value());
  while (group_->transport().chunk_requests(NodeRank(1)) == 0) std::this_thread::yield();
  EXPECT_EQ(group_->node(0).slots().used_bytes(), 0U) << "a batch without its chunks has no slot";
  (*session)->Close();
  EXPECT_TRUE(sink->errors().empty()) << "nothing reaches a stream that was closed";
  EXPECT_EQ(RowRequests(), 1U) << "nobody is asked in its place";
}

TEST_P(PackedNodesTest, ChunksThatDoNotComeInTimeAreAnErrorThatPasses) {
  // The transport has a clock of its own, which the deadlines of its requests must fit.
  io::ManualClock clock(io::SteadyClock().NowNs());
  Start(Movie(256), 2, {.clock = &clock});
  group_->transport().SetHoldsRows(NodeRank(1));
  const auto sink = group_->node(0).MakeSink();
  ServeFixture::Ask ask = OfTwoReaders();
  ask.batch = 2 * kBatch;
  const auto session = group_->node(0).Open(ask, *sink);
  ASSERT_TRUE(session.has_value()) << session.error().ToString();
  const std::optional<StepId> step = StepOfAChunk();
  ASSERT_TRUE(step.has_value());
  FOREBAY_EXPECT_OK((*session)->Pull({.first = {.step = *step}}));
  while (group_->transport().chunk_requests(NodeRank(1)) == 0) std::this_thread::yield();
  clock.AdvanceNs(limits::kPullDeadlineMs * 1'000'000);
  group_->node(0).registry().ExpireWaiting();
  ASSERT_TRUE(sink->WaitFor(1));
  ASSERT_EQ(sink->errors().size(), 1U);
  EXPECT_EQ(sink->errors().front().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(sink->errors().front().message(), HasSubstr("'data'"));
  (*session)->Close();
}

// All find that the chunk is damaged, so the batch is an error, and all others come.
TEST_P(PackedNodesTest, AChunkDamagedOnTheGfsCostsTheBatchThatTakesIt) {
  Start(Movie(256), 2);
  const std::vector<std::byte> sound = pack_;
  std::optional<compress::ChunkEntry> entry;
  for (const catalog::PackChunk& chunk : ChunksOfNodeOne()) {
    if (!entry && chunk.first_sample() / kBatch % 2 == 0) entry = chunk.entry;
  }
  ASSERT_TRUE(entry.has_value());
  pack_[entry->offset + entry->head_bytes + 9] ^= std::byte{1};
  group_.reset();
  Serve(2);
  pack_ = sound;  // what the samples that come are compared with
  EXPECT_EQ(PullEpoch(OfTwoReaders()), 128U - kBatch);
  ASSERT_EQ(errors_.size(), 1U);
  EXPECT_EQ(errors_.front().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(errors_.front().message(), HasSubstr("chunk of field frame"));
}

TEST_P(PackedNodesTest, ChunksOnTheOwnersSsdAreReadAndDecodedThere) {
  Start(FixedModel(256), 2, {.ram_bytes = 96 << 10, .ssd_bytes = 64 << 20});
  ASSERT_GT(group_->node(1).cache().stats(tier::TierKind::kSsd).extents, 0U);
  const std::uint64_t read = group_->GfsBytes();
  EXPECT_EQ(PullEpoch({}), 256U);
  EXPECT_GT(RowRequests(), 0U);
  EXPECT_EQ(group_->GfsBytes(), read);
}

TEST_P(PackedNodesTest, AChunkDamagedInTheOwnersMemoryIsReadAgainThere) {
  Start(Movie(256), 2, {.decoded_bytes = 0});
  const auto [extent, chunk] = ChunkOfNodeOne();
  const tier::ExtentRef copy = group_->node(1).cache().FindOn(
      group_->node(1).dataset().key(extent), tier::TierKind::kRam);
  ASSERT_TRUE(copy);
  copy->block.bytes()[chunk.image_offset + chunk.entry.head_bytes + 9] ^= std::byte{4};
  const std::uint64_t read = group_->GfsBytes();
  EXPECT_EQ(PullEpoch({}), 256U);
  EXPECT_TRUE(errors_.empty());
  EXPECT_EQ(group_->node(1).cache().stats(tier::TierKind::kRam).bad_extents, 1U);
  EXPECT_EQ(group_->GfsBytes(), read + copy->image_bytes);
}

// The owner says that the chunk is damaged, so the next node is asked, and in the end this node
// decodes a copy of its own. All find the same, and every sample beside the chunk comes.
TEST_P(PackedNodesTest, AChunkDamagedOnTheGfsIsAskedOfTheNextNodesAndCostsItsSamples) {
  Start(Movie(256), 3, {.decoded_bytes = 0});
  const std::vector<std::byte> sound = pack_;
  const catalog::PackChunk chunk = ChunkOfNodeOne().second;
  const NodeRank next = group_->Ranked(chunk.extent)[1];
  pack_[chunk.entry.offset + chunk.entry.head_bytes + 9] ^= std::byte{1};
  group_.reset();
  Serve(3, {.decoded_bytes = 0});
  ASSERT_EQ(group_->Ranked(chunk.extent)[1], next);
  pack_ = sound;  // what the samples that come are compared with
  const std::size_t came = PullEpoch({});
  EXPECT_FALSE(errors_.empty());
  EXPECT_EQ(came, 256U - kBatch * errors_.size());
  EXPECT_LE(errors_.size(), 8U) << "batches with samples of the chunk";
  for (const Error& error : errors_) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_THAT(error.message(), HasSubstr("chunk of field frame"));
  }
  EXPECT_GT(group_->transport().row_requests(NodeRank(1)), 0U);
  if (next == NodeRank(2)) {
    EXPECT_GT(group_->transport().row_requests(NodeRank(2)), 0U);
  }
  EXPECT_GT(ExtentsAsked(), 0U);
}

TEST_P(PackedNodesTest, WrongRowsComeFromTheNextNodeOrWithTheExtent) {
  Start(Movie(256), 3);
  group_->transport().SetSendsWrongRows(NodeRank(1));
  group_->transport().SetSendsWrongRows(NodeRank(2));
  EXPECT_EQ(PullEpoch({}), 256U);
  EXPECT_TRUE(errors_.empty());
  EXPECT_GT(RowRequests(), 0U);
  EXPECT_GT(ExtentsAsked(), 0U);
}

TEST_P(PackedNodesTest, ALostOwnersShareIsReadAgainAndNoSampleIsMissing) {
  Start(Movie(256), 2);
  const std::uint64_t share = group_->node(1).dataset().progress().gfs_bytes;
  const std::uint64_t read = group_->GfsBytes();
  EXPECT_EQ(PullEpoch({}, /*silent_after=*/12), 256U);
  EXPECT_TRUE(errors_.empty());
  EXPECT_EQ(group_->GfsBytes(), read + share);
}

TEST_P(PackedNodesTest, AReaderThatLeavesGetsNothingAndItsMemoryIsFree) {
  Start(Movie(256), 2, {.workers = 1, .decoded_bytes = 0});
  const auto sink = group_->node(0).MakeSink();
  auto session = group_->node(0).Open({.batch = 32}, *sink);
  ASSERT_TRUE(session.has_value()) << session.error().ToString();
  for (std::uint64_t step = 0; step < 4; ++step) {
    ASSERT_TRUE((*session)->Pull({.first = {.step = StepId(step)}}).has_value());
  }
  (*session)->Close();
  const std::size_t delivered = sink->batches().size();
  session->reset();
  // A later stream finds all memory free once the rows of the first have come to nothing.
  EXPECT_EQ(PullEpoch({.name = "next"}), 256U);
  EXPECT_EQ(sink->batches().size(), delivered);
}

TEST_P(PackedNodesTest, AStreamThatIsClosedGivesUpTheRowsThatItWaitsFor) {
  Start(Movie(256), 2);
  group_->transport().SetHoldsRows(NodeRank(1));
  const auto sink = group_->node(0).MakeSink();
  auto session = group_->node(0).Open({.batch = kBatch}, *sink);
  ASSERT_TRUE(session.has_value()) << session.error().ToString();
  ASSERT_TRUE((*session)->Pull({.first = {.step = StepId(0)}}).has_value());
  while (group_->transport().row_requests(NodeRank(1)) == 0) std::this_thread::yield();
  EXPECT_GT(group_->node(0).slots().used_bytes(), 0U);
  (*session)->Close();
  EXPECT_TRUE(group_->node(0).AwaitFreeSlots());
  EXPECT_TRUE(sink->errors().empty()) << "nothing reaches a stream that was closed";
  EXPECT_EQ(RowRequests(), 1U) << "nobody is asked in its place";
}

INSTANTIATE_TEST_SUITE_P(
    Transports, PackedNodesTest,
    ::testing::Values(peer::TransportKind::kInProcess, peer::TransportKind::kGrpc),
    [](const auto& tested) { return peer::TransportName(tested.param); });

}  // namespace forebay::stream::packed_nodes_test
