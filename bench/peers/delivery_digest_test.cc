#include "bench/peers/delivery_digest.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "bench/peers/run_report.h"

namespace forebay::bench {
namespace {

std::vector<std::byte> Bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

// The definition, word by word.
std::uint64_t SlowSum(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    sum += std::to_integer<std::uint64_t>(bytes[i]) << (8 * (i % 8));
  }
  return sum;
}

TEST(ByteSum, EqualsItsDefinitionAtEveryLength) {
  const auto bytes = Bytes(300);
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    const auto part = std::span(bytes).first(length);
    EXPECT_EQ(ByteSum(part), SlowSum(part)) << length;
  }
}

TEST(ByteSum, DoesNotDependOnWhereASampleIsCut) {
  const auto bytes = Bytes(200);
  for (std::size_t first = 0; first <= bytes.size(); ++first) {
    for (std::size_t second = first; second <= bytes.size(); second += 13) {
      ByteSummer summer;
      summer.Add(std::span(bytes).first(first));
      summer.Add(std::span(bytes).subspan(first, second - first));
      summer.Add(std::span(bytes).subspan(second));
      ASSERT_EQ(summer.Finish(), ByteSum(bytes)) << first << ' ' << second;
    }
  }
}

TEST(DeliveryDigest, PartsOfAnEpochAddUpAndASwapOfTwoPositionsShows) {
  DeliveryDigest whole;
  DeliveryDigest first;
  DeliveryDigest second;
  DeliveryDigest swapped;
  for (std::uint64_t i = 0; i < 100; ++i) {
    whole.AddPlace(i, 3 * i, i * i);
    (i % 3 == 0 ? first : second).AddPlace(i, 3 * i, i * i);
    const std::uint64_t other = i < 2 ? 1 - i : i;
    swapped.AddPlace(i, 3 * other, other * other);
  }
  first.Merge(second);
  EXPECT_EQ(first.places, whole.places);
  EXPECT_NE(swapped.places, whole.places);
}

TEST(DeliveryDigest, IgnoresOrderButNotMultiplicity) {
  DeliveryDigest forward;
  DeliveryDigest backward;
  DeliveryDigest repeated;
  for (std::uint64_t i = 0; i < 100; ++i) {
    forward.AddSum(i, 8, i * i);
    backward.AddSum(99 - i, 8, (99 - i) * (99 - i));
    repeated.AddSum(i == 50 ? 49 : i, 8, i == 50 ? 49 * 49 : i * i);
  }
  EXPECT_EQ(forward.sums, backward.sums);
  EXPECT_NE(forward.sums, repeated.sums);
}

TEST(DeliveryDigest, SeesContentsSwappedBetweenSamples) {
  DeliveryDigest right;
  right.AddContent(1, 10);
  right.AddContent(2, 20);
  DeliveryDigest swapped;
  swapped.AddContent(1, 20);
  swapped.AddContent(2, 10);
  EXPECT_NE(right.content, swapped.content);
}

// digest_test.py expects the same number of the same samples.
TEST(DeliveryDigest, HasAGoldenValue) {
  const auto bytes = Bytes(100);
  DeliveryDigest digest;
  for (std::uint64_t i = 0; i < 10; ++i) {
    const auto sample = std::span(bytes).subspan(i, 61);
    digest.AddSum(i, sample.size(), ByteSum(sample));
    digest.AddContent(i, XXH3_64bits(sample.data(), sample.size()));
  }
  EXPECT_EQ(digest.sums, 14684666601523854719U);
  EXPECT_EQ(digest.content, 7705781477531551675U);
}

TEST(WaitReport, TakesPercentilesOfWhatWasMeasured) {
  std::vector<double> waits;
  for (int i = 0; i < 100; ++i) waits.push_back(100 - i);
  const WaitReport report = SummariseWaits(waits);
  EXPECT_EQ(report.first_ms, 100);
  EXPECT_EQ(report.p50_ms, 51);
  EXPECT_EQ(report.p99_ms, 100);
  EXPECT_EQ(report.max_ms, 100);
  EXPECT_EQ(report.total_ms, 5050);
  std::vector<double> none;
  EXPECT_EQ(SummariseWaits(none).max_ms, 0);
}

}  // namespace
}  // namespace forebay::bench
