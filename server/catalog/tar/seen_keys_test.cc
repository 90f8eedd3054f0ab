// Keys that occur twice are found, also between other keys of the same hash, in memory and merged
// from sorted runs. An archive whose keys collide by intent costs no unbounded time.
#include "server/catalog/tar/seen_keys.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::catalog {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kInMemory = 1 << 20;
constexpr std::size_t kTwoKeysARun = 2 * sizeof(SeenKey);

struct NamedKey {
  std::uint64_t hash = 0;
  std::string name;
};

// The offsets of the samples of each pair with equal names, of keys that lie at offsets 0, 1, ...
std::vector<std::pair<std::uint64_t, std::uint64_t>> EqualNames(const std::vector<NamedKey>& keys,
                                                                std::size_t table_bytes) {
  SeenKeys seen({.directory = {}, .table_bytes = table_bytes});
  for (std::uint64_t i = 0; i < keys.size(); ++i) {
    EXPECT_TRUE(seen.Add({.hash = keys[i].hash, .record_at = i, .offset = i}).has_value());
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> equal;
  const Status taken =
      seen.TakeEqualHashes([&](const SeenKey& before, const SeenKey& after) -> Status {
        EXPECT_EQ(before.hash, after.hash);
        EXPECT_LT(before.offset, after.offset);
        if (keys[before.record_at].name == keys[after.record_at].name) {
          equal.emplace_back(before.offset, after.offset);
        }
        return {};
      });
  EXPECT_TRUE(taken.has_value());
  return equal;
}

TEST(SeenKeysTest, FindsAKeyThatOccursTwice) {
  const std::vector<NamedKey> keys = {{9, "a"}, {3, "b"}, {5, "c"}, {9, "a"}, {1, "d"}};
  for (const std::size_t table_bytes : {kInMemory, kTwoKeysARun, std::size_t{0}}) {
    EXPECT_THAT(EqualNames(keys, table_bytes), ElementsAre(std::pair(0U, 3U))) << table_bytes;
  }
}

TEST(SeenKeysTest, FindsItBetweenOtherKeysOfItsHash) {
  const std::vector<NamedKey> keys = {{7, "a"}, {7, "b"}, {2, "x"}, {7, "c"}, {7, "a"}, {7, "d"}};
  for (const std::size_t table_bytes : {kInMemory, kTwoKeysARun}) {
    EXPECT_THAT(EqualNames(keys, table_bytes), ElementsAre(std::pair(0U, 4U))) << table_bytes;
  }
}

TEST(SeenKeysTest, FindsNothingWhereOnlyHashesAreEqual) {
  const std::vector<NamedKey> keys = {{7, "a"}, {7, "b"}, {7, "c"}, {8, "e"}, {7, "d"}};
  for (const std::size_t table_bytes : {kInMemory, kTwoKeysARun}) {
    EXPECT_THAT(EqualNames(keys, table_bytes), IsEmpty()) << table_bytes;
  }
}

TEST(SeenKeysTest, ForgetsTheKeysThatItHasShown) {
  SeenKeys seen({.directory = {}, .table_bytes = kTwoKeysARun});
  int pairs = 0;
  const auto count = [&](const SeenKey&, const SeenKey&) -> Status {
    ++pairs;
    return {};
  };
  for (int archive = 0; archive < 2; ++archive) {
    for (std::uint64_t i = 0; i < 5; ++i) {
      EXPECT_TRUE(seen.Add({.hash = i, .record_at = i, .offset = i}).has_value());
    }
    EXPECT_TRUE(seen.TakeEqualHashes(count).has_value());
  }
  EXPECT_EQ(pairs, 0);
}

TEST(SeenKeysTest, StopsAtTheFirstErrorOfItsVisitor) {
  SeenKeys seen({.directory = {}, .table_bytes = kInMemory});
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(seen.Add({.hash = 1, .record_at = i, .offset = i}).has_value());
  }
  int calls = 0;
  const Status taken = seen.TakeEqualHashes([&](const SeenKey&, const SeenKey&) -> Status {
    ++calls;
    return Error(ErrorCode::kInvalidArgument, "duplicate");
  });
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().message(), "duplicate");
  EXPECT_EQ(calls, 1);
}

TEST(SeenKeysTest, RefusesMoreKeysOfOneHashThanItCompares) {
  for (const std::size_t more : {std::size_t{0}, std::size_t{1}}) {
    SeenKeys seen({.directory = {}, .table_bytes = kInMemory});
    for (std::uint64_t i = 0; i < SeenKeys::kEqualHashesMax + more; ++i) {
      EXPECT_TRUE(seen.Add({.hash = 1, .record_at = i, .offset = i}).has_value());
    }
    const Status taken = seen.TakeEqualHashes(
        [](const SeenKey&, const SeenKey&) -> Status { return {}; });
    EXPECT_EQ(taken.has_value(), more == 0);
    if (more == 0) continue;
    EXPECT_EQ(taken.error().code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(taken.error().message(), HasSubstr("64 different keys have one hash"));
  }
}

}  // namespace
}  // namespace forebay::catalog
