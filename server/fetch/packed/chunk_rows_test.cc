// A node gets the chunks of a pack from LocalRows as the pack has them, from RAM and SSD, and each
// that exists is sound. What another node has sent is compared with the catalog.
#include "server/fetch/packed/chunk_rows.h"

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compress/encode/testing/pack_test_model.h"
#include "proto/contract/limits.h"
#include "server/fetch/local_rows.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/stage_rig.h"
#include "server/tier/piece_reader.h"

namespace forebay::fetch::chunk_rows_test {

using io::testing::Take;
using ::testing::HasSubstr;

constexpr std::uint64_t kExtentBytes = 16 << 10;
constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

class ChunkRowsTest : public ::testing::Test {
 protected:
  ChunkRowsTest() : pack_(compress::WritePack(compress::MakeModel(128, 5), folder_)) {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
  }
  ~ChunkRowsTest() override {
    executor_.reset();
    rig_.Stop();
  }

  void Start(const stage::RigOptions& options = {}) {
    ASSERT_TRUE(memory_.AddFile("/gfs/data.pack", pack_).has_value());
    stage::DatasetOptions dataset;
    dataset.source.name = "data";
    dataset.source.format = catalog::Format::kPack;
    dataset.source.extent_bytes = kExtentBytes;
    FOREBAY_EXPECT_OK(rig_.Start(dataset, options));
    fetcher_.emplace(rig_.cache(), rig_.stager(), nodes_);
    executor_ = Take(io::ThreadExecutor::Create(rig_.backend(), 2, 4));
    local_.emplace(LocalRowsParts{.stager = rig_.stager(),
                                  .fetcher = *fetcher_,
                                  .decoded = decoded_,
                                  .executor = *executor_,
                                  .clock = rig_.clock()});
    FOREBAY_EXPECT_OK(rig_.StageAll());
    catalog_ = rig_.dataset().catalog();
  }

  using Outcome = Result<std::shared_ptr<const FoundRows>>;
  Outcome Find(std::vector<Row> rows, std::uint64_t bytes_max = kNoLimit) {
    const auto outcome = std::make_shared<std::promise<Outcome>>();
    local_->Find(rig_.dataset(),
                 {.fingerprint = catalog_->fingerprint(),
                  .rows = std::move(rows),
                  .bytes_max = bytes_max},
                 [outcome](const Outcome& found) { outcome->set_value(found); });
    return outcome->get_future().get();
  }

  // The row that names chunk `number` of the table.
  Row RowOf(std::uint64_t number) const {
    const catalog::PackChunk chunk = catalog_->packs()->chunk(number);
    const SampleId sample(chunk.first_sample());
    const std::uint64_t first = catalog_->packs()->GroupOf(chunk.entry.field, sample).first;
    return {.sample = sample,
            .field = FieldId(chunk.entry.field),
            .memory = {},
            .chunk = static_cast<std::uint32_t>(number - first + 1)};
  }
  std::vector<Row> AllRows() const {
    std::vector<Row> rows;
    for (std::uint64_t i = 0; i < catalog_->packs()->chunk_count(); ++i) rows.push_back(RowOf(i));
    return rows;
  }
  std::span<const std::byte> InPack(std::uint64_t number) const {
    const catalog::PackChunk chunk = catalog_->packs()->chunk(number);
    return std::span(pack_).subspan(chunk.entry.offset, chunk.bytes());
  }
  // The bytes of whole blocks that a direct read of the chunk from SSD takes.
  std::uint64_t MemoryOf(std::uint64_t number) const {
    return tier::AlignedBytes(PieceOf(catalog_->packs()->chunk(number)));
  }
  void ExpectChunk(const FoundRows& found, std::size_t row, std::uint64_t number) const {
    ASSERT_FALSE(found.error(row)) << found.error(row)->ToString();
    ASSERT_EQ(found.runs(row).size(), 1U);
    EXPECT_EQ(found.bytes(row), InPack(number).size());
    EXPECT_TRUE(std::ranges::equal(found.runs(row)[0], InPack(number))) << "chunk " << number;
  }
  void ExpectAllChunks() {
    const Outcome found = Find(AllRows());
    ASSERT_TRUE(found.has_value()) << found.error().ToString();
    for (std::size_t i = 0; i < (*found)->count(); ++i) ExpectChunk(**found, i, i);
  }

  compress::TestFolder folder_;
  std::vector<std::byte> pack_;
  io::MemoryBackend memory_;
  stage::StageRig rig_{memory_, ""};
  plan::Membership nodes_;
  std::optional<Fetcher> fetcher_;
  std::unique_ptr<io::ThreadExecutor> executor_;
  DecodedCache decoded_{/*capacity_bytes=*/1 << 20,
                        [](const UnitSamples&) { return kNeverUsed; }};
  std::optional<LocalRows> local_;
  std::shared_ptr<const catalog::Catalog> catalog_;
};

TEST_F(ChunkRowsTest, ChunksInRamLieWhereTheyAreAndAreNotDecoded) {
  Start();
  ExpectAllChunks();
  EXPECT_EQ(decoded_.stats().decoded, 0U);
  const Outcome found = Find({RowOf(3)});
  ASSERT_TRUE(found.has_value()) << found.error().ToString();
  const catalog::PackChunk chunk = catalog_->packs()->chunk(3);
  const tier::ExtentRef extent = rig_.cache().Find(rig_.dataset().key(chunk.extent));
  EXPECT_EQ((*found)->runs(0)[0].data(), extent->block.bytes().data() + chunk.image_offset);
}

TEST_F(ChunkRowsTest, ChunksOnSsdAreReadForTheRequest) {
  Start({.ram_bytes = 512 << 10, .reserve_bytes = 480 << 10, .ssd_bytes = 8 << 20});
  ASSERT_GT(rig_.cache().stats(tier::TierKind::kSsd).extents, 0U);
  const std::uint64_t read = rig_.dataset().progress().gfs_bytes;
  ExpectAllChunks();
  // Each part of a large request has memory of its own.
  std::vector<Row> rows;
  const std::uint64_t chunks = catalog_->packs()->chunk_count();
  for (std::uint64_t bytes = 0, next = 0; bytes <= limits::kDecodeReadBytesMax; ++next) {
    rows.push_back(RowOf(next % chunks));
    bytes += MemoryOf(next % chunks);
  }
  const Outcome found = Find(rows);
  ASSERT_TRUE(found.has_value()) << found.error().ToString();
  for (std::size_t i = 0; i < rows.size(); ++i) ExpectChunk(**found, i, i % chunks);
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, read);
}

// A part is found by a task of its own, and stays found when the next one has to be tried again.
TEST_F(ChunkRowsTest, ALargeRequestIsFoundInParts) {
  Start();
  std::vector<Row> rows;
  std::vector<std::uint64_t> numbers;
  std::uint64_t bytes = 0;
  for (std::uint64_t next = 0; bytes <= 2 * limits::kDecodeReadBytesMax; ++next) {
    numbers.push_back(next % catalog_->packs()->chunk_count());
    rows.push_back(RowOf(numbers.back()));
    bytes += MemoryOf(numbers.back());
  }
  const auto found = std::make_shared<FoundRows>(rows.size());
  const auto finder = Take(ChunkRows::Create(rig_.dataset(), rows, kNoLimit, found));
  finder->Begin(nullptr);
  const auto queue = Take(rig_.backend().CreateQueue({.depth = 4}));
  std::vector<tier::ExtentRef> refs;
  for (const ExtentId extent : finder->extents()) {
    refs.push_back(rig_.cache().Find(rig_.dataset().key(extent)));
  }
  std::vector<tier::BadExtent> bad;
  const ReadMeans means{.refs = refs, .queue = *queue, .bad = bad};
  EXPECT_FALSE(Take(finder->Find(means)));
  ExpectChunk(*found, 0, numbers.front());
  EXPECT_TRUE(found->runs(rows.size() - 1).empty());
  // A damaged copy that the second part is tried with.
  std::byte& damaged = refs.front()->block.bytes()[catalog_->packs()->chunk(0).image_offset];
  damaged ^= std::byte{1};
  EXPECT_FALSE(finder->Find(means).has_value());
  EXPECT_FALSE(bad.empty());
  damaged ^= std::byte{1};
  bad.clear();
  EXPECT_FALSE(Take(finder->Find(means)));
  EXPECT_TRUE(Take(finder->Find(means)));
  for (std::size_t i = 0; i < rows.size(); ++i) ExpectChunk(*found, i, numbers[i]);
}

TEST_F(ChunkRowsTest, AChunkDamagedInRamIsFetchedAgainBeforeItIsSent) {
  Start();
  const catalog::PackChunk chunk = catalog_->packs()->chunk(0);
  const std::uint64_t read = rig_.dataset().progress().gfs_bytes;
  std::uint64_t extent_bytes = 0;
  {
    const tier::ExtentRef copy = rig_.cache().FindOn(rig_.dataset().key(chunk.extent),
                                                     tier::TierKind::kRam);
    ASSERT_TRUE(copy);
    extent_bytes = copy->image_bytes;
    copy->block.bytes()[chunk.image_offset + chunk.entry.head_bytes] ^= std::byte{4};
  }
  ExpectAllChunks();
  EXPECT_EQ(rig_.cache().stats(tier::TierKind::kRam).bad_extents, 1U);
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, read + extent_bytes);
}

TEST_F(ChunkRowsTest, AChunkDamagedOnTheGfsIsAnErrorOfItsRowAlone) {
  const auto source = compress::MemorySource(pack_);
  const auto opened = compress::PackFile::Open(*source);
  ASSERT_TRUE(opened.has_value());
  const compress::ChunkEntry entry = opened->index().chunks[1];
  pack_[entry.offset + entry.head_bytes] ^= std::byte{1};
  Start();
  const Outcome found = Find({RowOf(0), RowOf(1), RowOf(2)});
  ASSERT_TRUE(found.has_value()) << found.error().ToString();
  ExpectChunk(**found, 0, 0);
  ExpectChunk(**found, 2, 2);
  ASSERT_TRUE((*found)->error(1));
  EXPECT_EQ((*found)->error(1)->code(), ErrorCode::kDataLoss);
  EXPECT_THAT((*found)->error(1)->message(), HasSubstr("chunk of field image"));
}

TEST_F(ChunkRowsTest, AChunkThatDoesNotExistIsRefusedAndTheOthersCome) {
  Start();
  Row no_sample = RowOf(0), no_field = RowOf(0), no_chunk = RowOf(0), value = RowOf(0);
  no_sample.sample = SampleId(catalog_->sample_count());
  no_field.field = FieldId(99);
  no_chunk.chunk = 1'000'000;
  value.chunk = 0;
  const Outcome found = Find({RowOf(5), no_sample, no_field, no_chunk, value});
  ASSERT_TRUE(found.has_value()) << found.error().ToString();
  ExpectChunk(**found, 0, 5);
  for (std::size_t row = 1; row < 5; ++row) {
    ASSERT_TRUE((*found)->error(row)) << row;
    EXPECT_EQ((*found)->error(row)->code(), ErrorCode::kInvalidArgument);
  }
  // Nor is a chunk given in a request for values.
  const Outcome mixed = Find({value, RowOf(5)});
  ASSERT_TRUE(mixed.has_value()) << mixed.error().ToString();
  EXPECT_FALSE((*mixed)->error(0));
  ASSERT_TRUE((*mixed)->error(1));
  EXPECT_EQ((*mixed)->error(1)->code(), ErrorCode::kInvalidArgument);
}

TEST_F(ChunkRowsTest, MoreBytesThanTheLimitAreRefusedUnlessItIsOneChunk) {
  Start();
  const std::uint64_t both = InPack(0).size() + InPack(1).size();
  EXPECT_TRUE(Find({RowOf(0), RowOf(1)}, both).has_value());
  EXPECT_EQ(Find({RowOf(0), RowOf(1)}, both - 1).error().code(), ErrorCode::kResourceExhausted);
  EXPECT_TRUE(Find({RowOf(0)}, 1).has_value());
}

TEST_F(ChunkRowsTest, BytesThatAreNotTheChunkAreNoticed) {
  Start();
  std::vector<std::byte> bytes(InPack(2).begin(), InPack(2).end());
  Row row = RowOf(2);
  row.memory = bytes;
  FOREBAY_EXPECT_OK(CheckChunk(*catalog_, row));
  for (const std::size_t at : {std::size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
    bytes[at] ^= std::byte{16};
    const Status checked = CheckChunk(*catalog_, row);
    ASSERT_FALSE(checked.has_value()) << "byte " << at;
    EXPECT_EQ(checked.error().code(), ErrorCode::kDataLoss);
    bytes[at] ^= std::byte{16};
  }
  Row shorter = row;
  shorter.memory = row.memory.first(bytes.size() - 1);
  EXPECT_FALSE(CheckChunk(*catalog_, shorter).has_value());
  // A sound record of the same pack that is another chunk.
  std::vector<std::byte> other(InPack(0).begin(), InPack(0).end());
  row.memory = other;
  EXPECT_FALSE(CheckChunk(*catalog_, row).has_value());
}

}  // namespace forebay::fetch::chunk_rows_test
