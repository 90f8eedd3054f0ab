#include "server/tier/extent_cache.h"

#include <cerrno>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/tier/eviction_ledger.h"
#include "server/tier/ssd/segment_format.h"
#include "server/tier/testing/tier_test_fixture.h"

namespace forebay::tier::extent_cache_test {

using testing::CodeOf;
using testing::KeyOfNumber;
using testing::MakeExtent;
using testing::Take;
using testing::TestExtent;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::int64_t kSecondNs = 1'000'000'000;

class ExtentCacheTest : public ::testing::Test {
 protected:
  ExtentCacheTest() { Start(100, 100); }

  // RAM in pages; SSD in extents of one page and one piece.
  void Start(std::uint64_t ram_pages, std::uint64_t ssd_extents, bool has_ssd = true,
             ExtentCache::Options options = {1000, 1000}) {
    cache_.reset();
    store_.reset();
    arena_.reset();
    arena_ = Take(RamArena::Create({ram_pages * kPage, 1 << 20, RegionId(0)}));
    if (has_ssd) {
      store_ = Take(SegmentStore::Open(backend_, *directory_,
                                       {ssd_extents * SegmentStore::FileBytes(kPage, 1), true}));
    }
    const auto next_use = [this](const ExtentKey& key, std::uint64_t) {
      const auto found = next_use_.find(key.extent.value());
      return found == next_use_.end() ? kNever : found->second;
    };
    cache_ = ExtentCache::Create(*arena_, store_.get(), options, next_use);
  }
  // Extent `number`, needed next at `next_use`, brought to RAM.
  Result<ExtentRef> Bring(std::uint32_t number, std::uint64_t next_use,
                          std::uint64_t pages = 1) {
    FOREBAY_ASSIGN(ArenaBlock block, cache_->AllocateRam(pages * kPage, next_use));
    next_use_[number] = next_use;
    const TestExtent extent = MakeExtent(number, pages * kPage);
    std::ranges::copy(extent.memory.span(), block.bytes().begin());
    return cache_->PublishRam(extent.key, std::move(block), extent.checksums);
  }
  // A one-page, one-piece extent on SSD.
  Status Store(std::uint32_t number, std::uint64_t next_use, bool is_guest = false) {
    next_use_[number] = next_use;
    TestExtent extent = MakeExtent(number, kPage);
    extent.pieces = {{extent.key.extent, 0, kPage}};
    extent.checksums = ComputeChecksums(extent.key, extent.image(), extent.pieces);
    return cache_->PublishSsd(*queue_, extent.key, extent.image(), extent.checksums, next_use,
                              is_guest);
  }
  void ReportBadOnSsd(std::uint32_t number, const Error& found, std::int64_t now_ns) {
    cache_->ReportBad(cache_->FindOn(KeyOfNumber(number), TierKind::kSsd), found, now_ns);
  }
  bool IsIn(std::uint32_t number, TierKind tier) {
    return cache_->FindOn(KeyOfNumber(number), tier) != nullptr;
  }

  io::MemoryBackend backend_;
  std::unique_ptr<io::Directory> directory_ = Take(backend_.OpenDirectory("/"));
  std::unique_ptr<io::IoQueue> queue_ = Take(backend_.CreateQueue({}));
  std::map<std::uint32_t, std::uint64_t> next_use_;
  std::unique_ptr<RamArena> arena_;
  std::unique_ptr<SegmentStore> store_;
  std::unique_ptr<ExtentCache> cache_;
};

TEST_F(ExtentCacheTest, PublishedExtentIsFoundWithItsBytes) {
  const ExtentRef published = Take(Bring(1, 10));
  const ExtentRef found = cache_->Find(KeyOfNumber(1));
  EXPECT_EQ(found, published);
  EXPECT_EQ(found->tier, TierKind::kRam);
  const TestExtent extent = MakeExtent(1, kPage);
  for (std::size_t i = 0; i < extent.pieces.size(); ++i) {
    FOREBAY_EXPECT_OK(VerifyPiece(
        found->key, extent.pieces[i], found->sums().pieces[i],
        found->block.bytes().subspan(extent.pieces[i].offset, extent.pieces[i].length)));
  }
  EXPECT_EQ(cache_->Find(KeyOfNumber(2)), nullptr);
  EXPECT_EQ(cache_->stats(TierKind::kRam).extents, 1U);
}

TEST_F(ExtentCacheTest, FastestTierAnswersAndTheSsdCopyStays) {
  FOREBAY_EXPECT_OK(Store(1, 10));
  EXPECT_EQ(cache_->Find(KeyOfNumber(1))->tier, TierKind::kSsd);
  Take(Bring(1, 10));
  EXPECT_EQ(cache_->Find(KeyOfNumber(1))->tier, TierKind::kRam);
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(1), TierKind::kRam));
  const ExtentRef ssd = cache_->Find(KeyOfNumber(1));
  ASSERT_NE(ssd, nullptr);
  FOREBAY_EXPECT_OK(testing::VerifySegment(*queue_, *ssd->segment,
                                           {{{ssd->key.extent, 0, kPage}}}));
}

TEST_F(ExtentCacheTest, BatchFindMixesTiersAndMisses) {
  Take(Bring(1, 10));
  FOREBAY_EXPECT_OK(Store(2, 10));
  const std::vector<ExtentKey> keys = {KeyOfNumber(1), KeyOfNumber(3), KeyOfNumber(2),
                                       KeyOfNumber(1)};
  std::vector<ExtentRef> results(keys.size());
  cache_->Find(keys, results);
  EXPECT_EQ(results[0]->tier, TierKind::kRam);
  EXPECT_EQ(results[1], nullptr);
  EXPECT_EQ(results[2]->tier, TierKind::kSsd);
  EXPECT_EQ(results[3], results[0]);
  EXPECT_EQ(cache_->FindOn(KeyOfNumber(2), TierKind::kSsd), results[2]);
}

TEST_F(ExtentCacheTest, ExtentsAreMovedTogetherBeforeOneIsEvicted) {
  Start(10, 0);
  for (std::uint32_t i = 0; i < 5; ++i) Take(Bring(i, 100, 2));
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(1), std::nullopt));
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(3), std::nullopt));
  ASSERT_EQ(arena_->largest_free_bytes(), 2 * kPage);
  Take(Bring(9, 100, 4));
  for (const std::uint32_t i : {0U, 2U, 4U}) {
    const ExtentRef found = cache_->FindOn(KeyOfNumber(i), TierKind::kRam);
    ASSERT_TRUE(found) << i;
    TestExtent extent = MakeExtent(i, 2 * kPage);
    EXPECT_TRUE(std::ranges::equal(found->block.bytes(), extent.image())) << i;
  }
  EXPECT_GE(cache_->stats(TierKind::kRam).moved, 1U);
  EXPECT_EQ(cache_->stats(TierKind::kRam).evictions, 2U) << "the two above";
}

TEST_F(ExtentCacheTest, ARunIsMadeByMovesAndWithoutAnEviction) {
  Start(10, 0);
  for (std::uint32_t i = 0; i < 5; ++i) Take(Bring(i, 100, 2));
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(1), std::nullopt));
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(3), std::nullopt));
  EXPECT_TRUE(cache_->MakeRun(4 * kPage - 1));
  EXPECT_EQ(arena_->largest_free_bytes(), 4 * kPage);
  EXPECT_FALSE(cache_->MakeRun(4 * kPage + 1));
  EXPECT_EQ(cache_->stats(TierKind::kRam).extents, 3U);
}

TEST_F(ExtentCacheTest, WhatAReaderHoldsIsNotMoved) {
  Start(6, 0);
  for (std::uint32_t i = 0; i < 3; ++i) Take(Bring(i, 100, 2));
  const ExtentRef held = cache_->Find(KeyOfNumber(1));
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(0), std::nullopt));
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(2), std::nullopt));
  const std::byte* const address = held->block.bytes().data();
  EXPECT_EQ(CodeOf(cache_->AllocateRam(4 * kPage, 1)), ErrorCode::kResourceExhausted);
  EXPECT_EQ(held->block.bytes().data(), address);
  EXPECT_EQ(cache_->stats(TierKind::kRam).moved, 0U);
}

TEST_F(ExtentCacheTest, WhatLeavesRamAndLiesNowhereElseGoesToSsdWhileThatHasRoom) {
  Start(4, 2);
  for (std::uint32_t i = 0; i < 4; ++i) Take(Bring(i, 100 + i));
  for (std::uint32_t i = 10; i < 13; ++i) {
    ArenaBlock block = Take(cache_->AllocateRam(kPage, 50, queue_.get()));
    next_use_[i] = 50;
    TestExtent extent = MakeExtent(i, kPage);
    std::ranges::copy(extent.image(), block.bytes().begin());
    Take(cache_->PublishRam(extent.key, std::move(block), extent.checksums));
  }
  EXPECT_TRUE(IsIn(3, TierKind::kSsd));
  EXPECT_TRUE(IsIn(2, TierKind::kSsd));
  EXPECT_FALSE(IsIn(1, TierKind::kSsd)) << "there was no room for a third";
  EXPECT_FALSE(IsIn(1, TierKind::kRam));
  EXPECT_TRUE(IsIn(0, TierKind::kRam));
  EXPECT_EQ(cache_->stats(TierKind::kRam).spilled, 2U);
  const ExtentRef spilled = cache_->FindOn(KeyOfNumber(3), TierKind::kSsd);
  const TestExtent extent = MakeExtent(3, kPage);
  FOREBAY_EXPECT_OK(testing::VerifySegment(*queue_, *spilled->segment, extent.pieces));
}

// Calls a function before the first operation.
class InterruptedQueue final : public io::IoQueue {
 public:
  InterruptedQueue(io::IoQueue& queue, std::function<void()> first)
      : queue_(queue), first_(std::move(first)) {}

  Status Submit(std::span<const io::Operation> operations) override {
    if (const auto first = std::exchange(first_, {})) first();
    return queue_.Submit(operations);
  }
  std::size_t Wait(std::size_t count_min, std::vector<io::Completion>& completions,
                   std::optional<std::int64_t> timeout_ms) override {
    return queue_.Wait(count_min, completions, timeout_ms);
  }
  std::size_t in_flight() const override { return queue_.in_flight(); }
  std::size_t depth() const override { return queue_.depth(); }

 private:
  io::IoQueue& queue_;
  std::function<void()> first_;
};

// A rebuild replaces an extent that is to make room, while it is being written to SSD.
TEST_F(ExtentCacheTest, AnotherCopyThatComesWhileTheFirstOneIsWrittenToSsdStays) {
  Start(4, 2);
  for (std::uint32_t i = 0; i < 4; ++i) Take(Bring(i, 100 + i));
  InterruptedQueue queue(*queue_, [this] {
    FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(3), std::nullopt));
    FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(0), TierKind::kRam));
    Take(Bring(3, 103));
  });
  const ArenaBlock block = Take(cache_->AllocateRam(kPage, 50, &queue));
  EXPECT_TRUE(IsIn(3, TierKind::kRam));
  EXPECT_FALSE(IsIn(3, TierKind::kSsd)) << "the bytes of the first copy";
  EXPECT_TRUE(IsIn(2, TierKind::kRam)) << "the memory of the first copy was room enough";
}

TEST_F(ExtentCacheTest, AGuestGoesBeforeWhatIsAtHome) {
  Start(3, 0);
  for (std::uint32_t i = 0; i < 3; ++i) {
    ArenaBlock block = Take(cache_->AllocateRam(kPage, 100));
    next_use_[i] = 100;
    TestExtent extent = MakeExtent(i, kPage);
    std::ranges::copy(extent.image(), block.bytes().begin());
    Take(cache_->PublishRam(extent.key, std::move(block), extent.checksums,
                            /*is_guest=*/i == 1));
  }
  Take(Bring(9, 100));
  EXPECT_FALSE(IsIn(1, TierKind::kRam));
  EXPECT_TRUE(IsIn(0, TierKind::kRam));
  EXPECT_TRUE(IsIn(2, TierKind::kRam));
}

TEST_F(ExtentCacheTest, WhatGotAHomeInRamIsNoGuestAnyMore) {
  Start(3, 0);
  for (std::uint32_t i = 0; i < 3; ++i) {
    ArenaBlock block = Take(cache_->AllocateRam(kPage, 100));
    next_use_[i] = 100;
    TestExtent extent = MakeExtent(i, kPage);
    std::ranges::copy(extent.image(), block.bytes().begin());
    Take(cache_->PublishRam(extent.key, std::move(block), extent.checksums,
                            /*is_guest=*/i > 0));
  }
  cache_->MakeAtHome(KeyOfNumber(1), TierKind::kRam);
  Take(Bring(9, 100));
  EXPECT_TRUE(IsIn(1, TierKind::kRam));
  EXPECT_FALSE(IsIn(2, TierKind::kRam));
}

TEST_F(ExtentCacheTest, WhereHomesAreSparedOnlyGuestsGo) {
  Start(3, 0);
  Take(Bring(0, 100));
  Take(Bring(1, 900));
  ArenaBlock block = Take(cache_->AllocateRam(kPage, 100));
  next_use_[2] = 100;
  TestExtent guest = MakeExtent(2, kPage);
  std::ranges::copy(guest.image(), block.bytes().begin());
  Take(cache_->PublishRam(guest.key, std::move(block), guest.checksums, /*is_guest=*/true));
  block = Take(cache_->AllocateRam(kPage, 100, nullptr, /*spares_homes=*/true));
  EXPECT_FALSE(IsIn(2, TierKind::kRam));
  EXPECT_EQ(CodeOf(cache_->AllocateRam(kPage, 100, nullptr, /*spares_homes=*/true)),
            ErrorCode::kResourceExhausted);
  EXPECT_TRUE(IsIn(0, TierKind::kRam));
  EXPECT_TRUE(IsIn(1, TierKind::kRam)) << "although it is needed later";
}

TEST_F(ExtentCacheTest, EvictsWhatIsNeededFarthest) {
  Start(4, 0);
  for (std::uint32_t i = 0; i < 4; ++i) Take(Bring(i, 100 + (i * 3) % 4));  // 100 103 102 101
  Take(Bring(10, 50));
  EXPECT_FALSE(IsIn(1, TierKind::kRam));
  Take(Bring(11, 50));
  EXPECT_FALSE(IsIn(2, TierKind::kRam));
  EXPECT_TRUE(IsIn(0, TierKind::kRam));
  EXPECT_TRUE(IsIn(3, TierKind::kRam));
  EXPECT_EQ(cache_->stats(TierKind::kRam).evictions, 2U);
}

TEST_F(ExtentCacheTest, RefusesRatherThanEvictWhatIsNeededSooner) {
  Start(2, 0);
  Take(Bring(1, 10));
  Take(Bring(2, 11));
  EXPECT_EQ(CodeOf(Bring(3, 12)), ErrorCode::kResourceExhausted);
  EXPECT_TRUE(IsIn(1, TierKind::kRam));
  EXPECT_TRUE(IsIn(2, TierKind::kRam));
  EXPECT_EQ(cache_->stats(TierKind::kRam).evictions, 0U);
}

// Whoever finds RAM full of guests makes room for the next ones too; of what is at home no more
// goes than has to.
TEST_F(ExtentCacheTest, GuestsLeaveRoomToSpareAndOthersDoNot) {
  for (const bool are_guests : {true, false}) {
    Start(100, 0, true, {.guests_low_permille = 700});
    for (std::uint32_t i = 0; i < 100; ++i) {
      ArenaBlock block = Take(cache_->AllocateRam(kPage, 1000 + i));
      next_use_[i] = 1000 + i;
      const TestExtent extent = MakeExtent(i, kPage);
      Take(cache_->PublishRam(extent.key, std::move(block), extent.checksums, are_guests));
    }
    EXPECT_EQ(cache_->stats(TierKind::kRam).evictions, 0U);
    Take(Bring(200, 1));
    EXPECT_EQ(cache_->stats(TierKind::kRam).evictions, are_guests ? 31U : 1U);
    EXPECT_FALSE(IsIn(99, TierKind::kRam)) << "it was needed farthest";
    EXPECT_TRUE(IsIn(68, TierKind::kRam));
  }
}

TEST_F(ExtentCacheTest, WhatFitsIsNotTradedForItsEqual) {
  Start(100, 0, true, {900, 700});
  for (std::uint32_t i = 0; i < 100; ++i) Take(Bring(i, kNever));
  EXPECT_EQ(cache_->stats(TierKind::kRam).evictions, 0U);  // all of it is in use
  Take(Bring(200, kNever));
  EXPECT_EQ(cache_->stats(TierKind::kRam).evictions, 1U);
}

TEST_F(ExtentCacheTest, PinnedExtentsAreNotEvicted) {
  Start(3, 0);
  const ExtentRef pin = Take(Bring(1, 900));
  Take(Bring(2, 800));
  Take(Bring(3, 700));
  EXPECT_EQ(cache_->stats(TierKind::kRam).pinned_bytes, kPage);
  Take(Bring(4, 1));
  EXPECT_TRUE(IsIn(1, TierKind::kRam));
  EXPECT_FALSE(IsIn(2, TierKind::kRam));
}

TEST_F(ExtentCacheTest, EverythingPinnedIsResourceExhausted) {
  Start(2, 0);
  const ExtentRef first = Take(Bring(1, 900));
  ExtentRef second = Take(Bring(2, 900));
  const auto block = cache_->AllocateRam(kPage, 1);
  ASSERT_EQ(CodeOf(block), ErrorCode::kResourceExhausted);
  second = nullptr;
  EXPECT_TRUE(cache_->AllocateRam(kPage, 1).has_value());
}

TEST_F(ExtentCacheTest, EvictionMakesARunAmongFragments) {
  Start(8, 0);
  for (std::uint32_t i = 0; i < 8; ++i) Take(Bring(i, 100 + i % 2));  // odd ones are farther
  Take(Bring(20, 1, 3));
  EXPECT_TRUE(IsIn(20, TierKind::kRam));
}

TEST_F(ExtentCacheTest, EvictedMemoryStaysWithItsReader) {
  Start(2, 0);
  const ExtentRef reader = Take(Bring(1, 5));
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(1), std::nullopt));
  EXPECT_EQ(cache_->Find(KeyOfNumber(1)), nullptr);
  EXPECT_EQ(reader->block.bytes()[7], MakeExtent(1, kPage).memory.span()[7]);
  EXPECT_EQ(arena_->used_bytes(), kPage);
  Take(Bring(1, 5));  // the same extent again, beside the old memory
  EXPECT_EQ(arena_->used_bytes(), 2 * kPage);
}

TEST_F(ExtentCacheTest, SsdEvictsFarthestAndSparesPins) {
  Start(10, 3);
  FOREBAY_EXPECT_OK(Store(1, 900));
  FOREBAY_EXPECT_OK(Store(2, 800));
  FOREBAY_EXPECT_OK(Store(3, 700));
  const ExtentRef pin = cache_->Find(KeyOfNumber(1));
  FOREBAY_EXPECT_OK(Store(4, 10));
  EXPECT_TRUE(IsIn(1, TierKind::kSsd));
  EXPECT_FALSE(IsIn(2, TierKind::kSsd));
  EXPECT_EQ(CodeOf(Store(5, 5000)), ErrorCode::kResourceExhausted);
  EXPECT_EQ(cache_->stats(TierKind::kSsd).extents, 3U);
  EXPECT_EQ(cache_->stats(TierKind::kSsd).evictions, 1U);
  EXPECT_EQ(store_->Keys().size(), 3U);
}

TEST_F(ExtentCacheTest, OnSsdCopiesGoFirstThenGuestsThenWhatIsAtHome) {
  Start(4, 4);
  FOREBAY_EXPECT_OK(Store(0, 100));
  FOREBAY_EXPECT_OK(Store(1, 100, /*is_guest=*/true));
  FOREBAY_EXPECT_OK(Store(2, 100));
  FOREBAY_EXPECT_OK(Store(3, 100));
  Take(Bring(3, 100));  // at home in RAM
  FOREBAY_EXPECT_OK(Store(7, 100));
  EXPECT_FALSE(IsIn(3, TierKind::kSsd));
  FOREBAY_EXPECT_OK(Store(8, 100));
  EXPECT_FALSE(IsIn(1, TierKind::kSsd));
  EXPECT_TRUE(IsIn(0, TierKind::kSsd));
  EXPECT_TRUE(IsIn(2, TierKind::kSsd));
}

TEST_F(ExtentCacheTest, WhatIsAtHomeOnSsdDoesNotGoForAGuestInRamOfItsOwn) {
  Start(4, 2);
  FOREBAY_EXPECT_OK(Store(0, 100, /*is_guest=*/true));
  FOREBAY_EXPECT_OK(Store(1, 100));
  ArenaBlock block = Take(cache_->AllocateRam(kPage, 100));
  TestExtent extent = MakeExtent(1, kPage);
  std::ranges::copy(extent.image(), block.bytes().begin());
  Take(cache_->PublishRam(extent.key, std::move(block), extent.checksums, /*is_guest=*/true));
  FOREBAY_EXPECT_OK(Store(7, 100));
  EXPECT_FALSE(IsIn(0, TierKind::kSsd));
  EXPECT_TRUE(IsIn(1, TierKind::kSsd));
}

TEST_F(ExtentCacheTest, WhatLayOnSsdFromTheStartIsAGuestUntilSomebodySaysElse) {
  FOREBAY_EXPECT_OK(Store(0, 100));
  FOREBAY_EXPECT_OK(Store(1, 100));
  Start(4, 2);
  cache_->MakeAtHome(KeyOfNumber(0), TierKind::kSsd);
  FOREBAY_EXPECT_OK(Store(7, 100));
  EXPECT_TRUE(IsIn(0, TierKind::kSsd));
  EXPECT_FALSE(IsIn(1, TierKind::kSsd));
}

TEST_F(ExtentCacheTest, RestartFindsWhatIsOnSsd) {
  FOREBAY_EXPECT_OK(Store(1, 1));
  FOREBAY_EXPECT_OK(Store(2, 1));
  Take(Bring(3, 1));
  Start(100, 100);
  EXPECT_EQ(cache_->Resident(TierKind::kRam).size(), 0U);
  EXPECT_EQ(cache_->Resident(TierKind::kSsd).size(), 2U);
  EXPECT_EQ(cache_->stats(TierKind::kSsd).extents, 2U);
  EXPECT_EQ(cache_->Find(KeyOfNumber(2))->image_bytes, kPage);
}

TEST_F(ExtentCacheTest, DamagedFooterIsAMissAndTheExtentIsGone) {
  FOREBAY_EXPECT_OK(Store(1, 1));
  FOREBAY_EXPECT_OK(
      backend_.FlipBit("/" + SegmentName(KeyOfNumber(1)), (2 * kPage + 5) * 8));
  EXPECT_EQ(cache_->Find(KeyOfNumber(1)), nullptr);
  EXPECT_EQ(cache_->Resident(TierKind::kSsd).size(), 0U);
  EXPECT_EQ(store_->used_bytes(), 0U);
  FOREBAY_EXPECT_OK(Store(1, 1));
  EXPECT_TRUE(IsIn(1, TierKind::kSsd));
}

TEST_F(ExtentCacheTest, DeviceErrorsWithinAMinuteRetireTheTierForWritesAlone) {
  const Error kEio = Error::FromErrno(EIO, "read");
  for (std::uint32_t i = 0; i < 5; ++i) FOREBAY_EXPECT_OK(Store(i, 1));
  const ExtentRef bad = cache_->FindOn(KeyOfNumber(0), TierKind::kSsd);
  cache_->ReportBad(bad, kEio, 0);
  cache_->ReportBad(bad, kEio, 1);  // gone already: counts once
  ReportBadOnSsd(1, kEio, 30 * kSecondNs);
  ReportBadOnSsd(2, kEio, 61 * kSecondNs);  // the first is too long ago
  EXPECT_FALSE(cache_->stats(TierKind::kSsd).retired);
  EXPECT_TRUE(IsIn(3, TierKind::kSsd));
  EXPECT_FALSE(IsIn(2, TierKind::kSsd));
  ReportBadOnSsd(3, kEio, 62 * kSecondNs);
  EXPECT_TRUE(cache_->stats(TierKind::kSsd).retired);
  EXPECT_EQ(cache_->stats(TierKind::kSsd).device_errors, 4U);
  EXPECT_NE(cache_->Find(KeyOfNumber(4)), nullptr) << "what is there is still read";
  EXPECT_EQ(CodeOf(Store(9, 1)), ErrorCode::kFailedPrecondition);
  Take(Bring(4, 1));  // RAM goes on
}

TEST_F(ExtentCacheTest, OnePlaceThatKeepsFailingIsNoBadDevice) {
  const Error kEio = Error::FromErrno(EIO, "read");
  for (int i = 0; i < 10; ++i) {
    FOREBAY_EXPECT_OK(Store(0, 1));
    ReportBadOnSsd(0, kEio, i);
  }
  EXPECT_FALSE(cache_->stats(TierKind::kSsd).retired);
  EXPECT_EQ(cache_->stats(TierKind::kSsd).device_errors, 10U);
}

TEST_F(ExtentCacheTest, DeviceThatKeepsFailingRetiresTheTierButAFullOneDoesNot) {
  Start(100, 2);
  FOREBAY_EXPECT_OK(Store(1, 1));
  FOREBAY_EXPECT_OK(Store(2, 1));
  for (std::uint32_t i = 3; i < 9; ++i) {
    EXPECT_EQ(CodeOf(Store(i, 5)), ErrorCode::kResourceExhausted);
  }
  EXPECT_FALSE(cache_->stats(TierKind::kSsd).retired);

  io::FaultInjector injector;
  io::FaultyBackend faulty(backend_, injector);
  const auto directory = Take(faulty.OpenDirectory("/"));
  queue_ = Take(faulty.CreateQueue({}));
  const auto store = Take(SegmentStore::Open(faulty, *directory, {limits::kGiB, true}));
  io::ManualClock clock(kSecondNs);
  cache_ = ExtentCache::Create(*arena_, store.get(), {.clock = &clock},
                               [](const ExtentKey&, std::uint64_t) { return kNever; });
  const auto fail_next_write = [&injector] {
    injector.Arm({.kind = io::FaultKind::kEio, .call = io::IoCall::kWrite});
  };
  for (std::uint32_t i = 10; i < 12; ++i) {
    fail_next_write();
    EXPECT_EQ(CodeOf(Store(i, 1)), ErrorCode::kDataLoss);
  }
  clock.AdvanceNs(61 * kSecondNs);  // what is older than a minute is forgotten
  for (std::uint32_t i = 10; i < 13; ++i) {
    EXPECT_FALSE(cache_->stats(TierKind::kSsd).retired);
    injector.Disarm();
    FOREBAY_EXPECT_OK(Store(10 + i, 1));  // a success in between excuses nothing
    fail_next_write();
    EXPECT_EQ(CodeOf(Store(i, 1)), ErrorCode::kDataLoss);
  }
  EXPECT_EQ(injector.faults_injected(), 5U);
  EXPECT_TRUE(cache_->stats(TierKind::kSsd).retired);
  EXPECT_NE(cache_->Find(KeyOfNumber(20)), nullptr) << "what is there is still read";
  cache_.reset();
  queue_.reset();
}

// A rebuild evicts what the tiers have of a data set, and must not find old bytes there later.
TEST_F(ExtentCacheTest, AnExtentThatIsEvictedWhileItIsWrittenDoesNotAppear) {
  io::FaultInjector injector;
  io::FaultyBackend faulty(backend_, injector);
  const auto directory = Take(faulty.OpenDirectory("/"));
  const auto queue = Take(faulty.CreateQueue({}));
  const auto store = Take(SegmentStore::Open(faulty, *directory, {limits::kGiB, true}));
  const auto cache = ExtentCache::Create(*arena_, store.get(), {},
                                         [](const ExtentKey&, std::uint64_t) { return kNever; });
  TestExtent extent = MakeExtent(1, kPage);
  const auto publish = [&] {
    return cache->PublishSsd(*queue, extent.key, extent.image(), extent.checksums, 1);
  };
  injector.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kWrite});
  std::thread writer([&] { FOREBAY_EXPECT_OK(publish()); });
  while (injector.faults_injected() == 0) std::this_thread::yield();
  EXPECT_EQ(CodeOf(cache->Evict(extent.key, TierKind::kRam)), ErrorCode::kNotFound);
  FOREBAY_EXPECT_OK(cache->Evict(extent.key, std::nullopt));
  injector.Disarm();
  injector.ReleaseStalls();
  writer.join();
  EXPECT_EQ(cache->Find(extent.key), nullptr);
  EXPECT_FALSE(store->Contains(extent.key));
  EXPECT_EQ(store->used_bytes(), 0U);
  FOREBAY_EXPECT_OK(publish());
  EXPECT_NE(cache->Find(extent.key), nullptr) << "the next one is published as ever";
}

// A store that calls a function between opening a segment and returning it.
class InterruptedStore final : public SegmentStore {
 public:
  explicit InterruptedStore(SegmentStore& inner) : inner_(inner) {}
  std::function<void()> interrupt;

  Result<std::shared_ptr<const Segment>> Get(const ExtentKey& key) override {
    auto segment = inner_.Get(key);
    if (const auto call = std::exchange(interrupt, nullptr)) call();
    return segment;
  }
  Status Put(io::IoQueue& queue, const ExtentKey& key, std::span<std::byte> image,
             const ExtentChecksums& checksums) override {
    return inner_.Put(queue, key, image, checksums);
  }
  Status Remove(const ExtentKey& key) override { return inner_.Remove(key); }
  bool Contains(const ExtentKey& key) const override { return inner_.Contains(key); }
  bool Serves(const Segment& segment) const override { return inner_.Serves(segment); }
  std::vector<ExtentKey> Keys() const override { return inner_.Keys(); }
  std::vector<Stored> Contents() const override { return inner_.Contents(); }
  std::uint64_t capacity_bytes() const override { return inner_.capacity_bytes(); }
  std::uint64_t used_bytes() const override { return inner_.used_bytes(); }
  Recovery recovery() const override { return inner_.recovery(); }

 private:
  SegmentStore& inner_;
};

// A rebuild evicts an extent and publishes it anew, under the same key and with other bytes, while
// a reader has just opened the old file.
TEST_F(ExtentCacheTest, ASegmentThatWasReplacedWhileItWasOpenedIsNotServed) {
  const auto queue = Take(backend_.CreateQueue({}));
  const auto inner = Take(SegmentStore::Open(backend_, *directory_, {limits::kGiB, true}));
  InterruptedStore store(*inner);
  const auto cache = ExtentCache::Create(*arena_, &store, {},
                                         [](const ExtentKey&, std::uint64_t) { return kNever; });
  TestExtent old = MakeExtent(1, kPage), anew = MakeExtent(1, kPage);
  anew.image()[0] ^= std::byte{1};
  anew.checksums.image ^= 1;  // stands for the checksum of the other bytes
  const auto publish = [&](TestExtent& extent) {
    FOREBAY_EXPECT_OK(
        cache->PublishSsd(*queue, extent.key, extent.image(), extent.checksums, 1));
  };
  publish(old);
  store.interrupt = [&] {
    FOREBAY_EXPECT_OK(cache->Evict(old.key, std::nullopt));
    publish(anew);
  };
  const ExtentRef opened = cache->Find(old.key);
  EXPECT_EQ(store.interrupt, nullptr) << "the store was asked";
  EXPECT_EQ(opened, nullptr) << "a miss: the reader asks again";
  const ExtentRef found = cache->Find(old.key);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->sums().image, anew.checksums.image);
}

TEST_F(ExtentCacheTest, AnExtentThatAnotherIsWritingIsThereOnlyOnceItIsPublished) {
  io::FaultInjector injector;
  io::FaultyBackend faulty(backend_, injector);
  const auto directory = Take(faulty.OpenDirectory("/"));
  const auto queue = Take(faulty.CreateQueue({})), other = Take(faulty.CreateQueue({}));
  const auto store = Take(SegmentStore::Open(faulty, *directory, {limits::kGiB, true}));
  const auto cache = ExtentCache::Create(*arena_, store.get(), {},
                                         [](const ExtentKey&, std::uint64_t) { return kNever; });
  const auto publish = [&](io::IoQueue& own) {
    TestExtent extent = MakeExtent(1, kPage);
    return cache->PublishSsd(own, extent.key, extent.image(), extent.checksums, 1);
  };
  injector.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kWrite});
  std::thread first([&] { FOREBAY_EXPECT_OK(publish(*queue)); });
  while (injector.faults_injected() == 0) std::this_thread::yield();
  std::promise<void> answered;
  std::thread second([&] {
    EXPECT_EQ(CodeOf(publish(*other)), ErrorCode::kAlreadyExists);
    EXPECT_NE(cache->FindOn(KeyOfNumber(1), TierKind::kSsd), nullptr);
    answered.set_value();
  });
  // Whoever does not wait for the first has answered by now; whoever does loses nothing.
  static_cast<void>(answered.get_future().wait_for(std::chrono::milliseconds(50)));
  injector.ReleaseStalls();
  first.join();
  second.join();
}

TEST_F(ExtentCacheTest, BytesThatDoNotMatchAreLostCopiesAndNeverRetireTheTier) {
  const Error mismatch(ErrorCode::kDataLoss, "does not match its checksum");
  for (std::uint32_t i = 0; i < 12; ++i) FOREBAY_EXPECT_OK(Store(i, 1));
  for (std::uint32_t i = 0; i < 10; ++i) {
    ReportBadOnSsd(i, mismatch, kSecondNs);
    EXPECT_FALSE(IsIn(i, TierKind::kSsd));
    FOREBAY_EXPECT_OK(Store(i, 1));  // it takes the extent again
  }
  EXPECT_EQ(cache_->stats(TierKind::kSsd).bad_extents, 10U);
  EXPECT_EQ(cache_->stats(TierKind::kSsd).device_errors, 0U);
  EXPECT_FALSE(cache_->stats(TierKind::kSsd).retired);
  EXPECT_NE(cache_->Find(KeyOfNumber(11)), nullptr);
}

TEST_F(ExtentCacheTest, ABadRamCopyIsDroppedAndCountedOnce) {
  Take(Bring(1, 1));
  FOREBAY_EXPECT_OK(Store(1, 1));
  const ExtentRef read = cache_->FindOn(KeyOfNumber(1), TierKind::kRam);
  for (int i = 0; i < 2; ++i) cache_->ReportBad(read, Error(ErrorCode::kDataLoss, "flipped"), 0);
  EXPECT_FALSE(IsIn(1, TierKind::kRam));
  EXPECT_TRUE(IsIn(1, TierKind::kSsd)) << "the other copy stays";
  EXPECT_EQ(cache_->stats(TierKind::kRam).bad_extents, 1U);
  EXPECT_EQ(cache_->stats(TierKind::kSsd).bad_extents, 0U);
}

TEST_F(ExtentCacheTest, ABadReadDropsNoCopyThatHasReplacedTheOneThatWasRead) {
  const Error flipped(ErrorCode::kDataLoss, "flipped");
  Take(Bring(1, 1));
  FOREBAY_EXPECT_OK(Store(1, 1));
  const ExtentRef in_ram = cache_->FindOn(KeyOfNumber(1), TierKind::kRam);
  const ExtentRef on_ssd = cache_->FindOn(KeyOfNumber(1), TierKind::kSsd);
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(1), std::nullopt));
  Take(Bring(1, 1));
  FOREBAY_EXPECT_OK(Store(1, 1));
  for (const bool is_open : {false, true}) {  // whether a reader has opened the new copy on SSD
    ExtentRef opened;
    if (is_open) opened = cache_->FindOn(KeyOfNumber(1), TierKind::kSsd);
    cache_->ReportBad(in_ram, flipped, 0);
    cache_->ReportBad(on_ssd, flipped, 0);
    for (const TierKind tier : {TierKind::kRam, TierKind::kSsd}) {
      EXPECT_TRUE(IsIn(1, tier));
      EXPECT_EQ(cache_->stats(tier).bad_extents, 0U);
    }
  }
}

TEST_F(ExtentCacheTest, WithoutSsdThereIsRamOnly) {
  Start(10, 0, false);
  EXPECT_EQ(CodeOf(Store(1, 1)), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(cache_->stats(TierKind::kSsd).capacity_bytes, 0U);
  Take(Bring(1, 1));
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(1), std::nullopt));
}

TEST_F(ExtentCacheTest, EvictNamesTiers) {
  EXPECT_EQ(CodeOf(cache_->Evict(KeyOfNumber(1), std::nullopt)), ErrorCode::kNotFound);
  Take(Bring(1, 1));
  FOREBAY_EXPECT_OK(Store(1, 1));
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(1), TierKind::kSsd));
  EXPECT_TRUE(IsIn(1, TierKind::kRam));
  EXPECT_EQ(CodeOf(cache_->Evict(KeyOfNumber(1), TierKind::kSsd)), ErrorCode::kNotFound);
  FOREBAY_EXPECT_OK(Store(1, 1));
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(1), std::nullopt));
  EXPECT_EQ(store_->Keys().size(), 0U);
  EXPECT_EQ(arena_->used_bytes(), 0U);
}

TEST_F(ExtentCacheTest, TheLedgerHasWhatLeftByItsCause) {
  EvictionLedger ledger;
  ExtentCache::Options options = {1000, 1000};
  options.evictions = &ledger;
  Start(2, 2, true, options);
  const auto sum = [&ledger](TierKind tier, EvictionCause cause) {
    const auto sums = ledger.Take();
    EXPECT_EQ(sums.size(), 1U);
    const auto found = sums.find({DatasetHash("made-up"), tier, cause});
    return found == sums.end() ? EvictionLedger::Sum() : found->second;
  };
  FOREBAY_EXPECT_OK(Store(1, 50));
  for (const std::uint32_t number : {1U, 2U, 3U, 4U}) Take(Bring(number, 100 - number));
  const EvictionLedger::Sum ram = sum(TierKind::kRam, EvictionCause::kRoom);
  EXPECT_EQ(ram.extents, 2U) << "extents 1 and 2 made room for 3 and 4";
  EXPECT_EQ(ram.gone, 1U) << "extent 1 is still on SSD";
  FOREBAY_EXPECT_OK(Store(5, 5));
  FOREBAY_EXPECT_OK(Store(6, 6));
  EXPECT_EQ(sum(TierKind::kSsd, EvictionCause::kRoom).gone, 1U);
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(5), std::nullopt));
  EXPECT_EQ(sum(TierKind::kSsd, EvictionCause::kAsked).extents, 1U);
  cache_->ReportBad(cache_->FindOn(KeyOfNumber(3), TierKind::kRam),
                    Error(ErrorCode::kDataLoss, "flipped"), 0);
  EXPECT_EQ(sum(TierKind::kRam, EvictionCause::kDamaged).extents, 1U);
  ReportBadOnSsd(6, Error(ErrorCode::kDataLoss, "flipped"), 0);
  EXPECT_EQ(sum(TierKind::kSsd, EvictionCause::kDamaged).extents, 1U);
  EXPECT_TRUE(ledger.Take().empty());
}

TEST_F(ExtentCacheTest, PublishesNothingTwice) {
  Take(Bring(1, 1));
  EXPECT_EQ(CodeOf(Bring(1, 1)), ErrorCode::kAlreadyExists);
  EXPECT_EQ(arena_->used_bytes(), kPage);
  FOREBAY_EXPECT_OK(Store(1, 1));
  EXPECT_EQ(CodeOf(Store(1, 1)), ErrorCode::kAlreadyExists);
}

TEST_F(ExtentCacheTest, ImpossibleAllocationsEvictNothing) {
  Start(4, 0);
  Take(Bring(1, 900));
  EXPECT_EQ(CodeOf(cache_->AllocateRam(0, 1)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(cache_->AllocateRam(5 * kPage, 1)), ErrorCode::kResourceExhausted);
  EXPECT_TRUE(IsIn(1, TierKind::kRam));
}

// A search looks at a sample of many extents first. What it takes is needed late, if not last.
TEST_F(ExtentCacheTest, OfManyExtentsOneOfTheLastNeededGoes) {
  constexpr std::uint32_t kExtents = 5000;
  Start(kExtents, 0);
  for (std::uint32_t i = 0; i < kExtents; ++i) Take(Bring(i, 1 + i));
  for (std::uint32_t i = 0; i < 50; ++i) Take(Bring(kExtents + i, 0));
  EXPECT_EQ(cache_->stats(TierKind::kRam).evictions, 50U);
  std::uint32_t soonest_gone = kExtents;
  for (std::uint32_t i = 0; i < kExtents; ++i) {
    if (!IsIn(i, TierKind::kRam)) soonest_gone = std::min(soonest_gone, i);
  }
  EXPECT_LT(soonest_gone, kExtents) << "the newcomers are needed sooner than all others";
  EXPECT_GT(soonest_gone, kExtents * 98 / 100);
}

TEST_F(ExtentCacheTest, OfManyExtentsTheOnlyOneThatMayGoIsFound) {
  constexpr std::uint32_t kExtents = 5000;
  Start(kExtents, 0);
  for (std::uint32_t i = 0; i < kExtents; ++i) Take(Bring(i, i == 1234 ? 20 : 10));
  Take(Bring(kExtents, 11));
  EXPECT_FALSE(IsIn(1234, TierKind::kRam));
  EXPECT_EQ(cache_->stats(TierKind::kRam).evictions, 1U);
  EXPECT_EQ(CodeOf(Bring(kExtents + 1, 12)), ErrorCode::kResourceExhausted);
}

TEST_F(ExtentCacheTest, OnSsdToo) {
  constexpr std::uint32_t kExtents = 1500;
  Start(1, kExtents);
  for (std::uint32_t i = 0; i < kExtents; ++i) FOREBAY_EXPECT_OK(Store(i, i == 77 ? 20 : 10));
  FOREBAY_EXPECT_OK(Store(kExtents, 11));
  EXPECT_FALSE(IsIn(77, TierKind::kSsd));
  EXPECT_EQ(cache_->stats(TierKind::kSsd).evictions, 1U);
}

// Whoever computes a next use may look at the cache: no lock is held.
TEST_F(ExtentCacheTest, NextUsesAreAskedForWithoutTheLock) {
  Start(2, 0, false);
  Take(Bring(1, 10));
  Take(Bring(2, 20));
  std::uint64_t asked = 0;
  ExtentCache* asking = nullptr;
  const auto next_use = [&](const ExtentKey& key, std::uint64_t) {
    ++asked;
    return asking->FindOn(key, TierKind::kRam) ? std::uint64_t{10} : kNever;
  };
  const auto other = ExtentCache::Create(*arena_, nullptr, {}, next_use);
  asking = other.get();
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(1), std::nullopt));
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(2), std::nullopt));
  for (std::uint32_t i = 3; i < 5; ++i) {
    const TestExtent extent = MakeExtent(i, kPage);
    Take(other->PublishRam(extent.key, Take(other->AllocateRam(kPage, 1)), extent.checksums));
  }
  EXPECT_TRUE(other->AllocateRam(kPage, 1).has_value());
  EXPECT_EQ(asked, 2U);
}

// Sizes that differ make holes, so extents are moved while others look them up.
TEST_F(ExtentCacheTest, NobodyReadsAnExtentThatIsBeingMoved) {
  Start(32, 0, false);
  for (std::uint32_t i = 0; i < 24; ++i) next_use_[i] = 100;
  std::vector<std::jthread> threads;
  for (std::uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      std::mt19937_64 random(t);
      for (int step = 0; step < 1500; ++step) {
        const auto number = static_cast<std::uint32_t>(random() % 24);
        const std::uint64_t bytes = (1 + number % 5) * kPage;
        const auto filler = static_cast<std::byte>(number + 1);
        if (const ExtentRef found = cache_->Find(KeyOfNumber(number))) {
          ASSERT_EQ(found->block.bytes().size(), bytes);
          ASSERT_TRUE(std::ranges::all_of(found->block.bytes(),
                                          [&](std::byte byte) { return byte == filler; }));
          continue;
        }
        auto block = cache_->AllocateRam(bytes, 50);
        if (!block.has_value()) continue;
        std::ranges::fill(block->bytes(), filler);
        const auto published = cache_->PublishRam(KeyOfNumber(number), std::move(*block), {});
        ASSERT_TRUE(published.has_value() || CodeOf(published) == ErrorCode::kAlreadyExists);
      }
    });
  }
  threads.clear();
  EXPECT_GT(cache_->stats(TierKind::kRam).moved, 0U);
  EXPECT_GT(cache_->stats(TierKind::kRam).evictions, 0U);
}

TEST_F(ExtentCacheTest, ThreadsBringFindAndEvictTogether) {
  Start(24, 12);
  for (std::uint32_t i = 0; i < 40; ++i) next_use_[i] = 100 + i;
  std::vector<std::jthread> threads;
  for (std::uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      std::mt19937_64 random(t);
      const auto queue = Take(backend_.CreateQueue({}));
      std::vector<ExtentRef> pins;
      for (int step = 0; step < 400; ++step) {
        const auto number = static_cast<std::uint32_t>(random() % 40);
        TestExtent extent = MakeExtent(number, kPage);
        const ExtentRef found = cache_->Find(extent.key);
        if (found && found->tier == TierKind::kRam) {
          ASSERT_EQ(found->block.bytes()[99], extent.memory.span()[99]);
        } else if (found) {
          FOREBAY_EXPECT_OK(testing::VerifySegment(*queue, *found->segment, extent.pieces));
        }
        if (found) pins.push_back(found);
        if (pins.size() > 3) pins.erase(pins.begin());
        const std::uint64_t action = random() % 4;
        if (action == 0) {
          auto block = cache_->AllocateRam(kPage, 50);
          if (!block.has_value()) continue;
          std::ranges::copy(extent.memory.span(), block->bytes().begin());
          const auto published =
              cache_->PublishRam(extent.key, std::move(*block), extent.checksums);
          EXPECT_TRUE(published.has_value() || CodeOf(published) == ErrorCode::kAlreadyExists);
        } else if (action == 1) {
          const Status stored =
              cache_->PublishSsd(*queue, extent.key, extent.image(), extent.checksums, 50);
          EXPECT_TRUE(stored.has_value() || CodeOf(stored) == ErrorCode::kAlreadyExists ||
                      CodeOf(stored) == ErrorCode::kResourceExhausted);
        } else if (action == 2 && step % 5 == 0) {
          const Status evicted = cache_->Evict(extent.key, std::nullopt);
          EXPECT_TRUE(evicted.has_value() || CodeOf(evicted) == ErrorCode::kNotFound);
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(cache_->Resident(TierKind::kRam).size() * kPage, arena_->used_bytes());
  EXPECT_EQ(cache_->Resident(TierKind::kSsd).size(), store_->Keys().size());
  EXPECT_EQ(cache_->stats(TierKind::kSsd).extents, store_->Keys().size());
  EXPECT_FALSE(cache_->stats(TierKind::kSsd).retired);
}

}  // namespace forebay::tier::extent_cache_test
