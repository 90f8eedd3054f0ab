// Encodings of OrderSpec and PositionToken under hostile bytes, and their validation.
#include "proto/contract/order_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/order_mix.h"
#include "proto/contract/order_token.h"

namespace forebay {
namespace {

using ::testing::HasSubstr;

OrderSpec FullSpec() {
  return {.seed = 0x0123'4567'89AB'CDEF,
          .sample_count = 60'000,
          .selection_fingerprint = 42,
          .tail = TailPolicy::kPad,
          .shape = {OrderMode::kBlock, 256, 64},
          .first_epoch_shape = OrderShape{.mode = OrderMode::kSequential}};
}

PositionToken FullToken() {
  return {.catalog_fingerprint = 77,
          .order = FullSpec(),
          .global_batch = 512,
          .next_epoch = EpochId(3),
          .next_step = StepId(118)};
}

// Overwrites `bytes` little-endian bytes at `offset`.
template <typename Array>
Array With(Array encoded, std::size_t offset, std::size_t bytes, std::uint64_t value) {
  for (std::size_t i = 0; i < bytes; ++i) {
    encoded[offset + i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
  }
  return encoded;
}

// A token whose checksum is right whatever its body says.
std::array<std::byte, kPositionTokenBytes> Resealed(
    std::array<std::byte, kPositionTokenBytes> bytes) {
  const auto body = std::span(bytes).first(kPositionTokenBytes - 8);
  return With(bytes, kPositionTokenBytes - 8, 8, FoldWords(0x314E'454B'4F54'4246ULL, body));
}

TEST(OrderSpecTest, EncodingRoundTrips) {
  OrderSpec plain{.seed = ~0ULL, .sample_count = limits::kSampleCountMax};
  for (const OrderSpec& spec : {plain, FullSpec(), OrderSpec{.sample_count = 1}}) {
    const auto parsed = OrderSpec::Parse(spec.Encode());
    ASSERT_TRUE(parsed.has_value()) << parsed.error().ToString();
    EXPECT_EQ(*parsed, spec);
    EXPECT_EQ(parsed->Encode(), spec.Encode());
    EXPECT_EQ(parsed->Fingerprint(), spec.Fingerprint());
  }
}

TEST(OrderSpecTest, EveryFieldChangesTheFingerprint) {
  const OrderSpec base = FullSpec();
  const std::vector<std::function<void(OrderSpec&)>> changes = {
      [](OrderSpec& s) { s.seed ^= 1; },
      [](OrderSpec& s) { ++s.sample_count; },
      [](OrderSpec& s) { ++s.selection_fingerprint; },
      [](OrderSpec& s) { s.tail = TailPolicy::kDrop; },
      [](OrderSpec& s) { ++s.shape.block_samples; },
      [](OrderSpec& s) { ++s.shape.window_runs; },
      [](OrderSpec& s) { s.shape = {}; },
      [](OrderSpec& s) { s.first_epoch_shape.reset(); },
      [](OrderSpec& s) { s.first_epoch_shape->mode = OrderMode::kGlobal; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    OrderSpec changed = base;
    changes[i](changed);
    EXPECT_NE(changed.Fingerprint(), base.Fingerprint()) << "change " << i;
  }
}

TEST(OrderSpecTest, RejectsEveryTruncationAndExtension) {
  const auto encoded = FullSpec().Encode();
  std::vector<std::byte> bytes(encoded.begin(), encoded.end());
  bytes.resize(2 * kOrderSpecBytes);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    if (length == kOrderSpecBytes) continue;
    const auto parsed = OrderSpec::Parse(std::span(bytes).first(length));
    ASSERT_FALSE(parsed.has_value()) << length;
    EXPECT_EQ(parsed.error().code(), ErrorCode::kDataLoss);
  }
}

struct BadField {
  const char* what;
  std::size_t offset;
  std::size_t bytes;
  std::uint64_t value;
  ErrorCode code;
  const char* message;
};

TEST(OrderSpecTest, RejectsEveryFieldOutOfRangeByName) {
  const std::uint64_t over = limits::kSampleCountMax + 1;
  using enum ErrorCode;
  const std::vector<BadField> fields = {
      {"magic", 0, 4, 0, kInvalidArgument, "OrderSpec.magic"},
      {"version 0", 4, 2, 0, kFailedPrecondition, "OrderSpec.version is 0"},
      {"version 2", 4, 2, 2, kFailedPrecondition, "this build reads version 1"},
      {"tail 0", 6, 1, 0, kInvalidArgument, "OrderSpec.tail"},
      {"tail 4", 6, 1, 4, kInvalidArgument, "OrderSpec.tail"},
      {"tail 255", 6, 1, 255, kInvalidArgument, "OrderSpec.tail"},
      {"reserved", 7, 1, 1, kInvalidArgument, "OrderSpec.reserved"},
      {"n 0", 16, 8, 0, kOutOfRange, "OrderSpec.sample_count is 0"},
      {"n over", 16, 8, over, kOutOfRange, "OrderSpec.sample_count"},
      {"n max", 16, 8, ~0ULL, kOutOfRange, "OrderSpec.sample_count"},
      {"mode 0", 32, 4, 0, kInvalidArgument, "OrderSpec.shape.mode"},
      {"mode 4", 32, 4, 4, kUnimplemented, "partial is reserved"},
      {"mode 5", 32, 4, 5, kUnimplemented, "weighted is reserved"},
      {"mode 6", 32, 4, 6, kInvalidArgument, "OrderSpec.shape.mode"},
      {"mode 258, 2 in its low byte", 32, 4, 258, kInvalidArgument, "OrderSpec.shape.mode"},
      {"global with b", 32, 4, 1, kInvalidArgument, "OrderSpec.shape.block_samples"},
      {"first mode 5", 36, 4, 5, kUnimplemented, "OrderSpec.first_epoch_shape.mode"},
      {"first mode 7", 36, 4, 7, kInvalidArgument, "OrderSpec.first_epoch_shape.mode"},
      {"first block without b", 36, 4, 2, kOutOfRange, "first_epoch_shape.block_samples"},
      {"b 0", 40, 8, 0, kOutOfRange, "OrderSpec.shape.block_samples"},
      {"b over", 40, 8, over, kOutOfRange, "OrderSpec.shape.block_samples"},
      {"w 0", 48, 8, 0, kOutOfRange, "OrderSpec.shape.window_runs"},
      {"w over", 48, 8, ~0ULL, kOutOfRange, "OrderSpec.shape.window_runs"},
      {"first b", 56, 8, 1, kInvalidArgument, "OrderSpec.first_epoch_shape.block_samples"},
      {"first w", 64, 8, 1, kInvalidArgument, "OrderSpec.first_epoch_shape.window_runs"},
  };
  for (const BadField& bad : fields) {
    const auto parsed =
        OrderSpec::Parse(With(FullSpec().Encode(), bad.offset, bad.bytes, bad.value));
    ASSERT_FALSE(parsed.has_value()) << bad.what;
    EXPECT_EQ(parsed.error().code(), bad.code) << bad.what << parsed.error().ToString();
    EXPECT_THAT(parsed.error().message(), HasSubstr(bad.message)) << bad.what;
  }
}

TEST(OrderSpecTest, RejectsParametersOfAnAbsentFirstEpochShape) {
  OrderSpec spec = FullSpec();
  spec.first_epoch_shape.reset();
  for (const std::size_t offset : {56U, 64U}) {
    const auto parsed = OrderSpec::Parse(With(spec.Encode(), offset, 8, 1));
    ASSERT_FALSE(parsed.has_value());
    EXPECT_THAT(parsed.error().message(), HasSubstr("OrderSpec.first_epoch_shape"));
  }
}

TEST(OrderSpecTest, RejectsAFirstEpochShapeThatSaysNothing) {
  OrderSpec spec = FullSpec();
  spec.first_epoch_shape = spec.shape;
  const Status status = spec.Validate();
  ASSERT_FALSE(status.has_value());
  EXPECT_THAT(status.error().message(), HasSubstr("OrderSpec.first_epoch_shape equals shape"));
}

// Whatever the bytes, Parse answers; what it accepts encodes to the same bytes.
TEST(OrderSpecTest, AcceptedBytesAreCanonical) {
  const auto encoded = FullSpec().Encode();
  int accepted = 0;
  for (std::uint64_t test_case = 0; test_case < 20'000; ++test_case) {
    auto bytes = encoded;
    const std::uint64_t random = Mix64(test_case);
    bytes[random % kOrderSpecBytes] = static_cast<std::byte>(random >> 32 & 0xFF);
    bytes[(random >> 40) % kOrderSpecBytes] ^= static_cast<std::byte>(1U << (random >> 16 & 7));
    const auto parsed = OrderSpec::Parse(bytes);
    if (!parsed) continue;
    ++accepted;
    ASSERT_EQ(parsed->Encode(), bytes) << "case " << test_case;
  }
  EXPECT_GT(accepted, 100);
}

TEST(OrderSpecTest, NamesRoundTripAndUnknownOnesAreRefused) {
  for (const OrderMode mode : {OrderMode::kGlobal, OrderMode::kBlock, OrderMode::kSequential}) {
    EXPECT_EQ(ParseOrderMode(OrderModeName(mode)).value(), mode);
  }
  for (const TailPolicy tail : {TailPolicy::kDrop, TailPolicy::kPad, TailPolicy::kShort}) {
    EXPECT_EQ(ParseTailPolicy(TailPolicyName(tail)).value(), tail);
  }
  for (const char* name : {"", "Global", "partial", "weighted", "unknown", "global "}) {
    EXPECT_FALSE(ParseOrderMode(name).has_value()) << name;
    EXPECT_FALSE(ParseTailPolicy(name).has_value()) << name;
  }
}

TEST(PositionTokenTest, EncodingRoundTripsWithinItsLimit) {
  const auto bytes = FullToken().Encode();
  EXPECT_LE(bytes.size(), limits::kPositionTokenBytesMax);
  const auto parsed = PositionToken::Parse(bytes);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().ToString();
  EXPECT_EQ(*parsed, FullToken());
}

TEST(PositionTokenTest, RejectsEveryTruncationAndExtension) {
  const auto encoded = FullToken().Encode();
  std::vector<std::byte> bytes(encoded.begin(), encoded.end());
  bytes.resize(limits::kPositionTokenBytesMax);
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    if (length == kPositionTokenBytes) continue;
    ASSERT_FALSE(PositionToken::Parse(std::span(bytes).first(length)).has_value()) << length;
  }
}

TEST(PositionTokenTest, RejectsEveryFlippedBit) {
  for (std::size_t bit = 0; bit < 8 * kPositionTokenBytes; ++bit) {
    auto bytes = FullToken().Encode();
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    ASSERT_FALSE(PositionToken::Parse(bytes).has_value()) << "bit " << bit;
  }
}

TEST(PositionTokenTest, RejectsEveryFieldOutOfRangeByNameBehindAGoodChecksum) {
  using enum ErrorCode;
  const std::vector<BadField> fields = {
      {"magic", 0, 4, 0, kInvalidArgument, "PositionToken.magic"},
      {"version 9", 4, 2, 9, kFailedPrecondition, "PositionToken.version is 9"},
      {"reserved", 6, 2, 1, kInvalidArgument, "PositionToken.reserved"},
      {"spec magic", 16, 4, 0, kInvalidArgument, "OrderSpec.magic"},
      {"spec n", 32, 8, 0, kOutOfRange, "OrderSpec.sample_count"},
      {"batch 0", 88, 4, 0, kOutOfRange, "PositionToken.global_batch is 0"},
      {"batch over", 88, 4, limits::kGlobalBatchMax + 1, kOutOfRange, "global_batch"},
      {"step over", 96, 8, 119, kOutOfRange, "PositionToken.next_step is 119"},
      {"step max", 96, 8, ~0ULL, kOutOfRange, "an epoch has 118 steps"},
  };
  for (const BadField& bad : fields) {
    const auto parsed = PositionToken::Parse(
        Resealed(With(FullToken().Encode(), bad.offset, bad.bytes, bad.value)));
    ASSERT_FALSE(parsed.has_value()) << bad.what;
    EXPECT_EQ(parsed.error().code(), bad.code) << bad.what << parsed.error().ToString();
    EXPECT_THAT(parsed.error().message(), HasSubstr(bad.message)) << bad.what;
  }
}

TEST(PositionTokenTest, NamesTheChecksumWhenOnlyItIsWrong) {
  const auto parsed = PositionToken::Parse(With(FullToken().Encode(), 8, 8, 1));
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(parsed.error().message(), HasSubstr("PositionToken.checksum"));
}

TEST(PositionTokenDeathTest, DoesNotEncodeWhatItWouldNotParse) {
  PositionToken token = FullToken();
  token.next_step = StepId(119);
  EXPECT_DEATH(static_cast<void>(token.Encode()), "CHECK failed");
}

}  // namespace
}  // namespace forebay
