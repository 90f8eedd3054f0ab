// Where fields and rows lie in a slot, and what is too large for one.
#include "server/stream/slot_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"

namespace forebay::stream {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

FieldSpec Field(Dtype dtype, std::vector<std::uint64_t> shape) {
  FieldSpec field;
  field.dtype = dtype;
  field.shape = std::move(shape);
  return field;
}

FieldSpec Constant() {
  FieldSpec field = Field(Dtype::kI64, {});
  field.source = FieldSource::kConstant;
  return field;
}

TEST(SlotLayout, FieldsBeginAtCacheLinesAndConstantsTakeNothing) {
  const std::vector<FieldSpec> fields = {Field(Dtype::kU8, {3, 7}), Constant(),
                                         Field(Dtype::kBytes, {}), Field(Dtype::kF32, {})};
  const std::vector<std::uint64_t> variable_bytes = {0, 0, 80, 0};
  const auto layout = LayOutRows(fields, 5, variable_bytes);
  ASSERT_TRUE(layout.has_value()) << layout.error().ToString();
  EXPECT_THAT(layout->begins, ElementsAre(0, 0, 128, 256)) << "105 bytes, then 80";
  EXPECT_THAT(layout->row_bytes, ElementsAre(21, 0, 0, 4));
  EXPECT_EQ(layout->total_bytes, 256U + 5 * 4);
}

TEST(SlotLayout, OfConstantsAloneNothingIsLeft) {
  const std::vector<FieldSpec> fields = {Constant()};
  const auto layout = LayOutRows(fields, 5);
  ASSERT_TRUE(layout.has_value());
  EXPECT_EQ(layout->total_bytes, 0U);
}

TEST(SlotLayout, WhatExceedsTheLargestSlotIsRefused) {
  constexpr std::uint64_t kHalf = limits::kSlotBytesMax / 2;
  const std::vector<FieldSpec> two = {Field(Dtype::kU8, {kHalf / 8}), Field(Dtype::kBytes, {})};
  const auto refused = [&](std::size_t rows, std::uint64_t variable_bytes) {
    const std::vector<std::uint64_t> variable = {0, variable_bytes};
    const auto layout = LayOutRows(two, rows, variable);
    if (layout.has_value()) return false;
    EXPECT_EQ(layout.error().code(), ErrorCode::kOutOfRange);
    EXPECT_THAT(layout.error().message(), HasSubstr("kSlotBytesMax"));
    return true;
  };
  EXPECT_FALSE(refused(8, kHalf)) << "as much as there may be";
  EXPECT_TRUE(refused(8, kHalf + 1));
  EXPECT_TRUE(refused(17, 0));
  EXPECT_TRUE(refused(~std::size_t{0}, 0)) << "the product overflows";
  EXPECT_TRUE(refused(8, ~std::uint64_t{0})) << "the sum overflows";
}

}  // namespace
}  // namespace forebay::stream
