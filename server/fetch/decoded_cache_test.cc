// DecodedCache: which units are kept and evicted, and that one unit is decoded once.
#include "server/fetch/decoded_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace forebay::fetch {
namespace {

// A unit that the cache charges with 1,000 bytes.
constexpr std::size_t kUnitBytes = 1'000 - DecodedUnit::kUnitOverheadBytes;

UnitKey KeyOf(std::uint32_t number) {
  return {.extent = {.dataset = 1, .extent = ExtentId(number / 8), .identity = 5},
          .piece = number % 8};
}

class DecodedCacheTest : public ::testing::Test {
 protected:
  // Unit `number` holds sample `number`; all its bytes have this value.
  Result<UnitRef> Get(DecodedCache& cache, std::uint32_t number, std::size_t bytes = kUnitBytes) {
    return cache.Get(KeyOf(number), SamplesOf(number), [&]() -> Result<DecodedUnit> {
      ++decodings_;
      return Unit(number, bytes);
    });
  }
  static UnitSamples SamplesOf(std::uint32_t number) {
    return {.dataset = 1, .first = number, .count = 1};
  }
  static DecodedUnit Unit(std::uint32_t number, std::size_t bytes) {
    DecodedUnit unit{.bytes = RawBytes(bytes), .ends = {}, .samples = 1};
    for (std::byte& byte : unit.bytes.span()) byte = static_cast<std::byte>(number);
    return unit;
  }
  DecodedCache Make(std::uint64_t capacity) {
    return DecodedCache(capacity, [this](const UnitSamples& samples) {
      const auto found = next_use_.find(samples.first);
      return found == next_use_.end() ? samples.first : found->second;
    });
  }

  std::map<std::uint64_t, std::uint64_t> next_use_;  // default: the sample's number
  std::atomic<int> decodings_ = 0;
};

TEST_F(DecodedCacheTest, KeepsAndFinds) {
  DecodedCache cache = Make(10'000);
  EXPECT_EQ(cache.Find(KeyOf(3)), nullptr);
  const Result<UnitRef> unit = Get(cache, 3);
  ASSERT_TRUE(unit.has_value());
  EXPECT_EQ((*unit)->Sample(0).front(), std::byte{3});
  EXPECT_EQ(cache.Find(KeyOf(3)), *unit);
  ASSERT_TRUE(Get(cache, 3).has_value());
  EXPECT_EQ(decodings_, 1);
  const DecodedCache::Stats stats = cache.stats();
  EXPECT_EQ(stats.units, 1U);
  EXPECT_EQ(stats.used_bytes, 1'000U);
  EXPECT_EQ(stats.decoded, 1U);
}

TEST_F(DecodedCacheTest, ScrubbingDropsWhatIsDamaged) {
  DecodedCache cache = Make(10'000);
  EXPECT_FALSE(cache.ScrubNext().has_value()) << "nothing is kept";
  std::map<std::uint32_t, bool> sound;
  for (const std::uint32_t number : {1U, 2U, 3U, 4U}) {
    sound[number] = true;
    const auto unit = cache.Get(KeyOf(number), {.first = number, .count = 1}, [&] {
      DecodedUnit decoded{.bytes = RawBytes(1'000 - 256), .ends = {}, .samples = 1};
      decoded.is_sound = [&sound, number](std::span<const std::byte> bytes) {
        return sound.at(number) && bytes.size() == 744;
      };
      return Result<DecodedUnit>(std::move(decoded));
    });
    ASSERT_TRUE(unit.has_value());
  }
  const UnitRef held = cache.Find(KeyOf(2));
  ASSERT_TRUE(held);
  const auto round = [&](int units) {
    std::vector<bool> found;
    for (int i = 0; i < units; ++i) {
      const auto scrubbed = cache.ScrubNext();
      EXPECT_TRUE(scrubbed.has_value());
      EXPECT_EQ(scrubbed->bytes, 744U);
      found.push_back(scrubbed->is_sound);
    }
    return std::ranges::count(found, false);
  };
  EXPECT_EQ(round(8), 0);
  sound[2] = false;
  EXPECT_EQ(round(4), 1) << "all are looked at in turn";
  EXPECT_EQ(cache.Find(KeyOf(2)), nullptr);
  EXPECT_EQ(round(6), 0);
  const DecodedCache::Stats stats = cache.stats();
  EXPECT_EQ(stats.bad_units, 1U);
  EXPECT_EQ(stats.evictions, 0U);
  EXPECT_EQ(stats.units, 3U);
  EXPECT_EQ(stats.used_bytes, 3'000U);
  EXPECT_EQ(held->bytes.size(), 744U) << "who holds it goes on";
}

// Units are added, evicted and damaged while the scrubber runs.
TEST_F(DecodedCacheTest, ScrubbingGoesOnBesideReaders) {
  DecodedCache cache = Make(10'000);
  const auto read = [&](std::uint32_t first) {
    for (std::uint32_t i = 0; i < 2'000; ++i) {
      const std::uint32_t number = (first + i * 7) % 40;
      const auto unit = cache.Get(KeyOf(number), {.first = number, .count = 1}, [&] {
        DecodedUnit decoded{.bytes = RawBytes(744), .ends = {}, .samples = 1};
        std::ranges::fill(decoded.bytes.span(), static_cast<std::byte>(number));
        // Every fifth unit is damaged.
        decoded.is_sound = [number](std::span<const std::byte> bytes) {
          return number % 5 != 0 && bytes.front() == static_cast<std::byte>(number);
        };
        return Result<DecodedUnit>(std::move(decoded));
      });
      ASSERT_TRUE(unit.has_value());
      ASSERT_EQ((*unit)->Sample(0).front(), static_cast<std::byte>(number));
    }
  };
  std::uint64_t damaged = 0;
  {
    std::jthread one(read, 0), two(read, 20);
    for (int i = 0; i < 2'000; ++i) {
      const auto scrubbed = cache.ScrubNext();
      if (!scrubbed) continue;
      const std::uint32_t number = scrubbed->key.extent.extent.value() * 8 + scrubbed->key.piece;
      ASSERT_EQ(scrubbed->is_sound, number % 5 != 0);
      damaged += scrubbed->is_sound ? 0 : 1;
    }
  }
  const DecodedCache::Stats before = cache.stats();
  EXPECT_EQ(before.bad_units, damaged);
  EXPECT_LE(before.used_bytes, 10'000U);
  // One more round finds the rest of them.
  for (std::uint64_t i = 0; i < 2 * before.units; ++i) cache.ScrubNext();
  for (std::uint32_t number = 0; number < 40; number += 5) {
    EXPECT_EQ(cache.Find(KeyOf(number)), nullptr);
  }
  const DecodedCache::Stats after = cache.stats();
  EXPECT_EQ(after.used_bytes, after.units * 1'000);
}

TEST_F(DecodedCacheTest, WhatNobodyCanCheckIsNotDropped) {
  DecodedCache cache = Make(10'000);
  ASSERT_TRUE(Get(cache, 1).has_value());
  const auto scrubbed = cache.ScrubNext();
  ASSERT_TRUE(scrubbed.has_value());
  EXPECT_TRUE(scrubbed->is_sound);
  EXPECT_NE(cache.Find(KeyOf(1)), nullptr);
}

TEST_F(DecodedCacheTest, FixedAndVariableSamples) {
  DecodedUnit fixed{.bytes = RawBytes(12), .ends = {}, .samples = 3};
  EXPECT_EQ(fixed.Sample(2).data(), fixed.bytes.span().data() + 8);
  EXPECT_EQ(fixed.Sample(2).size(), 4U);
  DecodedUnit variable{.bytes = RawBytes(12), .ends = {5, 5, 12}, .samples = 3};
  EXPECT_EQ(variable.Sample(0).size(), 5U);
  EXPECT_EQ(variable.Sample(1).size(), 0U);
  EXPECT_EQ(variable.Sample(2).data(), variable.bytes.span().data() + 5);
  EXPECT_EQ(variable.Sample(2).size(), 7U);
}

// A unit of samples 0 to 3, in which sample 1 is left out.
DecodedUnit PartOfFour() {
  DecodedUnit unit{.bytes = RawBytes(9), .ends = {}, .samples = 4, .left_out = 1,
                   .places = {0, DecodedUnit::kNotHeld, 1, 2}};
  for (std::size_t i = 0; i < 9; ++i) unit.bytes.span()[i] = static_cast<std::byte>(i / 3);
  return unit;
}

TEST_F(DecodedCacheTest, APartOfAUnitServesThoseWhoWantNoMore) {
  const DecodedUnit part = PartOfFour();
  EXPECT_TRUE(part.Holds(0) && !part.Holds(1) && part.Holds(2) && part.Holds(3));
  EXPECT_EQ(part.Sample(3).data(), part.bytes.span().data() + 6);
  EXPECT_EQ(part.Sample(3).size(), 3U);
  DecodedCache cache = Make(10'000);
  int parts = 0;
  const auto get = [&](std::vector<std::uint32_t> wanted, bool whole) {
    return cache.Get(KeyOf(1), {.dataset = 1, .first = 4, .count = 4}, [&] {
      ++parts;
      return whole ? Result<DecodedUnit>(DecodedUnit{.bytes = RawBytes(12), .ends = {},
                                                     .samples = 4})
                   : Result<DecodedUnit>(PartOfFour());
    }, wanted);
  };
  ASSERT_TRUE(get({1}, false).has_value()) << "what it lacks went elsewhere";
  const std::uint64_t part_bytes = cache.stats().used_bytes;
  ASSERT_TRUE(get({0, 3}, false).has_value());
  EXPECT_EQ(parts, 1);
  const std::vector<std::uint32_t> held = {2, 3}, lacked = {2, 1};
  EXPECT_NE(cache.Find(KeyOf(1), held), nullptr);
  EXPECT_EQ(cache.Find(KeyOf(1), lacked), nullptr);
  // A reader that needs a missing sample decodes the unit again, and the new one replaces it.
  ASSERT_TRUE(get(lacked, true).has_value());
  EXPECT_EQ(parts, 2);
  EXPECT_NE(cache.Find(KeyOf(1), lacked), nullptr);
  const DecodedCache::Stats stats = cache.stats();
  EXPECT_EQ(stats.units, 1U);
  EXPECT_EQ(stats.used_bytes, 12 + DecodedUnit::kUnitOverheadBytes);
  EXPECT_EQ(part_bytes, 9 + 4 * 4 + DecodedUnit::kUnitOverheadBytes);
  EXPECT_EQ(stats.evictions, 0U);
}

TEST_F(DecodedCacheTest, AUnitThatHoldsNothingIsNotKept) {
  DecodedCache cache = Make(10'000);
  ASSERT_TRUE(cache.Get(KeyOf(1), SamplesOf(1), [] {
    return Result<DecodedUnit>(DecodedUnit{.bytes = {}, .ends = {}, .samples = 1, .left_out = 1,
                                           .places = {DecodedUnit::kNotHeld}});
  }).has_value());
  EXPECT_EQ(cache.stats().units, 0U);
  EXPECT_EQ(cache.stats().used_bytes, 0U);
}

// The callback is told that the unit is a part, because a part is of no use in other epochs.
TEST_F(DecodedCacheTest, PartsAreAskedAboutAsParts) {
  std::vector<bool> asked;
  DecodedCache cache(1'000, [&](const UnitSamples& samples) {
    asked.push_back(samples.is_part);
    return samples.first;
  });
  ASSERT_TRUE(cache.Get(KeyOf(9), {.dataset = 1, .first = 9, .count = 4}, [] {
    return Result<DecodedUnit>(PartOfFour());
  }).has_value());
  ASSERT_TRUE(cache.Get(KeyOf(1), SamplesOf(1), [] {
    return Result<DecodedUnit>(Unit(1, kUnitBytes));
  }).has_value());
  EXPECT_EQ(asked, (std::vector<bool>{false, true})) << "the newcomer, and what was kept";
}

// The estimate uses two windows of evictions, each as long as the number of kept units.
TEST_F(DecodedCacheTest, WhatIsNeededLaterThanWhatHadToGoWouldNotLast) {
  DecodedCache cache = Make(4'000);
  for (std::uint32_t i = 1; i <= 4; ++i) ASSERT_TRUE(Get(cache, 100 * i).has_value());
  EXPECT_TRUE(cache.WouldLast(SamplesOf(1'000'000))) << "nothing had to go yet";
  ASSERT_TRUE(Get(cache, 50).has_value());
  EXPECT_EQ(cache.Find(KeyOf(400)), nullptr);
  EXPECT_EQ(cache.Find(KeyOf(300)), nullptr) << "to spare some room";
  EXPECT_FALSE(cache.WouldLast(SamplesOf(300)));
  EXPECT_TRUE(cache.WouldLast(SamplesOf(299)));
  // From now on only units that no stream needs are evicted.
  std::uint32_t next = 10;
  for (int i = 0; i < 24; ++i) {
    for (const std::uint32_t number : {50U, 100U, 200U}) {
      if (cache.Find(KeyOf(number))) next_use_[number] = kNeverUsed;
    }
    for (std::uint32_t number = 10; number < next; ++number) next_use_[number] = kNeverUsed;
    ASSERT_TRUE(Get(cache, next++).has_value());
  }
  EXPECT_TRUE(cache.WouldLast(SamplesOf(1'000'000)));
}

TEST_F(DecodedCacheTest, WhatIsNeededFarthestGoes) {
  DecodedCache cache = Make(5'000);
  for (std::uint32_t i = 1; i <= 5; ++i) ASSERT_TRUE(Get(cache, i * 10).has_value());
  EXPECT_EQ(cache.stats().units, 5U);
  ASSERT_TRUE(Get(cache, 5).has_value());
  EXPECT_EQ(cache.Find(KeyOf(50)), nullptr);
  EXPECT_NE(cache.Find(KeyOf(5)), nullptr);
  EXPECT_NE(cache.Find(KeyOf(10)), nullptr);
  EXPECT_LE(cache.stats().used_bytes, 5'000U);
  EXPECT_GE(cache.stats().evictions, 1U);
}

TEST_F(DecodedCacheTest, WhatIsNeededLaterThanAllIsNotKept) {
  DecodedCache cache = Make(3'000);
  for (std::uint32_t i = 1; i <= 3; ++i) ASSERT_TRUE(Get(cache, i).has_value());
  EXPECT_FALSE(cache.WouldKeep(SamplesOf(9), kUnitBytes));
  ASSERT_TRUE(Get(cache, 9).has_value());
  EXPECT_EQ(cache.Find(KeyOf(9)), nullptr);
  EXPECT_EQ(cache.stats().evictions, 0U);
  EXPECT_TRUE(cache.WouldKeep(SamplesOf(0), kUnitBytes));
  EXPECT_EQ(cache.stats().units, 3U) << "asking drops nothing";
}

TEST_F(DecodedCacheTest, NothingIsDroppedForWhatDoesNotFitAnyway) {
  DecodedCache cache = Make(3'000);
  for (std::uint32_t i = 1; i <= 3; ++i) ASSERT_TRUE(Get(cache, i).has_value());
  ASSERT_TRUE(Get(cache, 0, 3'000).has_value());
  next_use_[2] = 0;  // as soon as the new unit
  next_use_[3] = 0;
  ASSERT_TRUE(Get(cache, 0, 2'000).has_value());
  EXPECT_EQ(cache.stats().units, 3U);
}

// Units that no stream needs any more are evicted, also if they are so small that one search does
// not find enough of them for a large new unit.
TEST_F(DecodedCacheTest, WhatIsNeverNeededAgainGoesInTheEnd) {
  DecodedCache cache = Make(2'000 * 1'000);
  for (std::uint32_t i = 0; i < 2'000; ++i) {
    ASSERT_TRUE(Get(cache, i).has_value());
    next_use_[i] = kNeverUsed;
  }
  next_use_[5'000] = 1;
  for (int i = 0; i < 20 && !cache.Find(KeyOf(5'000)); ++i) {
    ASSERT_TRUE(Get(cache, 5'000, 500'000).has_value());
  }
  EXPECT_NE(cache.Find(KeyOf(5'000)), nullptr);
}

TEST_F(DecodedCacheTest, WithoutCapacityNothingIsKept) {
  DecodedCache cache = Make(0);
  EXPECT_FALSE(cache.WouldKeep(SamplesOf(1), 1));
  ASSERT_TRUE(Get(cache, 1).has_value());
  ASSERT_TRUE(Get(cache, 1).has_value());
  EXPECT_EQ(decodings_, 2);
  EXPECT_EQ(cache.stats().used_bytes, 0U);
}

TEST_F(DecodedCacheTest, ManyUnitsComeAndGoWithinTheCapacity) {
  DecodedCache cache = Make(2'000 * 1'000);
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    next_use_[i] = (i * 7919) % 10'007;
    ASSERT_TRUE(Get(cache, i).has_value());
    ASSERT_LE(cache.stats().used_bytes, 2'000U * 1'000);
  }
  // The index is still right: every kept unit has its own number.
  std::uint64_t found = 0;
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    const UnitRef unit = cache.Find(KeyOf(i));
    if (!unit) continue;
    ++found;
    ASSERT_EQ(unit->Sample(0).front(), static_cast<std::byte>(i));
  }
  EXPECT_EQ(found, cache.stats().units);
  EXPECT_GT(found, 1'500U);
}

TEST_F(DecodedCacheTest, AFailureIsTheCallersAlone) {
  DecodedCache cache = Make(10'000);
  const Result<UnitRef> failed = cache.Get(KeyOf(1), SamplesOf(1), []() -> Result<DecodedUnit> {
    return Error(ErrorCode::kDataLoss, "bad bytes");
  });
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), ErrorCode::kDataLoss);
  ASSERT_TRUE(Get(cache, 1).has_value());
  EXPECT_EQ(cache.stats().decoded, 1U);
}

// One thread decodes while three more want the same unit: they wait and share it, also if it is
// not kept.
TEST_F(DecodedCacheTest, OneDecodingServesAllWhoWaitForIt) {
  DecodedCache cache = Make(0);
  std::mutex mutex;
  std::condition_variable changed;
  bool has_begun = false;
  bool may_end = false;
  std::thread first([&] {
    const Result<UnitRef> unit =
        cache.Get(KeyOf(7), SamplesOf(7), [&]() -> Result<DecodedUnit> {
          std::unique_lock lock(mutex);
          has_begun = true;
          changed.notify_all();
          changed.wait(lock, [&] { return may_end; });
          ++decodings_;
          return Unit(7, 64);
        });
    EXPECT_TRUE(unit.has_value());
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return has_begun; });
  }
  std::atomic<int> served = 0;
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      const Result<UnitRef> unit = Get(cache, 7, 64);
      if (unit.has_value() && (*unit)->Sample(0).front() == std::byte{7}) ++served;
    });
  }
  {
    std::lock_guard lock(mutex);
    may_end = true;
  }
  changed.notify_all();
  first.join();
  for (std::thread& thread : others) thread.join();
  EXPECT_EQ(served, 3);
  // Threads that came during the decoding shared it; later ones decoded the unit again.
  const DecodedCache::Stats stats = cache.stats();
  EXPECT_EQ(stats.shared + stats.decoded, 4U);
  EXPECT_EQ(static_cast<std::uint64_t>(decodings_), stats.decoded);
}

TEST_F(DecodedCacheTest, AfterAnothersFailureTheWaiterDecodesItself) {
  DecodedCache cache = Make(10'000);
  std::mutex mutex;
  std::condition_variable changed;
  bool has_begun = false;
  bool may_fail = false;
  std::thread first([&] {
    const Result<UnitRef> unit =
        cache.Get(KeyOf(2), SamplesOf(2), [&]() -> Result<DecodedUnit> {
          std::unique_lock lock(mutex);
          has_begun = true;
          changed.notify_all();
          changed.wait(lock, [&] { return may_fail; });
          return Error(ErrorCode::kDataLoss, "bad bytes");
        });
    EXPECT_FALSE(unit.has_value());
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return has_begun; });
  }
  std::thread second([&] { EXPECT_TRUE(Get(cache, 2).has_value()); });
  {
    std::lock_guard lock(mutex);
    may_fail = true;
  }
  changed.notify_all();
  first.join();
  second.join();
  EXPECT_EQ(decodings_, 1);
}

}  // namespace
}  // namespace forebay::fetch
