// ByteReader never reads past its span, whatever the bytes; ByteWriter is its inverse.
#include "proto/contract/byte_cursor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "proto/contract/order_mix.h"

namespace forebay {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<unsigned> values) {
  std::vector<std::byte> bytes;
  for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(ByteCursorTest, IntegersAreLittleEndian) {
  ByteWriter writer;
  writer.Le(std::uint32_t{0x0102'0304});
  EXPECT_EQ(writer.Release(), Bytes({4, 3, 2, 1}));
  const auto bytes = Bytes({0xEF, 0xCD, 0xAB, 0x89, 0x67, 0x45, 0x23, 0x01});
  EXPECT_EQ(ByteReader(bytes).ReadLe<std::uint64_t>(), 0x0123'4567'89AB'CDEFULL);
  EXPECT_EQ(ByteReader(bytes).ReadLe<std::uint16_t>(), 0xCDEF);
  EXPECT_EQ(ByteReader(bytes).ReadLe<std::uint8_t>(), 0xEF);
}

TEST(ByteCursorTest, EverythingWrittenIsReadBack) {
  ByteWriter writer;
  writer.Le(std::uint8_t{7});
  writer.Varint(300);
  writer.String("fields");
  writer.AlignTo(16);
  EXPECT_EQ(writer.size(), 16U);
  writer.Le(~std::uint64_t{0});
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.ReadLe<std::uint8_t>(), 7);
  EXPECT_EQ(reader.ReadVarint(), 300U);
  EXPECT_EQ(reader.ReadString(6), "fields");
  EXPECT_EQ(reader.Take(16 - reader.offset()).size(), 6U);
  EXPECT_EQ(reader.ReadLe<std::uint64_t>(), ~0ULL);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0U);
}

TEST(ByteCursorTest, VarintsOfEveryLengthRoundTrip) {
  for (unsigned bit = 0; bit < 64; ++bit) {
    for (const std::uint64_t value : {(1ULL << bit) - 1, 1ULL << bit, ~0ULL >> bit}) {
      ByteWriter writer;
      writer.Varint(value);
      ByteReader reader(writer.bytes());
      ASSERT_EQ(reader.ReadVarint(), value);
      ASSERT_TRUE(reader.ok());
      ASSERT_EQ(reader.remaining(), 0U);
    }
  }
}

TEST(ByteCursorTest, RefusesVarintsThatOverflow) {
  const auto eleven = Bytes({0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0});
  const auto high = Bytes({0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2});
  for (const auto& bytes : {eleven, high}) {
    ByteReader reader(bytes);
    EXPECT_EQ(reader.ReadVarint(), 0U);
    EXPECT_FALSE(reader.ok());
  }
}

TEST(ByteCursorTest, RefusesEveryTruncationOfAnInteger) {
  const auto bytes = Bytes({1, 2, 3, 4, 5, 6, 7, 8});
  for (std::size_t length = 0; length < 8; ++length) {
    ByteReader reader{std::span(bytes).first(length)};
    EXPECT_EQ(reader.ReadLe<std::uint64_t>(), 0U);
    EXPECT_FALSE(reader.ok());
  }
}

TEST(ByteCursorTest, StaysFailedAfterTheFirstFailure) {
  const auto bytes = Bytes({1, 2, 3});
  ByteReader reader(bytes);
  EXPECT_EQ(reader.ReadLe<std::uint32_t>(), 0U);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.ReadLe<std::uint8_t>(), 0U);
  EXPECT_EQ(reader.ReadVarint(), 0U);
  EXPECT_TRUE(reader.Take(0).empty());
  EXPECT_TRUE(reader.ReadString(10).empty());
  EXPECT_EQ(reader.offset(), 0U);
}

TEST(ByteCursorTest, RefusesLengthsThatWouldWrap) {
  const auto bytes = Bytes({1, 2, 3});
  ByteReader reader(bytes);
  EXPECT_EQ(reader.ReadLe<std::uint8_t>(), 1);
  EXPECT_TRUE(reader.Take(std::numeric_limits<std::size_t>::max()).empty());
  EXPECT_FALSE(reader.ok());
}

TEST(ByteCursorTest, RefusesStringsBeyondTheLimitOrTheEnd) {
  ByteWriter writer;
  writer.String("seven77");
  ByteReader within(writer.bytes());
  EXPECT_EQ(within.ReadString(7), "seven77");
  ByteReader above(writer.bytes());
  EXPECT_TRUE(above.ReadString(6).empty());
  EXPECT_FALSE(above.ok());
  ByteReader cut(writer.bytes().first(7));
  EXPECT_TRUE(cut.ReadString(7).empty());
  EXPECT_FALSE(cut.ok());
}

// Random reads of random bytes under the sanitizers: offset and remaining always add up.
TEST(ByteCursorTest, RandomReadsNeverLeaveTheSpan) {
  for (std::uint64_t test_case = 0; test_case < 10'000; ++test_case) {
    std::vector<std::byte> bytes(Mix64(test_case) % 40);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(DrawWord64(test_case, i) & 0xFF);
    }
    ByteReader reader(bytes);
    for (std::uint64_t i = 0; reader.ok() && i < 100; ++i) {
      switch (DrawWord64(~test_case, i) % 5) {
        case 0: reader.ReadLe<std::uint8_t>(); break;
        case 1: reader.ReadLe<std::uint64_t>(); break;
        case 2: reader.ReadVarint(); break;
        case 3: reader.ReadString(20); break;
        default: reader.Take(DrawWord64(test_case, ~i) % 9); break;
      }
      ASSERT_EQ(reader.offset() + reader.remaining(), bytes.size()) << "case " << test_case;
    }
  }
}

}  // namespace
}  // namespace forebay
