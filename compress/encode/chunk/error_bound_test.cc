// Lossy chunks keep their bound on every valid value and every other value bit for bit; the
// checker that says so finds what is wrong.
#include <bit>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "compress/decode/chunk/chunk_decoder.h"
#include "compress/encode/chunk/bound_checker.h"
#include "compress/encode/chunk/chunk_encoder.h"
#include "compress/encode/chunk/coded_chunk_encoder.h"
#include "compress/encode/testing/chunk_samples.h"
#include "compress/format/chunk/element_code.h"
#include "compress/format/chunk/quantiser.h"
#include "compress/format/pack/pack_format.h"

namespace forebay::compress::error_bound_test {

constexpr std::uint32_t kSeed = 20261123;

std::vector<std::byte> Decode(const ChunkShape& shape, ChunkCodec codec,
                              std::span<const std::byte> payload) {
  std::vector<std::byte> decoded(shape.bytes()), scratch(ChunkScratchBytes(shape));
  const ChunkRange whole = ChunkRange::Whole(shape);
  const Status status = DecodeChunk(shape, codec, payload, whole,
                                    StridedOutput::Dense(shape, whole, decoded), scratch);
  EXPECT_TRUE(status.has_value()) << status.error().ToString();
  return decoded;
}

std::vector<std::byte> BytesOf(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

TEST(LossyChunk, ByteStringsTakeNoBound) {
  const std::string text = "The quick brown fox jumps over the lazy dog.";
  const auto bytes = std::as_bytes(std::span(text));
  const ChunkShape shape = BytesShape(bytes.size());
  for (const BoundMode mode : {BoundMode::kAbsolute, BoundMode::kChunkRelative,
                               BoundMode::kAbsoluteAndChunkRelative,
                               BoundMode::kAbsoluteOrChunkRelative, BoundMode::kPointwise}) {
    const auto chunk = EncodeChunk(
        shape, bytes, {.bound = {.mode = mode, .absolute = 20, .relative = 0.1}});
    ASSERT_FALSE(chunk.has_value()) << static_cast<int>(mode);
    EXPECT_EQ(chunk.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(chunk.error().message().find("byte strings are exact"), std::string::npos);
  }
  EXPECT_TRUE(EncodeChunk(shape, bytes, {}).has_value());
  // Numbers are as they are written in errors, too.
  const auto endless = EncodeChunk(
      shape, bytes, {.bound = {.mode = BoundMode::kAbsolute, .absolute = -1e300}});
  EXPECT_NE(endless.error().message().find("absolute -1e+300,"), std::string::npos)
      << endless.error().message();
}

TEST(LossyChunk, EveryTypeModeAndKindKeepsItsBound) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  SampleMaker maker(kSeed);
  std::size_t lossy_chunks = 0;
  for (int round = 0; round < 60; ++round) {
    for (const Dtype dtype : kAllDtypes) {
      if (dtype == Dtype::kBytes) continue;
      ChunkShape shape = maker.Shape(dtype);
      const auto kind = static_cast<SampleKind>(maker.Below(kSampleKinds));
      if (maker.Below(2) == 0) shape.fill_bits = maker.Below(200);
      const double scale = std::ldexp(1, static_cast<int>(maker.Below(24)) - 16);
      ErrorBound bound = {.mode = static_cast<BoundMode>(1 + maker.Below(5)),
                          .absolute = 100 * scale,
                          .relative = scale / 64};
      if (OrderOf(dtype) != CodeOrder::kFloat && bound.mode == BoundMode::kPointwise) continue;
      SCOPED_TRACE(Describe(shape) + ", kind " + std::to_string(static_cast<int>(kind)) +
                   ", mode " + std::to_string(static_cast<int>(bound.mode)) + ", scale " +
                   std::to_string(scale));
      const auto raw = maker.Make(shape, kind);
      const ChunkOptions options = {.profile = Profile::kBalanced, .bound = bound};
      const auto coded = EncodeCodedChunk(shape, raw, options);
      ASSERT_TRUE(coded.has_value());
      const auto decoded = Decode(shape, ChunkCodec::kCoded, *coded);
      const BoundReport report = CheckBound(dtype, raw, decoded, bound, shape.fill_bits);
      ASSERT_TRUE(report.ok()) << report.violations << " violations, "
                               << report.special_mismatches << " mismatches, first at "
                               << *report.first_bad << ", bound " << report.bound
                               << ", error " << report.error_max;
      lossy_chunks += decoded != raw ? 1 : 0;
      const auto chunk = EncodeChunk(shape, raw, options);
      ASSERT_TRUE(chunk.has_value()) << chunk.error().ToString();
    }
  }
  EXPECT_GT(lossy_chunks, 150U);
}

TEST(LossyChunk, SmoothFloatsShrinkAndRangeLeavesOutTheFillValue) {
  const ChunkShape shape = {.dtype = Dtype::kF32, .samples = 4, .rank = 2, .extent = {64, 64, 1, 1},
                            .fill_bits = std::bit_cast<std::uint32_t>(-1e34F)};
  const auto raw = SampleMaker(kSeed).Make(shape, SampleKind::kHoles);
  const ErrorBound bound = {.mode = BoundMode::kChunkRelative, .relative = 1e-3};
  const auto chunk =
      EncodeChunk(shape, raw, {.profile = Profile::kBalanced, .bound = bound});
  ASSERT_TRUE(chunk.has_value());
  EXPECT_EQ(chunk->codec, ChunkCodec::kCoded);
  EXPECT_LT(chunk->payload.size() * 6, raw.size());
  const auto decoded = Decode(shape, chunk->codec, chunk->payload);
  const BoundReport report = CheckBound(shape.dtype, raw, decoded, bound, shape.fill_bits);
  EXPECT_TRUE(report.ok());
  EXPECT_GT(report.error_max, 0);
  EXPECT_LT(report.bound, 0.1);
}

TEST(LossyChunk, AStrayHugeValueIsAnEscape) {
  const ChunkShape shape = {
      .dtype = Dtype::kF32, .samples = 1, .rank = 2, .extent = {64, 64, 1, 1}};
  auto raw = SampleMaker(kSeed).Make(shape, SampleKind::kSmooth);
  const float huge = -1e34F;
  std::memcpy(raw.data() + 400, &huge, 4);
  const ErrorBound bound = {.mode = BoundMode::kAbsolute, .absolute = 0.1};
  const auto chunk = EncodeChunk(shape, raw, {.profile = Profile::kBalanced, .bound = bound});
  ASSERT_TRUE(chunk.has_value());
  EXPECT_LT(chunk->payload.size() * 6, raw.size());
  const auto decoded = Decode(shape, chunk->codec, chunk->payload);
  EXPECT_TRUE(CheckBound(shape.dtype, raw, decoded, bound, std::nullopt).ok());
  EXPECT_TRUE(std::equal(raw.begin() + 400, raw.begin() + 404, decoded.begin() + 400));
}

TEST(LossyChunk, TooTightABoundIsLossless) {
  const ChunkShape shape = {
      .dtype = Dtype::kF32, .samples = 1, .rank = 2, .extent = {64, 64, 1, 1}};
  const auto raw = SampleMaker(kSeed).Make(shape, SampleKind::kSmooth);
  for (const double absolute : {0.0, 1e-30, 1e-7}) {
    const ErrorBound bound = {.mode = BoundMode::kAbsolute, .absolute = absolute};
    const auto coded = EncodeCodedChunk(shape, raw, {.profile = Profile::kDense, .bound = bound});
    ASSERT_TRUE(coded.has_value());
    EXPECT_EQ(Decode(shape, ChunkCodec::kCoded, *coded), raw) << absolute;
  }
}

// --- the arithmetic ------------------------------------------------------------------------

TEST(Quantiser, HalfAndBrainFloatsConvertBothWays) {
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBf16}) {
    for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) {
      const double value = ValueOfElement(dtype, bits);
      const std::uint64_t back = FloatElementOf(dtype, value);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(ValueOfElement(dtype, back)));
      } else {
        ASSERT_EQ(back, bits) << DtypeName(dtype);
      }
    }
  }
}

TEST(Quantiser, SmallFloatsRoundToNearestEven) {
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBf16}) {
    const std::uint32_t infinity = dtype == Dtype::kF16 ? 0x7C00 : 0x7F80;
    for (std::uint32_t bits = 0; bits + 1 < infinity; ++bits) {
      const double low = ValueOfElement(dtype, bits), high = ValueOfElement(dtype, bits + 1);
      const double middle = low + (high - low) / 2;
      ASSERT_EQ(FloatElementOf(dtype, middle), bits % 2 == 0 ? bits : bits + 1);
      ASSERT_EQ(FloatElementOf(dtype, std::nextafter(middle, 0)), bits);
      ASSERT_EQ(FloatElementOf(dtype, std::nextafter(middle, HUGE_VAL)), bits + 1);
      ASSERT_EQ(FloatElementOf(dtype, -low), FloatElementOf(dtype, low) | 0x8000);
    }
    EXPECT_EQ(FloatElementOf(dtype, 1e300), infinity);
    EXPECT_EQ(FloatElementOf(dtype, 1e-300), 0U);
  }
}

TEST(Quantiser, PowersOfTwoAreAccurateAndMonotonous) {
  SampleMaker maker(kSeed);
  for (int i = 0; i < 20'000; ++i) {
    const auto logarithm = static_cast<std::int64_t>(maker.Below(2000ULL << 32)) -
                           (std::int64_t{1000} << 32);
    const double value = PowerOfTwo(logarithm);
    const double expected = std::exp2(static_cast<double>(logarithm) * 0x1p-32);
    ASSERT_NEAR(value / expected, 1, 1e-12) << logarithm;
  }
  EXPECT_EQ(PowerOfTwo(INT64_MIN), PowerOfTwo(std::int64_t{-1022} * (std::int64_t{1} << 32)));
  EXPECT_TRUE(std::isfinite(PowerOfTwo(INT64_MAX)));
}

TEST(ElementCode, OrderOfCodesIsOrderOfValuesAndReverses) {
  std::uint16_t last = 0;
  for (const CodeOrder order : {CodeOrder::kUnsigned, CodeOrder::kSigned, CodeOrder::kFloat}) {
    for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) {
      const auto code = CodeOfElement(order, static_cast<std::uint16_t>(bits));
      ASSERT_EQ(ElementOfCode(order, code), bits);
    }
    for (std::uint32_t bits = 0; bits < 1U << 8; ++bits) {
      ASSERT_EQ(ElementOfCode(order, CodeOfElement(order, static_cast<std::uint8_t>(bits))), bits);
    }
  }
  // From the largest magnitude below zero to infinity.
  for (std::uint32_t step = 0; step <= 2 * 0x7C00; ++step) {
    const auto bits = static_cast<std::uint16_t>(step <= 0x7C00 ? 0xFC00 - step : step - 0x7C01);
    const std::uint16_t code = CodeOfElement(CodeOrder::kFloat, bits);
    if (step > 0) {
      ASSERT_EQ(code, last + 1);
    }
    last = code;
  }
}

// --- the checker finds what it is there for -------------------------------------------------

TEST(BoundChecker, CountsViolationsExactly) {
  const std::vector<float> original = {1, 2, 3, 4, 1e34F};
  std::vector<float> decoded = {1.5F, 2, 2.4F, 4.5F, 1e34F};
  ErrorBound bound = {.mode = BoundMode::kAbsolute, .absolute = 0.5};
  const std::uint64_t fill = std::bit_cast<std::uint32_t>(1e34F);
  BoundReport report = CheckBound(Dtype::kF32, BytesOf(original), BytesOf(decoded), bound, fill);
  EXPECT_EQ(report.valid_count, 4U);
  EXPECT_EQ(report.violations, 1U);
  EXPECT_EQ(report.first_bad, 2U);
  EXPECT_EQ(report.value_range, 3);
  EXPECT_NEAR(report.error_max, 0.6, 1e-6);
  decoded[4] = 1;
  report = CheckBound(Dtype::kF32, BytesOf(original), BytesOf(decoded), bound, fill);
  EXPECT_EQ(report.special_mismatches, 1U);
  bound = {.mode = BoundMode::kPointwise, .relative = 0.2};
  report = CheckBound(Dtype::kF32, BytesOf(original), BytesOf(original), bound, fill);
  EXPECT_TRUE(report.ok());
}

TEST(BoundChecker, SpecialValuesMustComeBackBitForBit) {
  const float nan = std::bit_cast<float>(0x7FC0'0001U), tiny = std::bit_cast<float>(3U);
  const std::vector<float> original = {nan, HUGE_VALF, tiny, -0.0F, 1};
  const ErrorBound bound = {.mode = BoundMode::kAbsolute, .absolute = 10};
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<float> decoded = original;
    decoded[i] = i == 0 ? std::bit_cast<float>(0x7FC0'0002U) : 0;
    const BoundReport report =
        CheckBound(Dtype::kF32, BytesOf(original), BytesOf(decoded), bound, std::nullopt);
    EXPECT_EQ(report.special_mismatches, 1U);
    EXPECT_EQ(report.first_bad, i);
  }
  std::vector<float> decoded = original;
  decoded[3] = 0;  // a zero may lose its sign
  decoded[4] = HUGE_VALF;
  const BoundReport report =
      CheckBound(Dtype::kF32, BytesOf(original), BytesOf(decoded), bound, std::nullopt);
  EXPECT_EQ(report.special_mismatches, 0U);
  EXPECT_EQ(report.violations, 1U);
}

TEST(BoundChecker, TiesAreDecidedByWhatRoundingHides) {
  // 1 - 2^-60 rounds to 1: the difference 1 + 2^-60 is beyond a bound of 1, 1 - 2^-60 is within.
  EXPECT_TRUE(IsWithin(1, 0, 1));
  EXPECT_FALSE(IsWithin(1, -0x1p-60, 1));
  EXPECT_TRUE(IsWithin(1, 0x1p-60, 1));
  EXPECT_FALSE(IsWithin(-1, 0x1p-60, 1));
  EXPECT_FALSE(IsWithin(0, std::nan(""), 1));
  EXPECT_FALSE(IsWithin(1e308, -1e308, 1e308));
  EXPECT_TRUE(IsWithinRelative(10, 11, 0.1) ==
              (std::fma(0.1, 10.0, -1.0) >= 0));  // 0.1 is a little more than a tenth
  EXPECT_FALSE(IsWithinRelative(0, 1e-300, 0.5));
  EXPECT_TRUE(IsWithinRelative(0, 0, 0.5));
}

TEST(BoundChecker, LosslessMeansEveryBit) {
  const std::vector<float> original = {0.0F, 1};
  const std::vector<float> decoded = {-0.0F, 1};
  EXPECT_FALSE(
      CheckBound(Dtype::kF32, BytesOf(original), BytesOf(decoded), {}, std::nullopt).ok());
  EXPECT_TRUE(
      CheckBound(Dtype::kF32, BytesOf(original), BytesOf(original), {}, std::nullopt).ok());
}

}  // namespace forebay::compress::error_bound_test
