// Encodings of OrderSpec and PositionToken under hostile bytes, and their validation.
#include "proto/contract/order_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
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

OrderSpec PartialSpec() {
  return {.seed = 9,
          .sample_count = 60'000,
          .selection_fingerprint = 42,
          .tail = TailPolicy::kShort,
          .shape = {.mode = OrderMode::kPartial,
                    .block_samples = 1024,
                    .canonical_nodes = 16,
                    .exchange_millionths = 100'000,
                    .global_batch = 512}};
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
  OrderSpec partial_first = FullSpec();
  partial_first.first_epoch_shape = PartialSpec().shape;
  for (const OrderSpec& spec : {plain, FullSpec(), OrderSpec{.sample_count = 1}, PartialSpec(),
                                partial_first}) {
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

// A reader of version 1 refuses what it does not know, and only that.
TEST(OrderSpecTest, HasVersion2ExactlyWithAPartialShape) {
  const auto version_of = [](const OrderSpec& spec) {
    const auto bytes = spec.Encode();
    return std::to_integer<unsigned>(bytes[4]) + 256 * std::to_integer<unsigned>(bytes[5]);
  };
  OrderSpec first = FullSpec();
  EXPECT_EQ(version_of(first), 1U);
  first.first_epoch_shape = PartialSpec().shape;
  EXPECT_EQ(version_of(first), 2U);
  first.shape = PartialSpec().shape;
  first.first_epoch_shape = OrderShape{.mode = OrderMode::kSequential};
  EXPECT_EQ(version_of(first), 2U);
  EXPECT_EQ(version_of({.sample_count = 1}), 1U);
}

TEST(OrderSpecTest, EveryPartialFieldChangesTheFingerprint) {
  const std::vector<std::function<void(OrderShape&)>> changes = {
      [](OrderShape& s) { ++s.block_samples; },
      [](OrderShape& s) { s.canonical_nodes = 32; },
      [](OrderShape& s) { ++s.exchange_millionths; },
      [](OrderShape& s) { s.global_batch = 1024; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    OrderSpec changed = PartialSpec();
    changes[i](changed.shape);
    EXPECT_NE(changed.Fingerprint(), PartialSpec().Fingerprint()) << "change " << i;
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
      {"version 3", 4, 2, 3, kFailedPrecondition, "is 3, this build reads versions 1 to 2"},
      {"version 2", 4, 2, 2, kInvalidArgument, "is 2, but its modes belong to version 1"},
      {"tail 0", 6, 1, 0, kInvalidArgument, "OrderSpec.tail"},
      {"tail 4", 6, 1, 4, kInvalidArgument, "OrderSpec.tail"},
      {"tail 255", 6, 1, 255, kInvalidArgument, "OrderSpec.tail"},
      {"reserved", 7, 1, 1, kInvalidArgument, "OrderSpec.reserved"},
      {"n 0", 16, 8, 0, kOutOfRange, "OrderSpec.sample_count is 0"},
      {"n over", 16, 8, over, kOutOfRange, "OrderSpec.sample_count"},
      {"n max", 16, 8, ~0ULL, kOutOfRange, "OrderSpec.sample_count"},
      {"mode 0", 32, 4, 0, kInvalidArgument, "OrderSpec.shape.mode"},
      {"mode 4, whose B is in the upper half of w", 32, 4, 4, kOutOfRange, "global_batch is 0"},
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

TEST(OrderSpecTest, RejectsEveryPartialFieldOutOfRangeByName) {
  using enum ErrorCode;
  const std::vector<BadField> fields = {
      {"version 1", 4, 2, 1, kInvalidArgument, "is 1, but its modes belong to version 2"},
      {"n below M", 16, 8, 15, kInvalidArgument, "there are only 15 samples"},
      {"b 0", 40, 4, 0, kOutOfRange, "OrderSpec.shape.block_samples is 0, outside [1, 4294967295]"},
      {"q over", 44, 4, 1'000'001, kOutOfRange, "exchange_millionths is 1000001, outside [0, "},
      {"M 0", 48, 4, 0, kOutOfRange, "OrderSpec.shape.canonical_nodes is 0, outside [1, 512]"},
      {"M over", 48, 4, 1024, kOutOfRange, "canonical_nodes is 1024, outside [1, 512]"},
      {"M odd", 48, 4, 15, kInvalidArgument, "is 15, which does not divide the global batch 512"},
      {"B 0", 52, 4, 0, kOutOfRange, "OrderSpec.shape.global_batch is 0"},
      {"B over", 52, 4, limits::kGlobalBatchMax + 1, kOutOfRange, "OrderSpec.shape.global_batch"},
      {"B odd", 52, 4, 500, kInvalidArgument, "does not divide the global batch 500"},
  };
  for (const BadField& bad : fields) {
    const auto parsed =
        OrderSpec::Parse(With(PartialSpec().Encode(), bad.offset, bad.bytes, bad.value));
    ASSERT_FALSE(parsed.has_value()) << bad.what;
    EXPECT_EQ(parsed.error().code(), bad.code) << bad.what << parsed.error().ToString();
    EXPECT_THAT(parsed.error().message(), HasSubstr(bad.message)) << bad.what;
  }
}

TEST(OrderSpecTest, RefusesParametersThatAModeDoesNotHave) {
  const std::vector<std::function<void(OrderShape&)>> changes = {
      [](OrderShape& s) { s.canonical_nodes = 1; },
      [](OrderShape& s) { s.exchange_millionths = 1; },
      [](OrderShape& s) { s.global_batch = 1; },
  };
  for (const auto& change : changes) {
    OrderSpec spec = FullSpec();
    change(spec.shape);
    EXPECT_THAT(spec.Validate().error().message(), HasSubstr("mode block has no such parameter"));
  }
  OrderSpec spec = PartialSpec();
  spec.shape.window_runs = 1;
  EXPECT_THAT(spec.Validate().error().message(), HasSubstr("OrderSpec.shape.window_runs is 1"));
  spec = PartialSpec();
  spec.shape.block_samples = 1ULL << 32;
  EXPECT_EQ(spec.Validate().error().code(), ErrorCode::kOutOfRange);
}

TEST(OrderSpecTest, APartialOrderSuitsOneGlobalBatch) {
  EXPECT_TRUE(PartialSpec().CheckGlobalBatch(512).has_value());
  const Status refused = PartialSpec().CheckGlobalBatch(256);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("is 512, but the stream's is 256"));
  EXPECT_TRUE(FullSpec().CheckGlobalBatch(256).has_value());
  OrderSpec first = FullSpec();
  first.first_epoch_shape = PartialSpec().shape;
  EXPECT_FALSE(first.CheckGlobalBatch(256).has_value());
  first.shape = PartialSpec().shape;
  first.first_epoch_shape->global_batch = 1024;
  ASSERT_FALSE(first.Validate().has_value());
  EXPECT_THAT(first.Validate().error().message(),
              HasSubstr("is 1024, but shape.global_batch is 512"));
}

TEST(OrderSpecTest, OrdersOfRunsDoNotNeedTheWholeSet) {
  EXPECT_TRUE(NeedsWholeSet(OrderMode::kGlobal));
  EXPECT_TRUE(NeedsWholeSet(OrderMode::kPartial));
  EXPECT_FALSE(NeedsWholeSet(OrderMode::kBlock));
  EXPECT_FALSE(NeedsWholeSet(OrderMode::kSequential));
}

TEST(OrderSpecTest, AFractionBecomesTheNearestNumberOfMillionths) {
  EXPECT_EQ(ExchangeMillionths(0).value(), 0U);
  EXPECT_EQ(ExchangeMillionths(0.1).value(), 100'000U);
  EXPECT_EQ(ExchangeMillionths(1.0 / 3).value(), 333'333U);
  EXPECT_EQ(ExchangeMillionths(1).value(), kExchangeMillionths);
  for (const double bad : {-1e-9, 1.0000001, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    ASSERT_FALSE(ExchangeMillionths(bad).has_value()) << bad;
    EXPECT_EQ(ExchangeMillionths(bad).error().code(), ErrorCode::kOutOfRange);
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
  const std::array encoded = {FullSpec().Encode(), PartialSpec().Encode()};
  int accepted = 0;
  for (std::uint64_t test_case = 0; test_case < 40'000; ++test_case) {
    auto bytes = encoded[test_case % 2];
    const std::uint64_t random = Mix64(test_case);
    bytes[random % kOrderSpecBytes] = static_cast<std::byte>(random >> 32 & 0xFF);
    bytes[(random >> 40) % kOrderSpecBytes] ^= static_cast<std::byte>(1U << (random >> 16 & 7));
    const auto parsed = OrderSpec::Parse(bytes);
    if (!parsed) continue;
    ++accepted;
    ASSERT_EQ(parsed->Encode(), bytes) << "case " << test_case;
  }
  EXPECT_GT(accepted, 200);
}

TEST(OrderSpecTest, NamesRoundTripAndUnknownOnesAreRefused) {
  for (const OrderMode mode : {OrderMode::kGlobal, OrderMode::kBlock, OrderMode::kSequential,
                               OrderMode::kPartial}) {
    EXPECT_EQ(ParseOrderMode(OrderModeName(mode)).value(), mode);
  }
  for (const TailPolicy tail : {TailPolicy::kDrop, TailPolicy::kPad, TailPolicy::kShort}) {
    EXPECT_EQ(ParseTailPolicy(TailPolicyName(tail)).value(), tail);
  }
  for (const char* name : {"", "Global", "Partial", "weighted", "unknown", "global "}) {
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

TEST(PositionTokenTest, HoldsAPartialOrderWithItsOwnGlobalBatch) {
  PositionToken token = FullToken();
  token.order = PartialSpec();
  EXPECT_EQ(PositionToken::Parse(token.Encode()).value(), token);
  token.global_batch = 256;
  ASSERT_FALSE(token.Validate().has_value());
  EXPECT_THAT(token.Validate().error().message(), HasSubstr("OrderSpec.global_batch is 512"));
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
