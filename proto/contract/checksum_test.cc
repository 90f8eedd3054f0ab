// Checksums cover bytes and identity: published values, streams, every flipped bit.
#include "proto/contract/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace forebay {
namespace {

std::vector<std::byte> Pattern(std::size_t length) {
  std::vector<std::byte> bytes(length);
  for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(i * 151 + i / 7);
  return bytes;
}

ChecksumIdentity IdentityOf(const std::vector<std::byte>& bytes) {
  return {.dataset = 3, .object = 5, .offset = 4096, .length = bytes.size()};
}

// XXH3-64 of the empty input, as xxHash publishes it: checksums outlive the library version.
TEST(ChecksumTest, PlainChecksumIsPublishedXxh3) {
  EXPECT_EQ(Checksum(std::span<const std::byte>()), 0x2D06800538D394C2ULL);
}

TEST(ChecksumTest, EveryFlippedBitChangesIt) {
  for (const std::size_t length : {1U, 16U, 17U, 128U, 129U, 240U, 241U, 700U}) {
    std::vector<std::byte> bytes = Pattern(length);
    const ChecksumIdentity identity = IdentityOf(bytes);
    const std::uint64_t original = Checksum(identity, bytes);
    for (std::size_t bit = 0; bit < 8 * length; ++bit) {
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      ASSERT_NE(Checksum(identity, bytes), original) << "length " << length << " bit " << bit;
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
    ASSERT_EQ(Checksum(identity, bytes), original);
  }
}

TEST(ChecksumTest, EveryPartOfTheIdentityChangesIt) {
  const std::vector<std::byte> bytes = Pattern(1000);
  const ChecksumIdentity identity = IdentityOf(bytes);
  const std::uint64_t original = Checksum(identity, bytes);
  EXPECT_NE(original, Checksum(bytes));
  for (std::uint64_t bit = 0; bit < 64; ++bit) {
    ChecksumIdentity other = identity;
    other.dataset ^= 1ULL << bit;
    EXPECT_NE(Checksum(other, bytes), original);
    other = identity;
    other.object ^= 1ULL << bit;
    EXPECT_NE(Checksum(other, bytes), original);
    other = identity;
    other.offset ^= 1ULL << bit;
    EXPECT_NE(Checksum(other, bytes), original);
  }
}

// Zeros of one place are not zeros of another, even where there are none.
TEST(ChecksumTest, EmptyRangesOfDifferentPlacesDiffer) {
  EXPECT_NE(Checksum(ChecksumIdentity{.offset = 1}, {}), Checksum(ChecksumIdentity{}, {}));
}

TEST(ChecksumStreamTest, AgreesWithOneShotForEverySplit) {
  const std::vector<std::byte> bytes = Pattern(700);
  const ChecksumIdentity identity = IdentityOf(bytes);
  ChecksumStream stream(identity);
  for (std::size_t split = 0; split <= bytes.size(); ++split) {
    stream.Reset(identity);
    stream.Update(std::span(bytes).first(split));
    stream.Update(std::span(bytes).subspan(split));
    ASSERT_EQ(stream.Finish(), Checksum(identity, bytes)) << split;
  }
}

TEST(ChecksumStreamTest, AgreesWithOneShotForManySmallPiecesOfALongInput) {
  const std::vector<std::byte> bytes = Pattern(100'000);
  const ChecksumIdentity identity = IdentityOf(bytes);
  ChecksumStream stream(identity);
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t piece = std::min<std::size_t>(1 + done % 977, bytes.size() - done);
    stream.Update(std::span(bytes).subspan(done, piece));
    done += piece;
  }
  EXPECT_EQ(stream.Finish(), Checksum(identity, bytes));
  EXPECT_EQ(stream.Finish(), Checksum(identity, bytes)) << "Finish does not consume";
}

TEST(ChecksumDeathTest, RefusesAnIdentityOfAnotherLength) {
  const std::vector<std::byte> bytes = Pattern(10);
  EXPECT_DEATH(static_cast<void>(Checksum({.length = 9}, bytes)), "CHECK failed");
}

}  // namespace
}  // namespace forebay
