// Tests how a load that finds no memory in RAM waits for it: what ends its wait, and how often it
// tries.
#include "server/stage/placement/staging_tiers.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::stage::staging_tiers_test {

using io::testing::Take;

constexpr std::uint64_t kPage = 4096;
constexpr std::int64_t kLongMs = 60'000;

// An arena of a few pages, each filled by one extent that the test pins or has needed soon.
class StagingTiersTest : public ::testing::Test {
 protected:
  StagingTiersTest() { Start(1); }
  ~StagingTiersTest() override { pins_.clear(); }

  void Start(std::uint32_t pages) {
    pins_.clear();
    tiers_.reset();
    cache_.reset();
    arena_ = Take(tier::RamArena::Create({.capacity_bytes = pages * kPage}));
    const auto next_use = [this](const tier::ExtentKey&, std::uint64_t) {
      return next_use_.load();
    };
    cache_ = tier::ExtentCache::Create(*arena_, nullptr, {}, next_use);
    tiers_ = std::make_unique<StagingTiers>(
        *cache_, arena_->memory_signal(), StagingTiersOptions{},
        // Called once by each try of a load.
        [this](const tier::ExtentKey&, std::uint64_t) {
          ++tries_;
          return std::uint64_t{kWanted};
        },
        clock_);
    for (std::uint32_t i = 0; i < pages; ++i) {
      auto block = Take(cache_->AllocateRam(kPage, 0));
      pins_.push_back(Take(cache_->PublishRam(KeyOf(i), std::move(block), {})));
    }
  }
  static tier::ExtentKey KeyOf(std::uint32_t number) {
    return {.dataset = 1, .extent = ExtentId(number), .identity = number};
  }

  Result<tier::ArenaBlock> Allocate(std::int64_t wait_ms, bool for_extent = true) {
    const std::unique_ptr<io::IoQueue> queue = Take(backend_.CreateQueue({}));
    const tier::ExtentKey key = KeyOf(100);
    return tiers_->Allocate(
        {.bytes = kPage, .key = for_extent ? &key : nullptr, .wait_ms = wait_ms}, *queue);
  }
  // Starts a load in a thread of its own, and returns when it has tried and found no memory.
  std::thread AllocateInThread(std::optional<Result<tier::ArenaBlock>>& outcome) {
    const int before = tries_;
    std::thread thread([this, &outcome] { outcome.emplace(Allocate(kLongMs)); });
    while (tries_ == before) std::this_thread::yield();
    return thread;
  }

  static constexpr std::uint64_t kWanted = 100;  // steps until the extent of a load is needed
  std::atomic<std::uint64_t> next_use_ = 1000;   // and those in RAM
  std::atomic<int> tries_ = 0;
  io::MemoryBackend backend_;
  io::SteadyClock clock_;
  std::unique_ptr<tier::RamArena> arena_;
  std::unique_ptr<tier::ExtentCache> cache_;
  std::unique_ptr<StagingTiers> tiers_;
  std::vector<tier::ExtentRef> pins_;
};

TEST_F(StagingTiersTest, ALoadWaitsUntilABlockIsFreed) {
  Start(2);
  pins_.clear();
  ASSERT_TRUE(cache_->Evict(KeyOf(0), std::nullopt).has_value());
  ASSERT_TRUE(cache_->Evict(KeyOf(1), std::nullopt).has_value());
  tier::ArenaBlock first = Take(arena_->Allocate(kPage));
  const tier::ArenaBlock second = Take(arena_->Allocate(kPage));
  std::optional<Result<tier::ArenaBlock>> outcome;
  std::thread load = AllocateInThread(outcome);
  first = tier::ArenaBlock();
  load.join();
  EXPECT_TRUE(outcome->has_value());
}

TEST_F(StagingTiersTest, ALoadWaitsUntilTheLastPinOfAnExtentHasGone) {
  tier::ExtentRef second = pins_.front();
  std::optional<Result<tier::ArenaBlock>> outcome;
  std::thread load = AllocateInThread(outcome);
  pins_.clear();
  EXPECT_NE(cache_->Find(KeyOf(0)), nullptr) << "it has another pin";
  second = nullptr;
  load.join();
  EXPECT_TRUE(outcome->has_value());
  EXPECT_EQ(cache_->Find(KeyOf(0)), nullptr) << "it was evicted for the load";
}

TEST_F(StagingTiersTest, ALoadWaitsUntilOtherExtentsAreNeededLater) {
  pins_.clear();
  next_use_ = kWanted - 1;
  std::optional<Result<tier::ArenaBlock>> outcome;
  std::thread load = AllocateInThread(outcome);
  next_use_ = kWanted + 1;
  arena_->memory_signal().Notify();  // as a stream does (FutureUse)
  load.join();
  EXPECT_TRUE(outcome->has_value());
}

TEST_F(StagingTiersTest, ALoadTriesAgainOnlyAfterAChange) {
  const auto outcome = Allocate(/*wait_ms=*/50);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(tries_, 1);
}

TEST_F(StagingTiersTest, ALoadThatMayNotWaitTriesOnce) {
  const auto outcome = Allocate(/*wait_ms=*/0);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(tries_, 1);
  EXPECT_FALSE(Allocate(/*wait_ms=*/0, /*for_extent=*/false).has_value());
}

TEST_F(StagingTiersTest, ShutdownEndsTheWait) {
  std::optional<Result<tier::ArenaBlock>> outcome;
  std::thread load = AllocateInThread(outcome);
  tiers_->Stop();
  load.join();
  ASSERT_FALSE(outcome->has_value());
  EXPECT_EQ(outcome->error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(Allocate(kLongMs).error().code(), ErrorCode::kCancelled);
}

// More loads than pages, and pins that come and go: each load gets its page.
TEST_F(StagingTiersTest, OfManyLoadsNoneIsForgotten) {
  constexpr std::uint32_t kPages = 3;
  constexpr std::uint32_t kLoads = 12;
  constexpr std::uint32_t kRounds = 30;
  Start(kPages);
  std::atomic<int> failed = 0;
  std::vector<std::thread> loads;
  for (std::uint32_t i = 0; i < kLoads; ++i) {
    loads.emplace_back([&, i] {
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        auto block = Allocate(kLongMs);
        if (!block.has_value()) {
          ++failed;
          return;
        }
        // Published and pinned for a while, as an extent that a batch uses.
        const tier::ExtentKey key = KeyOf(1000 * (i + 1) + round);
        const tier::ExtentRef pin = Take(cache_->PublishRam(key, std::move(*block), {}));
        std::this_thread::yield();
      }
    });
  }
  pins_.clear();
  for (std::thread& load : loads) load.join();
  EXPECT_EQ(failed, 0);
}

}  // namespace forebay::stage::staging_tiers_test
