// The encoder's inner loops against the definitions that the header states.
#include "compress/encode/wavefront/filter_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "compress/encode/testing/chunk_samples.h"
#include "compress/format/plane/wavefront_predict.h"

namespace forebay::compress::filter_kernels_test {

constexpr std::uint32_t kSeed = 20261123;
constexpr std::size_t kTaps = kInterTapCount;

struct RandomBlock {
  std::vector<std::int16_t> taps, weights, targets;
};

// Values of `bits` bits less half their range, both ends among them.
RandomBlock MakeBlock(SampleMaker& maker, std::uint32_t bits) {
  const std::int32_t range = 1 << bits;
  const auto value = [&] {
    const auto kind = maker.Below(8);
    const auto any = static_cast<std::int32_t>(maker.Below(static_cast<std::uint32_t>(range)));
    return static_cast<std::int16_t>((kind == 0 ? 0 : kind == 1 ? range - 1 : any) - range / 2);
  };
  RandomBlock block;
  for (std::size_t i = 0; i < kTaps * kBlockValues; ++i) block.taps.push_back(value());
  for (std::size_t i = 0; i < kBlockValues; ++i) block.targets.push_back(value());
  for (std::size_t i = 0; i < kTaps; ++i) {
    const auto weight = static_cast<int>(maker.Below(512)) + kWavefrontWeightMin;
    block.weights.push_back(static_cast<std::int16_t>(maker.Below(4) == 0 ? 0 : weight));
  }
  return block;
}

TEST(BlockKernels, WideErrorsAreWhatThePredictionLeaves) {
  SampleMaker maker(kSeed);
  for (std::uint32_t bits = 9; bits <= 16; ++bits) {
    const RandomBlock block = MakeBlock(maker, bits);
    const std::int32_t middle = 1 << (bits - 1);
    const std::int16_t* const west = block.taps.data();
    const std::int16_t* const north = block.taps.data() + 2 * kBlockValues;
    for (const bool clamped : {false, true}) {
      std::array<std::int32_t, kBlockValues> errors;
      WideBlockErrors(block.taps.data(), kTaps, block.weights.data(), clamped ? west : nullptr,
                      north, middle, block.targets.data(), errors.data());
      for (std::size_t i = 0; i < kBlockValues; ++i) {
        std::int32_t sum = 0;
        for (std::size_t tap = 0; tap < kTaps; ++tap) {
          sum = WrappingMultiplyAdd<std::int32_t>(sum, block.weights[tap],
                                                  block.taps[tap * kBlockValues + i]);
        }
        std::int32_t value = WavefrontValue<std::int32_t>(sum, middle) - middle;
        if (clamped) {
          value = std::clamp<std::int32_t>(value, std::min(west[i], north[i]),
                                           std::max(west[i], north[i]));
        }
        ASSERT_EQ(errors[i], block.targets[i] - value) << bits << " bits, pixel " << i;
      }
    }
  }
}

TEST(BlockKernels, CostsOfBothWidthsAgreeAndGrowWithTheLogarithm) {
  SampleMaker maker(kSeed + 1);
  std::array<std::int16_t, kBlockValues> narrow;
  std::array<std::int32_t, kBlockValues> wide;
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    narrow[i] = static_cast<std::int16_t>(static_cast<int>(maker.Below(511)) - 255);
    wide[i] = narrow[i];
  }
  std::array<std::uint32_t, 4> of_narrow, of_wide;
  BlockCosts(narrow.data(), of_narrow.data());
  WideBlockCosts(wide.data(), of_wide.data());
  EXPECT_EQ(of_narrow, of_wide);
  // Errors of all of 17 bits: within a tenth of a bit of log2(1 + error / 0.6).
  for (const std::int32_t error : {0, -1, 5, 1000, -65535, 65535}) {
    wide.fill(error);
    WideBlockCosts(wide.data(), of_wide.data());
    const double bits = std::log2(1 + std::abs(error) / 0.6);
    for (const std::uint32_t quarter : of_wide) EXPECT_NEAR(quarter / 64.0 / 256, bits, 0.1);
  }
}

template <typename T>
void CheckRows(std::uint32_t bits) {
  SampleMaker maker(kSeed + bits);
  constexpr std::size_t kStride = 21;
  const std::int32_t middle = 1 << (bits - 1);
  std::vector<T> a(16 * kStride), b(16 * kStride);
  for (auto* values : {&a, &b}) {
    for (T& value : *values) value = static_cast<T>(maker.Below(1U << bits));
    values->front() = 0;
  }
  a.front() = static_cast<T>((1U << bits) - 1);
  for (const std::size_t rows : {1U, 7U, 16U}) {
    std::uint32_t sum = 0;
    std::array<std::int16_t, kBlockValues> centred;
    centred.fill(17);
    CopyCentred(a.data(), kStride, rows, middle, centred.data());
    for (std::size_t i = 0; i < kBlockValues; ++i) {
      const std::size_t at = i / 16 * kStride + i % 16;
      ASSERT_EQ(centred[i], i < rows * 16 ? a[at] - middle : 17);
      if (i < rows * 16) sum += static_cast<std::uint32_t>(std::abs(a[at] - b[at]));
    }
    EXPECT_EQ(BlockDifference(a.data(), kStride, b.data(), kStride, rows), sum);
  }
}

TEST(BlockKernels, RowsAreCopiedAndComparedInEveryWidth) {
  CheckRows<std::uint8_t>(8);
  CheckRows<std::uint8_t>(3);
  CheckRows<std::uint16_t>(9);
  CheckRows<std::uint16_t>(16);
}

}  // namespace forebay::compress::filter_kernels_test
