// Checksums cover bytes and identity: published values, streams, every flipped bit.
#include "proto/contract/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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

struct PublishedChecksum {
  std::size_t length;
  std::uint64_t plain;
  std::uint64_t with_identity;
};

// Of Pattern and IdentityOf, computed with xxHash alone: one length for each of XXH3's branches.
// They lie on SSD and travel between nodes, so they outlive the library's version.
constexpr std::array<PublishedChecksum, 10> kPublished = {{
    {0, 0x2D06800538D394C2ULL, 0x41C4E283E34FFAF4ULL},
    {1, 0xC44BDFF4074EECDBULL, 0xD734EED3F27C3699ULL},
    {16, 0x415AE021027C5BF2ULL, 0xFC29C1BFCAF2AC02ULL},
    {17, 0x8C522CC84E759B3EULL, 0xE6A144391D5F4EAFULL},
    {128, 0x56897B4F9F0F4E70ULL, 0xD805C50BB5CEBB31ULL},
    {129, 0xCED9BA552F1BFF17ULL, 0x09960CE10F87B54AULL},
    {240, 0xFAC5A936B0B5C11DULL, 0xB1BE8F7A8864BD81ULL},
    {241, 0x373CBF0D78EBA447ULL, 0x1F71C0972A23E42EULL},
    {1000, 0x2BF78C57D63BD6D6ULL, 0x0132EA9AEB3BAF83ULL},
    {100'000, 0xC341CDB334092CB7ULL, 0x5F155087261E2579ULL},
}};

TEST(ChecksumTest, ValuesArePublished) {
  for (const PublishedChecksum& published : kPublished) {
    const std::vector<std::byte> bytes = Pattern(published.length);
    EXPECT_EQ(Checksum(bytes), published.plain) << published.length;
    EXPECT_EQ(Checksum(IdentityOf(bytes), bytes), published.with_identity) << published.length;
  }
  const std::vector<std::byte> bytes = Pattern(1000);
  const ChecksumIdentity wide = {.dataset = 0x0123'4567'89AB'CDEFULL,
                                 .object = 0xFEDC'BA98'7654'3210ULL,
                                 .offset = 1ULL << 47,
                                 .length = bytes.size()};
  EXPECT_EQ(Checksum(wide, bytes), 0x8967'13E8'5415'AB8EULL);
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

TEST(ChecksumStreamTest, AgreesWithOneShotOfPlainBytes) {
  const std::vector<std::byte> bytes = Pattern(700);
  for (std::size_t split = 0; split <= bytes.size(); ++split) {
    ChecksumStream stream;
    stream.Update(std::span(bytes).first(split));
    stream.Update(std::span(bytes).subspan(split));
    ASSERT_EQ(stream.Finish(), Checksum(bytes)) << split;
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
