// The wavefront kernels on bodies that no search would choose: filters of extreme weights whose
// sums wrap, every residual on every prediction, shapes around the borders of periods and bands.
// What the encoder's internals write under such parameters, every kernel of this processor reads.
#include <algorithm>
#include <array>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compress/decode/isa.h"
#include "compress/decode/wavefront/wavefront_decoder.h"
#include "compress/encode/wavefront/wavefront_work.h"

namespace forebay::compress::wavefront_kernel_test {

constexpr std::uint32_t kSeed = 20270114;

// The parameters that a test chooses itself.
struct HandMade {
  WavefrontParameters parameters;
  std::vector<WavefrontBlock> blocks;  // [frames][block_rows][block_columns]
};

std::size_t BlockCount(const PlaneShape& shape, std::uint32_t log2) {
  return std::size_t{((shape.rows - 1) >> log2) + 1} * (((shape.columns - 1) >> log2) + 1);
}

std::string Name(const PlaneShape& shape, const WavefrontParameters& parameters) {
  std::ostringstream name;
  name << shape.frames << " x " << shape.rows << " x " << shape.columns << ", "
       << int{shape.bits} << " bits, blocks 2^" << parameters.block_log2 << ", shift "
       << parameters.magnitude_shift;
  return name.str();
}

// Residuals of all samples, for tests to see what they reached.
template <typename T>
std::vector<T> ExpectKernelsDecode(const PlaneShape& shape, const std::vector<T>& samples,
                                   const HandMade& made) {
  const auto bytes = std::as_bytes(std::span(samples));
  WavefrontWork<T> work = PrepareWavefrontWork<T>(shape, bytes, {});
  const std::uint32_t top = work.parameters.top;
  work.parameters = made.parameters;
  work.parameters.top = top;
  work.block_rows = ((shape.rows - 1) >> made.parameters.block_log2) + 1;
  work.block_columns = ((shape.columns - 1) >> made.parameters.block_log2) + 1;
  work.blocks = made.blocks;
  ComputeResiduals(work);
  const std::vector<std::byte> body = WriteWavefrontBody(work);
  for (const Isa isa : AvailableIsas()) {
    std::vector<std::byte> decoded(bytes.size(), std::byte{0xEE});
    std::vector<std::byte> scratch(WavefrontScratchBytes(shape), std::byte{0xA5});
    const Status status =
        DecodeWavefront(shape, body, shape.frames, isa, std::span(decoded), scratch);
    EXPECT_TRUE(status.has_value() && std::ranges::equal(decoded, bytes))
        << Name(shape, made.parameters) << ", isa " << static_cast<int>(isa) << ", seed "
        << kSeed;
  }
  return work.residuals;
}

// A chunk of one frame and one filter that gives west, everywhere.
HandMade WestOnly(const PlaneShape& shape, std::uint32_t magnitude_shift) {
  HandMade made;
  made.parameters.block_log2 = 5;
  made.parameters.magnitude_shift = magnitude_shift;
  made.parameters.intra.filter_count = 1;
  made.parameters.intra.filters[0].weights[0] = 1 << kWavefrontWeightBits;
  made.blocks.resize(BlockCount(shape, made.parameters.block_log2));
  return made;
}

std::uint32_t Below(std::uint32_t limit, std::mt19937& random) {
  return static_cast<std::uint32_t>(random()) % limit;
}

std::int16_t RandomWeight(std::mt19937& random) {
  switch (Below(5, random)) {
    case 0: return kWavefrontWeightMin;
    case 1: return kWavefrontWeightMax;
    case 2: return static_cast<std::int16_t>(Below(2, random) * 128);
    default:
      return static_cast<std::int16_t>(static_cast<int>(Below(512, random)) + kWavefrontWeightMin);
  }
}

void RandomGroup(std::size_t taps, std::mt19937& random, WavefrontGroup& group) {
  group.filter_count = 1 + Below(kWavefrontFiltersMax, random);
  for (std::uint32_t i = 0; i < group.filter_count; ++i) {
    group.filters[i].clamped = Below(2, random) == 0;
    for (std::size_t tap = 0; tap < taps; ++tap) {
      group.filters[i].weights[tap] = RandomWeight(random);
    }
  }
}

HandMade RandomChoice(const PlaneShape& shape, std::mt19937& random) {
  HandMade made;
  made.parameters.block_log2 = kWavefrontBlockLog2Min + Below(3, random);
  made.parameters.magnitude_shift = Below(16, random);
  RandomGroup(kIntraTapCount, random, made.parameters.intra);
  if (shape.frames > 1) RandomGroup(kInterTapCount, random, made.parameters.inter);
  const std::size_t frame_blocks = BlockCount(shape, made.parameters.block_log2);
  const auto motion = [&] {
    return static_cast<std::int8_t>(static_cast<int>(Below(2 * kWavefrontMotionMax + 1, random)) -
                                    kWavefrontMotionMax);
  };
  for (std::size_t i = 0; i < frame_blocks * shape.frames; ++i) {
    const bool inter = i >= frame_blocks;
    const WavefrontGroup& group = inter ? made.parameters.inter : made.parameters.intra;
    WavefrontBlock block{.filter = static_cast<std::uint8_t>(Below(group.filter_count, random))};
    if (inter) {
      block.motion_row = motion();
      block.motion_column = motion();
    }
    // Runs of blocks that agree, as well as blocks that stand alone.
    const bool as_before = i > 0 && i != frame_blocks && Below(2, random) == 0;
    made.blocks.push_back(as_before ? made.blocks.back() : block);
  }
  return made;
}

// Noise; the two ends of the range; few values, which predictions often hit.
template <typename T>
std::vector<T> RandomSamples(const PlaneShape& shape, std::mt19937& random) {
  const std::uint32_t highest = (1U << shape.bits) - 1;
  const std::uint32_t scene = Below(3, random);
  std::vector<T> samples(shape.frames * shape.frame_samples());
  for (T& sample : samples) {
    const auto noise = static_cast<std::uint32_t>(random());
    if (scene == 0) sample = static_cast<T>(noise & highest);
    if (scene == 1) sample = static_cast<T>(noise % 2 * highest);
    if (scene == 2) sample = static_cast<T>(noise % 16 == 0 ? noise / 16 & highest : highest / 2);
  }
  return samples;
}

template <typename T>
void ExpectRandomBodiesDecode(std::uint8_t bits, std::mt19937& random) {
  constexpr std::array<std::uint32_t, 10> kRows = {1, 2, 31, 33, 63, 64, 65, 100, 128, 129};
  constexpr std::array<std::uint32_t, 12> kColumns = {1,   2,   3,   17,  33,  127,
                                                      128, 129, 130, 131, 132, 161};
  const PlaneShape shape{.frames = 1 + Below(4, random),
                         .rows = kRows[Below(kRows.size(), random)],
                         .columns = kColumns[Below(kColumns.size(), random)],
                         .bits = bits};
  ExpectKernelsDecode<T>(shape, RandomSamples<T>(shape, random), RandomChoice(shape, random));
}

TEST(AvailableIsas, GoFromScalarToTheBest) {
  EXPECT_EQ(AvailableIsas().front(), Isa::kScalar);
  EXPECT_EQ(AvailableIsas().back(), BestIsa());
  EXPECT_TRUE(std::ranges::is_sorted(AvailableIsas()));
}

// Row d of the picture is made of pairs k, k + d: where the second is decoded, west is k and the
// residual d, for all 65536 of them.
TEST(WavefrontKernels, AddEveryResidualToEveryPrediction) {
  const PlaneShape shape{.frames = 1, .rows = 256, .columns = 512, .bits = 8};
  std::vector<std::uint8_t> samples;
  for (std::uint32_t i = 0; i < shape.frame_samples(); ++i) {
    const std::uint32_t k = i % shape.columns / 2;
    samples.push_back(static_cast<std::uint8_t>(i % 2 == 0 ? k : k + i / shape.columns));
  }
  for (std::uint32_t shift = 0; shift < 16; ++shift) {
    const auto residuals = ExpectKernelsDecode<std::uint8_t>(shape, samples,
                                                             WestOnly(shape, shift));
    for (std::uint32_t i = 1; i < residuals.size(); i += 2) {
      ASSERT_EQ(residuals[i], i / shape.columns);
    }
  }
}

// Every second residual is one more than the last such one: all values of every width, thus all
// tokens with all of their plain bits, at predictions all over the range.
TEST(WavefrontKernels, DecodeEveryResidualOfEveryWidth) {
  for (std::uint8_t bits = 9; bits <= 16; ++bits) {
    const PlaneShape shape{.frames = 1, .rows = 256, .columns = 512, .bits = bits};
    const std::uint32_t mask = (1U << bits) - 1;
    std::vector<std::uint16_t> samples;
    for (std::uint32_t i = 0; i < shape.frame_samples(); ++i) {
      const std::uint32_t west = i / 2 * 40503;
      samples.push_back(static_cast<std::uint16_t>((i % 2 == 0 ? west : west + i / 2) & mask));
    }
    for (const std::uint32_t shift : {0U, 3U, 8U, 15U}) {
      const auto residuals = ExpectKernelsDecode<std::uint16_t>(shape, samples,
                                                                WestOnly(shape, shift));
      for (std::uint32_t i = 1; i < residuals.size(); i += 2) {
        ASSERT_EQ(residuals[i], i / 2 & mask);
      }
    }
  }
}

// Sums leave the range of 16 bits, at both ends: what they predict is what is left modulo 2^16.
TEST(WavefrontKernels, WrapSumsModulo65536) {
  const PlaneShape shape{.frames = 3, .rows = 70, .columns = 140, .bits = 8};
  for (const int weight : {kWavefrontWeightMin, -255, 254, kWavefrontWeightMax}) {
    for (const std::uint8_t value : {std::uint8_t{0}, std::uint8_t{255}}) {
      static_assert(9 * 254 * 127 > 0x7FFF, "nine taps wrap");
      HandMade made;
      made.parameters.intra.filter_count = made.parameters.inter.filter_count = 1;
      made.parameters.intra.filters[0].weights.fill(static_cast<std::int16_t>(weight));
      made.parameters.inter.filters[0].weights.fill(static_cast<std::int16_t>(weight));
      made.blocks.resize(shape.frames * BlockCount(shape, made.parameters.block_log2));
      const std::vector<std::uint8_t> samples(shape.frames * shape.frame_samples(), value);
      const auto residuals = ExpectKernelsDecode<std::uint8_t>(shape, samples, made);
      // All neighbours are alike, so that every prediction of a group is the same.
      const auto predicted = [&](int taps) {
        const auto sum = static_cast<std::int16_t>(taps * weight * (int{value} - 128) + 64);
        return std::clamp((sum >> kWavefrontWeightBits) + 128, 0, 255);
      };
      EXPECT_EQ(residuals.front(), static_cast<std::uint8_t>(value - predicted(9)));
      EXPECT_EQ(residuals.back(), static_cast<std::uint8_t>(value - predicted(21)));
    }
  }
}

TEST(WavefrontKernels, DecodeWhatRandomFiltersLeave) {
  std::mt19937 random(kSeed);
  for (int round = 0; round < 50 && !HasFailure(); ++round) {
    for (std::uint8_t bits = 1; bits <= 8; ++bits) {
      ExpectRandomBodiesDecode<std::uint8_t>(bits, random);
    }
    for (std::uint8_t bits = 9; bits <= 16; ++bits) {
      ExpectRandomBodiesDecode<std::uint16_t>(bits, random);
    }
  }
}

}  // namespace forebay::compress::wavefront_kernel_test
