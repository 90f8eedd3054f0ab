// ReadExtent compares every read with the first read. Neither it nor StoreExtent takes bytes that
// were read before a rebuild. Otherwise StoreExtent is tested by stager_test, scan_staging_test and
// staged_stream_test.
#include "server/stage/extent_loader.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/stage_rig.h"
#include "server/tier/extent_cache.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::stage {
namespace {

using io::testing::CodeOf;
using io::testing::Pattern;
using io::testing::Take;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReadExtentTest : public ::testing::Test {
 protected:
  ReadExtentTest() {
    EXPECT_TRUE(memory_.AddDirectory("/gfs").has_value());
    dataset_ = std::make_unique<Dataset>(RecordDataset(), memory_,
                                         Take(memory_.OpenDirectory("/gfs")));
  }

  // Reads the extent; the node's caches hold `cached`, the GFS itself `device`.
  Result<tier::ExtentChecksums> Read(const std::vector<std::byte>& cached,
                                     const std::vector<std::byte>& device) {
    past_caches_.clear();
    return ReadExtent(*dataset_, {.key = key_, .pieces = {}, .objects = "object 'a'"}, image_,
                      [&](std::span<std::byte> image, bool past_caches) -> Status {
                        past_caches_.push_back(past_caches);
                        std::ranges::copy(past_caches ? device : cached, image.begin());
                        return {};
                      });
  }

  const std::vector<std::byte> right_ = Pattern(100, 1), wrong_ = Pattern(100, 2);
  const tier::ExtentKey key_{.dataset = 1, .extent = ExtentId(5), .identity = 7};
  io::MemoryBackend memory_;
  std::unique_ptr<Dataset> dataset_;
  std::vector<std::byte> image_ = std::vector<std::byte>(100);
  std::vector<bool> past_caches_;
};

TEST_F(ReadExtentTest, AReadLikeTheFirstIsTakenAtOnce) {
  ASSERT_TRUE(Read(right_, wrong_).has_value());
  ASSERT_TRUE(Read(right_, wrong_).has_value());
  EXPECT_THAT(past_caches_, ElementsAre(false));
  EXPECT_EQ(dataset_->first_reads().mismatches(), 0U);
}

TEST_F(ReadExtentTest, AMismatchIsReadOnceMorePastTheCaches) {
  ASSERT_TRUE(Read(right_, right_).has_value());
  ASSERT_TRUE(Read(wrong_, right_).has_value());
  EXPECT_THAT(past_caches_, ElementsAre(false, true));
  EXPECT_EQ(image_, right_);
}

TEST_F(ReadExtentTest, ASecondMismatchIsDataLossThatNamesObjectAndExtent) {
  ASSERT_TRUE(Read(right_, right_).has_value());
  const auto changed = Read(wrong_, wrong_);
  ASSERT_FALSE(changed.has_value());
  EXPECT_EQ(changed.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(changed.error().message(),
              HasSubstr("object 'a', extent 5: changed since first read"));
  EXPECT_EQ(dataset_->first_reads().mismatches(), 2U);
}

TEST_F(ReadExtentTest, AnErrorOfTheReadIsReturnedAndNothingIsRecorded) {
  const auto failed =
      ReadExtent(*dataset_, {.key = key_, .pieces = {}, .objects = "object 'a'"}, image_,
                 [](std::span<std::byte>, bool) -> Status {
                   return Error(ErrorCode::kUnavailable, "no answer");
                 });
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(Read(right_, right_).has_value()) << "this is the first read";
}

TEST_F(ReadExtentTest, AReadThatBeganBeforeARebuildIsRefused) {
  Dataset successor(RecordDataset(), memory_, Take(memory_.OpenDirectory("/gfs")));
  const auto refused =
      ReadExtent(*dataset_, {.key = key_, .pieces = {}, .objects = "object 'a'"}, image_,
                 [&](std::span<std::byte> image, bool) -> Status {
                   std::ranges::copy(wrong_, image.begin());
                   successor.version().Succeed(dataset_->version());
                   return {};
                 });
  ASSERT_EQ(CodeOf(refused), ErrorCode::kFailedPrecondition);
  EXPECT_FALSE(successor.first_reads().Find(key_).has_value());
}

// The tiers and the steps of a load, without a stager.
class StoreExtentTest : public ::testing::Test {
 protected:
  StoreExtentTest() {
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", Pattern(60'000)).has_value());
    dataset_ = std::make_unique<Dataset>(RecordDataset(), memory_,
                                         Take(memory_.OpenDirectory("/gfs")));
    const auto catalog = Take(catalog::BuildFromMetadata(memory_, dataset_->root(),
                                                         dataset_->options().source, nullptr));
    EXPECT_EQ(catalog->extent_count(), 1U);
    EXPECT_TRUE(dataset_->BeginCataloguing(0));
    dataset_->SetCatalog(catalog, tier::KeysOf(*catalog), {false}, {plan::HomeTier::kRam});
  }
  const tier::ExtentKey& key() const { return dataset_->key(ExtentId(0)); }
  // The extent, as it is read from the GFS now.
  VerifiedExtent Read() {
    const std::uint32_t successors = dataset_->version().successors();
    auto image = Take(cache_->AllocateRam(60'000, 0));
    tier::ExtentChecksums checksums =
        Take(ReadExtent(*dataset_, {.key = key(), .pieces = {}, .objects = "object 'data.bin'"},
                        image.bytes(), [](std::span<std::byte> bytes, bool) -> Status {
                          std::ranges::copy(Pattern(60'000), bytes.begin());
                          return {};
                        }));
    return {.key = key(),
            .extent = ExtentId(0),
            .image = std::move(image),
            .checksums = std::move(checksums),
            .successors = successors};
  }
  Result<bool> Store(VerifiedExtent extent) {
    return loader_.StoreExtent(*dataset_, std::move(extent), std::nullopt, *queue_);
  }

  static std::uint64_t Never(const tier::ExtentKey&, std::uint64_t) { return 1'000'000; }

  io::MemoryBackend memory_;
  io::SteadyClock clock_;
  const std::unique_ptr<io::IoQueue> queue_ = Take(memory_.CreateQueue({.depth = 4}));
  const std::unique_ptr<tier::RamArena> arena_ =
      Take(tier::RamArena::Create({.capacity_bytes = 1 << 20}));
  const std::unique_ptr<tier::ExtentCache> cache_ =
      tier::ExtentCache::Create(*arena_, nullptr, {}, Never);
  StagingTiers tiers_{*cache_, arena_->memory_signal(), {}, Never, clock_};
  PlacementTable placements_{{.ram_bytes = 1 << 20, .ssd_bytes = 0}, clock_};
  ExtentLoader loader_{tiers_, placements_};
  std::unique_ptr<Dataset> dataset_;
};

TEST_F(StoreExtentTest, WhatWasReadBeforeARebuildIsNotPublishedAfterIt) {
  VerifiedExtent extent = Read();
  // A rebuild takes over between the two steps of a load.
  Dataset successor(RecordDataset(), memory_, Take(memory_.OpenDirectory("/gfs")));
  successor.version().Succeed(dataset_->version());
  dataset_->version().MarkReplaced();
  ASSERT_EQ(CodeOf(Store(std::move(extent))), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(cache_->Find(key()), nullptr);
  EXPECT_FALSE(successor.first_reads().Find(key()).has_value());
  // A reader of the replaced data set reads it once more.
  EXPECT_TRUE(Store(Read()).has_value());
  const tier::ExtentRef found = cache_->Find(key());
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(successor.first_reads().Find(key()), found->sums().image);
}

}  // namespace
}  // namespace forebay::stage
