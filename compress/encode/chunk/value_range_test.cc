// Ranges of valid values, and the absolute bounds that follow from them.
#include "compress/encode/chunk/value_range.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "compress/encode/chunk/error_bound.h"

namespace forebay::compress {
namespace {

template <typename T>
ValueRange RangeOf(Dtype dtype, const std::vector<T>& values,
                   std::optional<std::uint64_t> fill_bits = std::nullopt) {
  PackField field{.name = "field", .dtype = dtype, .bound = {}};
  field.fill_bits = fill_bits;
  RangeFinder finder(field);
  // In two parts: what came before counts.
  const std::span all(values);
  finder.Add(std::as_bytes(all.first(values.size() / 2)));
  finder.Add(std::as_bytes(all.subspan(values.size() / 2)));
  return finder.range();
}

DeclaredBound Asked(BoundMode mode, double absolute, double relative) {
  return {.mode = static_cast<std::uint8_t>(mode), .absolute = absolute, .relative = relative};
}

TEST(ValueRange, IsOfValidValuesAlone) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float tiny = std::numeric_limits<float>::denorm_min();
  const auto floats = RangeOf<float>(
      Dtype::kF32, {-infinity, 3, std::nanf(""), -1e30F, 7, tiny, infinity, 5},
      std::bit_cast<std::uint32_t>(-1e30F));
  EXPECT_EQ(floats.low, 3);
  EXPECT_EQ(floats.high, 7);
  const auto signed_words = RangeOf<std::int16_t>(Dtype::kI16, {-300, 12, -7});
  EXPECT_EQ(signed_words.low, -300);
  EXPECT_EQ(signed_words.high, 12);
  const auto bytes = RangeOf<std::uint8_t>(Dtype::kU8, {200, 0, 9, 255}, 255);
  EXPECT_EQ(bytes.low, 0);
  EXPECT_EQ(bytes.high, 200);
  const auto none = RangeOf<float>(Dtype::kF32, {std::nanf(""), infinity});
  EXPECT_EQ(none.low, 0);
  EXPECT_EQ(none.width(), 0);
}

TEST(ValueRange, MakesBoundsAbsolute) {
  const ValueRange range{.low = -5, .high = 35};
  const auto absolute = [&](BoundMode mode) {
    const auto bound = BoundOfRange(Asked(mode, 0.3, 0.01), range);
    EXPECT_TRUE(bound.has_value());
    EXPECT_EQ(bound->mode, static_cast<std::uint8_t>(BoundMode::kAbsolute));
    EXPECT_EQ(bound->relative, 0);
    return bound->absolute;
  };
  EXPECT_DOUBLE_EQ(absolute(BoundMode::kChunkRelative), 0.4);
  EXPECT_DOUBLE_EQ(absolute(BoundMode::kAbsoluteAndChunkRelative), 0.3);
  EXPECT_DOUBLE_EQ(absolute(BoundMode::kAbsoluteOrChunkRelative), 0.4);
}

TEST(ValueRange, RefusesOtherModesAndRangesThatAreNone) {
  const auto code = [](BoundMode mode, double relative, ValueRange range) {
    const auto bound = BoundOfRange(Asked(mode, 1, relative), range);
    return bound.has_value() ? ErrorCode::kUnknown : bound.error().code();
  };
  const auto bad = ErrorCode::kInvalidArgument;
  EXPECT_EQ(code(BoundMode::kChunkRelative, 0.1, {.low = 0, .high = 1}), ErrorCode::kUnknown);
  EXPECT_EQ(code(BoundMode::kAbsolute, 0.1, {.low = 0, .high = 1}), bad);
  EXPECT_EQ(code(BoundMode::kPointwise, 0.1, {.low = 0, .high = 1}), bad);
  EXPECT_EQ(code(BoundMode::kChunkRelative, 0.1, {.low = 1, .high = 0}), bad);
  EXPECT_EQ(code(BoundMode::kChunkRelative, 0.1, {.low = -1e308, .high = 1e308}), bad);
  EXPECT_EQ(code(BoundMode::kChunkRelative, 0.1, {.low = 0, .high = std::nan("")}), bad);
  EXPECT_EQ(code(BoundMode::kChunkRelative, 1e10, {.low = 0, .high = 1e308}), bad);
}

TEST(ValueRange, ErrorsPrintNumbersAsTheyAreWritten) {
  const auto wide = BoundOfRange(Asked(BoundMode::kChunkRelative, 0, 0.1),
                                 {.low = -1e308, .high = 1e308});
  EXPECT_NE(wide.error().message().find("from -1e+308 to 1e+308;"), std::string::npos)
      << wide.error().message();
  const auto large = BoundOfRange(Asked(BoundMode::kChunkRelative, 0, 1e10),
                                  {.low = 0, .high = 1e308});
  EXPECT_NE(large.error().message().find(": 1e+10 of the range"), std::string::npos)
      << large.error().message();
}

}  // namespace
}  // namespace forebay::compress
