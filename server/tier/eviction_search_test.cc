// Tests which extents a search finds, and in which order, in an index that the test fills itself.
#include "server/tier/eviction_search.h"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "server/tier/testing/tier_test_fixture.h"

namespace forebay::tier::eviction_search_test {

using testing::KeyOfNumber;
using Among = EvictionSearch::Among;
using Numbers = std::vector<std::uint32_t>;

class EvictionSearchTest : public ::testing::Test {
 protected:
  Residency& Add(std::uint32_t number, std::uint64_t next_use) {
    next_uses_[number] = next_use;
    const MutexLock lock(mutex_);
    return index_.FindOrAdd(KeyOfNumber(number));
  }
  // An extent in RAM. It takes no memory, and its pins are counted.
  std::shared_ptr<ResidentExtent> AddToRam(std::uint32_t number, std::uint64_t next_use,
                                           bool is_guest = false) {
    Residency& entry = Add(number, next_use);
    entry.ram = std::make_shared<ResidentExtent>();
    entry.ram->memory_signal = &signal_;
    entry.is_guest_in_ram = is_guest;
    return entry.ram;
  }
  void AddToSsd(std::uint32_t number, std::uint64_t next_use, bool is_guest = false) {
    Residency& entry = Add(number, next_use);
    entry.is_on_ssd = true;
    entry.is_guest_on_ssd = is_guest;
  }
  static Numbers NumbersOf(const std::vector<EvictionSearch::Candidate>& candidates) {
    Numbers numbers;
    for (const auto& candidate : candidates) numbers.push_back(candidate.key.extent.value());
    return numbers;
  }

  MemorySignal signal_;
  Mutex mutex_;
  ResidentIndex index_;
  std::map<std::uint32_t, std::uint64_t> next_uses_;
  const ResidentWalk walk_{mutex_, index_};
  const EvictionSearch search_{
      walk_, [this](const ExtentKey& key, std::uint64_t) {
        return next_uses_.at(key.extent.value());
      }};
};

TEST_F(EvictionSearchTest, WhatIsNeededLastComesFirstAndGuestsBeforeTheirEquals) {
  AddToRam(1, 20);
  AddToRam(2, 30);
  AddToRam(3, 30, /*is_guest=*/true);
  AddToRam(4, 40);
  EXPECT_EQ(NumbersOf(search_.InRam(Among::kAll, 0, false)), (Numbers{4, 3, 2, 1}));
}

TEST_F(EvictionSearchTest, NothingThatIsUsedOrNeededSoonerIsFound) {
  const ExtentRef pin = AddToRam(1, 50);
  AddToRam(2, 10);
  AddToRam(3, 30);
  AddToSsd(4, 50);
  EXPECT_EQ(NumbersOf(search_.InRam(Among::kAll, 30, false)), (Numbers{3}));
}

TEST_F(EvictionSearchTest, OnlyGuestsWhereHomesAreSpared) {
  AddToRam(1, 50);
  AddToRam(2, 40, /*is_guest=*/true);
  EXPECT_EQ(NumbersOf(search_.InRam(Among::kAll, 0, /*spares_homes=*/true)), (Numbers{2}));
}

TEST_F(EvictionSearchTest, TheRoundOfGuestsFindsThemOnTheTierWhereTheyAreGuests) {
  AddToRam(1, 50);
  AddToRam(2, 40, /*is_guest=*/true);
  AddToSsd(3, 60);
  AddToSsd(4, 30, /*is_guest=*/true);
  EXPECT_EQ(NumbersOf(search_.InRam(Among::kGuests, 0, false)), (Numbers{2}));
  EXPECT_EQ(NumbersOf(search_.OnSsd(Among::kGuests, 0)), (Numbers{4}));
}

// There is space on SSD for all that is at home there, so none of it goes for an equal.
TEST_F(EvictionSearchTest, OnSsdCopiesGoFirstAndHomesOnlyIfTheyAreNeededLater) {
  AddToSsd(1, 30);
  AddToSsd(2, 30, /*is_guest=*/true);
  AddToRam(3, 30);
  AddToSsd(3, 30);
  AddToSsd(4, 31);
  EXPECT_EQ(NumbersOf(search_.OnSsd(Among::kAll, 30)), (Numbers{4, 3, 2}));
}

TEST_F(EvictionSearchTest, ACacheWithManyExtentsIsSampledFirst) {
  for (std::uint32_t i = 0; i < 1024; ++i) AddToRam(i, i);
  ASSERT_EQ(search_.Rounds().size(), 1U);
  EXPECT_EQ(search_.Rounds().front(), Among::kAll);
  for (std::uint32_t i = 1024; i < 4096; ++i) AddToRam(i, i);
  const auto rounds = search_.Rounds();
  EXPECT_EQ(std::vector<Among>(rounds.begin(), rounds.end()),
            (std::vector<Among>{Among::kSample, Among::kGuests, Among::kAll}));
  EXPECT_EQ(search_.InRam(Among::kSample, 0, false).size(), 1024U);
  const Numbers all = NumbersOf(search_.InRam(Among::kAll, 0, false));
  ASSERT_EQ(all.size(), 4096U);
  EXPECT_EQ(all.front(), 4095U);
  EXPECT_EQ(all.back(), 0U);
}

}  // namespace forebay::tier::eviction_search_test
