// What the finder of chunks remembers of directories on SSD, and what it does with bad ones.
#include "server/fetch/packed/chunk_finder.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "server/io/testing/memory_backend.h"
#include "server/tier/ssd/segment_store.h"

namespace forebay::fetch {
namespace {

constexpr std::uint64_t kDirectoryBytes = 64 << 10;
constexpr std::uint32_t kRemembered = ChunkFinder::kRememberedBytesMax / kDirectoryBytes;
constexpr std::uint32_t kExtents = kRemembered + 4;

// One chunk per extent, whose directory is its number over and over.
class NumberedExtents final : public UnitSource {
 public:
  const compress::PackSchema& schema() const override { return schema_; }
  UnitPlace UnitOf(std::uint32_t, SampleId) const override { return {}; }
  ExtentId ExtentOf(const UnitPlace& unit, std::uint32_t) const override { return unit.extent; }
  std::uint64_t DirectoryBytes(ExtentId) const override { return kDirectoryBytes; }
  Status OpenDirectory(const tier::ResidentExtent& extent,
                       std::span<const std::byte> bytes) override {
    opened_ = std::to_integer<std::uint32_t>(bytes[0]);
    if (opened_ == extent.key.extent.value()) return {};
    return Error(ErrorCode::kDataLoss, "the directory of another extent");
  }
  Result<catalog::PackChunk> ChunkOf(const UnitPlace& unit, std::uint32_t) const override {
    catalog::PackChunk chunk;
    chunk.extent = unit.extent;
    chunk.image_offset = opened_;
    return chunk;
  }

 private:
  compress::PackSchema schema_;
  std::uint32_t opened_ = 0;
};

class ChunkFinderTest : public ::testing::Test {
 protected:
  ChunkFinderTest() {
    EXPECT_TRUE(backend_.AddDirectory("/ssd").has_value());
    directory_ = backend_.OpenDirectory("/ssd").value();
    store_ = tier::SegmentStore::Open(backend_, *directory_,
                                      {.capacity_bytes = 64 << 20, .direct = false}).value();
    queue_ = backend_.CreateQueue({.depth = 4}).value();
    for (std::uint32_t i = 0; i < kExtents; ++i) AddExtent(i, std::byte(i));
  }

  void AddExtent(std::uint32_t number, std::byte value) {
    const tier::ExtentKey key{.dataset = 1, .extent = ExtentId(number), .identity = 7};
    auto image = io::AlignedBuffer::Create(kDirectoryBytes).value();
    std::ranges::fill(image.span(), value);
    const catalog::Range piece{.extent = key.extent, .offset = 0, .length = kDirectoryBytes};
    const auto sums = tier::ComputeChecksums(key, image.span(), {&piece, 1});
    ASSERT_TRUE(store_->Put(*queue_, key, image.span(), sums).has_value());
    auto extent = std::make_shared<tier::ResidentExtent>();
    extent->key = key;
    extent->tier = tier::TierKind::kSsd;
    extent->image_bytes = kDirectoryBytes;
    extent->segment = store_->Get(key).value();
    refs_.resize(std::max<std::size_t>(refs_.size(), number + 1));
    refs_[number] = std::move(extent);
  }

  void Damage(std::uint32_t number) {
    ASSERT_TRUE(backend_.FlipBit("/ssd/" + tier::KeyText(refs_[number]->key) + ".seg", 99)
                    .has_value());
  }

  // Finds one chunk of each extent [begin, end), asked for in descending order.
  Status Find(std::uint32_t begin, std::uint32_t end) {
    std::vector<WantedChunk> wanted;
    chunks_.assign(kExtents, {});
    for (std::uint32_t i = end; i-- > begin;) {
      wanted.push_back({.unit = {.extent = ExtentId(i)}, .extent_index = i, .at = &chunks_[i]});
    }
    bad_.clear();
    const Status found = finder_.Find(source_, refs_, *queue_, wanted, bad_);
    for (std::uint32_t i = begin; found.has_value() && i < end; ++i) {
      EXPECT_EQ(chunks_[i].image_offset, i);
    }
    return found;
  }

  io::MemoryBackend backend_;
  std::unique_ptr<io::Directory> directory_;
  std::unique_ptr<tier::SegmentStore> store_;
  std::unique_ptr<io::IoQueue> queue_;
  std::vector<tier::ExtentRef> refs_;
  std::vector<catalog::PackChunk> chunks_;
  std::vector<tier::BadExtent> bad_;
  NumberedExtents source_;
  ChunkFinder finder_;
};

TEST_F(ChunkFinderTest, FindsChunksOfManyExtentsAndRemembersABoundedNumber) {
  ASSERT_TRUE(Find(0, kExtents).has_value());
  EXPECT_EQ(finder_.remembered_bytes(), ChunkFinder::kRememberedBytesMax);
  // The last ones are remembered, so nobody sees what the device has become.
  Damage(kExtents - 1);
  EXPECT_TRUE(Find(kExtents - 1, kExtents).has_value());
  Damage(0);
  const Status forgotten = Find(0, 1);
  ASSERT_FALSE(forgotten.has_value());
  EXPECT_EQ(forgotten.error().code(), ErrorCode::kDataLoss);
  ASSERT_EQ(bad_.size(), 1U);
  EXPECT_EQ(bad_[0].extent, refs_[0]);
}

TEST_F(ChunkFinderTest, ForgetsTheLeastRecentlyUsed) {
  ASSERT_TRUE(Find(0, kRemembered).has_value());
  ASSERT_TRUE(Find(0, 1).has_value());
  ASSERT_TRUE(Find(kRemembered, kRemembered + 1).has_value());
  Damage(0);
  Damage(1);
  EXPECT_TRUE(Find(0, 1).has_value());
  EXPECT_FALSE(Find(1, 2).has_value());
}

TEST_F(ChunkFinderTest, ACopyThatWasMadeAnewIsReadAnew) {
  ASSERT_TRUE(Find(3, 4).has_value());
  ASSERT_TRUE(store_->Remove(refs_[3]->key).has_value());
  AddExtent(3, std::byte{200});  // what another version of the encoder may make of it
  const Status found = Find(3, 4);
  ASSERT_FALSE(found.has_value()) << "the old directory was taken for the new one";
  EXPECT_EQ(found.error().message(), "the directory of another extent");
  ASSERT_EQ(bad_.size(), 1U);
}

TEST_F(ChunkFinderTest, AnExtentWithoutADirectoryIsDataLoss) {
  auto extent = std::make_shared<tier::ResidentExtent>();
  extent->key = refs_[2]->key;
  extent->tier = tier::TierKind::kSsd;
  extent->image_bytes = 100;
  extent->segment = refs_[2]->segment;
  refs_[2] = std::move(extent);
  const Status found = Find(2, 3);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), ErrorCode::kDataLoss);
  EXPECT_EQ(bad_.size(), 1U);
}

}  // namespace
}  // namespace forebay::fetch
