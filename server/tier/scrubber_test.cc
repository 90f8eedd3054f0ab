// Every flipped bit is found, in RAM and on SSD, and named; the rate is kept; a round visits every
// extent.
#include "server/tier/scrubber.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/tier/image_verifier.h"
#include "server/tier/ssd/segment_format.h"
#include "server/tier/testing/tier_test_fixture.h"

namespace forebay::tier {
namespace {

using testing::CodeOf;
using testing::KeyOfNumber;
using testing::MakeExtent;
using testing::Take;
using testing::TestExtent;

class ScrubberTest : public ::testing::Test {
 protected:
  ScrubberTest() { Restart(); }
  ~ScrubberTest() override { cache_.reset(); }

  void Restart() {
    cache_.reset();
    store_ = Take(SegmentStore::Open(backend_, *directory_, {limits::kGiB, true}));
    cache_ = ExtentCache::Create(*arena_, store_.get(), {},
                                 [](const ExtentKey&, std::uint64_t) { return std::uint64_t{1}; });
  }
  void ToRam(std::uint32_t number, std::size_t image_bytes = 0) {
    const TestExtent extent = MakeExtent(number, image_bytes);
    ArenaBlock block = Take(cache_->AllocateRam(extent.image_bytes, 1));
    std::ranges::copy(extent.memory.span().first(extent.image_bytes), block.bytes().begin());
    pieces_[number] = extent.pieces;
    Take(cache_->PublishRam(extent.key, std::move(block), extent.checksums));
  }
  void ToSsd(std::uint32_t number, std::size_t image_bytes = 0) {
    TestExtent extent = MakeExtent(number, image_bytes);
    pieces_[number] = extent.pieces;
    FOREBAY_EXPECT_OK(
        cache_->PublishSsd(*queue_, extent.key, extent.image(), extent.checksums, 1));
  }
  Scrubber Make(bool has_pieces = true, std::uint64_t bytes_per_second = 0) {
    PiecesOf pieces_of;
    if (has_pieces) {
      pieces_of = [this](const ExtentKey& key, std::vector<catalog::Range>& pieces) -> Status {
        pieces = pieces_.at(key.extent.value());
        return {};
      };
    }
    return Take(Scrubber::Create(*cache_, clock_, pieces_of, {bytes_per_second}));
  }
  void FlipOnSsd(std::uint32_t number, std::uint64_t bit) {
    FOREBAY_EXPECT_OK(backend_.FlipBit("/" + SegmentName(KeyOfNumber(number)), bit));
  }

  io::MemoryBackend backend_;
  std::unique_ptr<io::Directory> directory_ = Take(backend_.OpenDirectory("/"));
  std::unique_ptr<io::IoQueue> queue_ = Take(backend_.CreateQueue({}));
  io::ManualClock clock_{1'000};
  std::unique_ptr<RamArena> arena_ =
      Take(RamArena::Create({16 * limits::kMiB, 16 * limits::kMiB, RegionId(0)}));
  std::unique_ptr<SegmentStore> store_;
  std::unique_ptr<ExtentCache> cache_;
  std::map<std::uint32_t, std::vector<catalog::Range>> pieces_;
};

TEST_F(ScrubberTest, SoundExtentsOfBothTiersPass) {
  ToRam(1);
  ToSsd(2);
  ToSsd(3, 3 * kScrubBytes + 77);
  ToSsd(4, 2 * kScrubBytes);
  Scrubber scrubber = Make();
  for (const std::uint32_t number : {1U, 2U, 3U, 4U}) {
    FOREBAY_EXPECT_OK(scrubber.ScrubExtent(cache_->Find(KeyOfNumber(number)), *queue_));
  }
  EXPECT_EQ(scrubber.counts().extents, 4U);
  EXPECT_EQ(scrubber.counts().bad_extents, 0U);
  EXPECT_EQ(scrubber.counts().bytes,
            MakeExtent(1).image_bytes + MakeExtent(2).image_bytes + 5 * kScrubBytes + 77);
}

TEST_F(ScrubberTest, RoundVisitsEveryResidentExtentOnce) {
  for (const std::uint32_t number : {1U, 2U}) ToRam(number);
  for (const std::uint32_t number : {2U, 3U, 4U}) ToSsd(number);
  Scrubber scrubber = Make();
  std::vector<std::pair<TierKind, ExtentKey>> seen;
  for (int i = 0; i < 10; ++i) {
    const auto finding = scrubber.ScrubNext(*queue_);
    ASSERT_TRUE(finding.has_value());
    FOREBAY_EXPECT_OK(finding->status);
    seen.push_back({finding->tier, finding->key});
  }
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(seen[i], seen[i + 5]);
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(seen[i], seen[j]);
  }
}

TEST_F(ScrubberTest, NothingResidentIsNothingToDo) {
  Scrubber scrubber = Make();
  EXPECT_FALSE(scrubber.ScrubNext(*queue_).has_value());
}

TEST_F(ScrubberTest, FlippedBitInRamIsNamedAndEvicted) {
  ToRam(1);
  ToRam(2);
  cache_->Find(KeyOfNumber(1))->block.bytes()[150] ^= std::byte{4};
  Scrubber scrubber = Make();
  int bad = 0;
  for (int i = 0; i < 2; ++i) {
    const auto finding = scrubber.ScrubNext(*queue_);
    ASSERT_TRUE(finding.has_value());
    if (finding->status.has_value()) continue;
    ++bad;
    EXPECT_EQ(finding->key, KeyOfNumber(1));
    EXPECT_NE(finding->status.error().message().find("piece 1"), std::string::npos)
        << finding->status.error().message();
  }
  EXPECT_EQ(bad, 1);
  EXPECT_EQ(cache_->Resident(TierKind::kRam), std::vector<ExtentKey>{KeyOfNumber(2)});
}

TEST_F(ScrubberTest, EveryBitFlipIn256SsdExtentsIsFound) {
  constexpr std::uint32_t kCount = 256;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    ToSsd(i);
    const std::uint64_t bits = MakeExtent(i).image_bytes * 8;
    FlipOnSsd(i, i == 0 ? 0 : i == 1 ? bits - 1 : (i * 0x9E3779B97F4AULL) % bits);
  }
  Scrubber with_pieces = Make(true);
  Scrubber without = Make(false);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const ExtentRef extent = cache_->Find(KeyOfNumber(i));
    ASSERT_NE(extent, nullptr) << i;
    EXPECT_EQ(CodeOf(testing::VerifySegment(*queue_, *extent->segment, pieces_[i])),
              ErrorCode::kDataLoss);
    EXPECT_EQ(CodeOf(with_pieces.ScrubExtent(extent, *queue_)), ErrorCode::kDataLoss);
    EXPECT_EQ(CodeOf(without.ScrubExtent(extent, *queue_)), ErrorCode::kDataLoss);
  }
  EXPECT_EQ(with_pieces.counts().bad_extents, kCount);
}

TEST_F(ScrubberTest, BadSegmentsAreDroppedAndTheTierStays) {
  for (std::uint32_t i = 0; i < 5; ++i) {
    ToSsd(i);
    FlipOnSsd(i, 5);
  }
  Scrubber scrubber = Make();
  int found = 0;
  for (int i = 0; i < 10; ++i) {
    const auto finding = scrubber.ScrubNext(*queue_);
    if (!finding) break;
    EXPECT_EQ(CodeOf(finding->status), ErrorCode::kDataLoss);
    ++found;
  }
  EXPECT_EQ(found, 5);
  EXPECT_FALSE(cache_->stats(TierKind::kSsd).retired);
  EXPECT_EQ(cache_->stats(TierKind::kSsd).bad_extents, 5U);
}

TEST_F(ScrubberTest, RateIsBoundedAndAPauseBuysNoBurst) {
  ToRam(1, 1000);
  Scrubber scrubber = Make(true, 1000);  // one such extent a second
  EXPECT_EQ(scrubber.not_before_ns(), 1'000);
  ASSERT_TRUE(scrubber.ScrubNext(*queue_).has_value());
  EXPECT_EQ(scrubber.not_before_ns(), 1'000 + 1'000'000'000);
  clock_.AdvanceNs(10'000'000'000);
  ASSERT_TRUE(scrubber.ScrubNext(*queue_).has_value());
  ASSERT_TRUE(scrubber.ScrubNext(*queue_).has_value());
  EXPECT_EQ(scrubber.not_before_ns(), 1'000 + 12'000'000'000);
}

TEST_F(ScrubberTest, CatalogThatDoesNotFitIsDataLoss) {
  ToRam(1);
  pieces_[1].pop_back();
  Scrubber scrubber = Make();
  EXPECT_EQ(CodeOf(scrubber.ScrubExtent(cache_->Find(KeyOfNumber(1)), *queue_)),
            ErrorCode::kDataLoss);
}

TEST_F(ScrubberTest, ReadErrorsLeaveTheQueueIdle) {
  ToSsd(1, 4 * kScrubBytes);
  io::FaultInjector injector;
  io::FaultyBackend faulty(backend_, injector);
  const auto directory = Take(faulty.OpenDirectory("/"));
  const auto queue = Take(faulty.CreateQueue({}));
  const auto store = Take(SegmentStore::Open(faulty, *directory, {limits::kGiB, true}));
  const auto cache = ExtentCache::Create(*arena_, store.get(), {},
                                         [](const ExtentKey&, std::uint64_t) {
                                           return std::uint64_t{1};
                                         });
  const ExtentRef extent = cache->Find(KeyOfNumber(1));
  ASSERT_NE(extent, nullptr);
  Scrubber scrubber = Take(Scrubber::Create(*cache, clock_, nullptr, {0}));
  for (const io::FaultKind kind : {io::FaultKind::kEio, io::FaultKind::kShort,
                                   io::FaultKind::kBitFlip, io::FaultKind::kInterrupted}) {
    for (std::uint64_t nth = 1; nth <= 4; ++nth) {
      const std::uint64_t before = injector.faults_injected();
      injector.Arm({.kind = kind, .call = io::IoCall::kRead, .nth = nth});
      EXPECT_FALSE(scrubber.ScrubExtent(extent, *queue).has_value());
      EXPECT_EQ(injector.faults_injected(), before + 1);
      EXPECT_EQ(queue->in_flight(), 0U);
      injector.Disarm();
      FOREBAY_EXPECT_OK(scrubber.ScrubExtent(extent, *queue));
    }
  }
}

TEST(ImageVerifier, PartsOfAnySizeAndGapsBetweenPieces) {
  TestExtent extent = MakeExtent(5, 1000);
  const std::vector<catalog::Range> pieces = {{extent.key.extent, 10, 0},
                                              {extent.key.extent, 10, 290},
                                              {extent.key.extent, 400, 600}};
  const ExtentChecksums sums = ComputeChecksums(extent.key, extent.image(), pieces);
  for (std::size_t step = 1; step <= 1000; step += 7) {
    ImageVerifier verifier(extent.key, 1000, sums, pieces);
    for (std::size_t at = 0; at < 1000; at += step) {
      FOREBAY_EXPECT_OK(verifier.Feed(
          extent.image().subspan(at, std::min<std::size_t>(step, 1000 - at))));
    }
    FOREBAY_EXPECT_OK(verifier.Finish());
  }
}

TEST_F(ScrubberTest, DropsNoCopyThatHasReplacedTheDamagedOne) {
  ToSsd(1);
  FlipOnSsd(1, 3);
  Scrubber scrubber = Make();
  const ExtentRef damaged = cache_->FindOn(KeyOfNumber(1), TierKind::kSsd);
  const Status found = scrubber.ScrubExtent(damaged, *queue_);
  EXPECT_EQ(CodeOf(found), ErrorCode::kDataLoss);
  FOREBAY_EXPECT_OK(cache_->Evict(KeyOfNumber(1), std::nullopt));
  ToSsd(1);
  EXPECT_TRUE(scrubber.DropIfDamaged(damaged, found));
  const ExtentRef replaced = cache_->FindOn(KeyOfNumber(1), TierKind::kSsd);
  ASSERT_NE(replaced, nullptr);
  FOREBAY_EXPECT_OK(scrubber.ScrubExtent(replaced, *queue_));
}

TEST(ImageVerifier, DamageBetweenPiecesIsFoundByTheImage) {
  TestExtent extent = MakeExtent(5, 1000);
  const std::vector<catalog::Range> pieces = {{extent.key.extent, 0, 300},
                                              {extent.key.extent, 400, 600}};
  const ExtentChecksums sums = ComputeChecksums(extent.key, extent.image(), pieces);
  extent.image()[350] ^= std::byte{1};
  ImageVerifier verifier(extent.key, 1000, sums, pieces);
  FOREBAY_EXPECT_OK(verifier.Feed(extent.image()));
  EXPECT_EQ(CodeOf(verifier.Finish()), ErrorCode::kDataLoss);
}

TEST(ImageVerifier, ImpossiblePiecesAreDataLoss) {
  const ExtentKey key = KeyOfNumber(1);
  const ExtentChecksums sums = {0, {0, 0}};
  using Pieces = std::vector<catalog::Range>;
  for (const Pieces& pieces :
       {Pieces{{key.extent, 0, 10}}, Pieces{{key.extent, 0, 10}, {key.extent, 9, 5}},
        Pieces{{key.extent, 0, 10}, {key.extent, 90, 11}},
        Pieces{{key.extent, 0, 10}, {key.extent, 101, 0}},
        Pieces{{key.extent, 0, 10}, {key.extent, 50, ~std::uint64_t{0}}}}) {
    EXPECT_EQ(CodeOf(ImageVerifier::CheckShape(key, 100, sums, pieces)), ErrorCode::kDataLoss);
  }
}

}  // namespace
}  // namespace forebay::tier
