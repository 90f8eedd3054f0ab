// From planes to values of f32 on a linear scale: every kernel, and the common way beside it.
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "compress/decode/chunk/element_assembler.h"
#include "compress/decode/chunk/linear_values.h"
#include "compress/decode/isa.h"
#include "compress/encode/testing/chunk_samples.h"
#include "compress/format/chunk/quantiser.h"

namespace forebay::compress::linear_values_test {

constexpr std::uint32_t kSeed = 20261205;
constexpr std::byte kUntouched{0xC7};

// The bits of a number's value in the arithmetic that encoders check.
std::uint32_t ValueOf(double step, std::uint32_t number) {
  const auto signed_number = static_cast<std::int32_t>(number);
  std::uint32_t bits = 0;
  Dequantise<std::int32_t>({.kind = QuantiserKind::kLinear, .linear_step = step}, Dtype::kF32,
                           std::span(&signed_number, 1), reinterpret_cast<std::byte*>(&bits));
  return bits;
}

std::vector<std::byte> RandomBytes(std::size_t count, SampleMaker& maker) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(maker.Bits());
  return bytes;
}

std::vector<std::uint8_t> RandomMask(std::size_t count, SampleMaker& maker) {
  std::vector<std::uint8_t> mask(count);
  // Any byte but zero is set.
  for (auto& entry : mask) {
    entry = maker.Below(3) == 0 ? static_cast<std::uint8_t>(1 + maker.Below(255)) : std::uint8_t{0};
  }
  return mask;
}

std::uint32_t SampleAt(const std::byte* samples, std::size_t width, std::size_t index) {
  std::uint32_t sample = 0;
  std::memcpy(&sample, samples + index * width, width);
  return sample;
}

std::vector<std::byte> Expected(const LinearRun& run, std::size_t count) {
  std::vector<std::byte> bytes((count + 16) * sizeof(std::uint32_t), kUntouched);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t sample = SampleAt(run.samples, run.sample_bytes, i) & run.sample_mask;
    std::uint32_t bits = ValueOf(run.step, run.base + (sample << run.shift));
    for (std::uint32_t m = 0; m < run.mask_count; ++m) {
      if (run.masks[m][i] != 0) bits = run.patterns[m];
    }
    std::memcpy(bytes.data() + i * sizeof(bits), &bits, sizeof(bits));
  }
  return bytes;
}

TEST(LinearValues, AreTheSameWithEveryKernelAndNothingBesideIsWritten) {
  SampleMaker maker(kSeed);
  for (std::size_t count = 0; count < 200; ++count) {
    const std::uint8_t width = count % 2 == 0 ? 1 : 2;
    // One byte off, so that nothing relies on where samples lie.
    const std::vector<std::byte> samples = RandomBytes(count * width + 1, maker);
    const std::array masks = {RandomMask(count, maker), RandomMask(count, maker)};
    const LinearRun run = {.samples = samples.data() + 1,
                           .sample_bytes = width,
                           .shift = static_cast<std::uint8_t>(maker.Below(32)),
                           .sample_mask = (1U << (1 + maker.Below(8U * width))) - 1,
                           .base = static_cast<std::uint32_t>(maker.Bits()),
                           .step = std::ldexp(1.0 + 1e-9 * static_cast<double>(maker.Below(1000)),
                                              static_cast<int>(maker.Below(300)) - 190),
                           .mask_count = static_cast<std::uint32_t>(maker.Below(3)),
                           .masks = {masks[0].data(), masks[1].data()},
                           .patterns = {0x7FC0'1234, 0xD015'02F9}};
    const std::vector<std::byte> expected = Expected(run, count);
    for (const Isa isa : AvailableIsas()) {
      std::vector<std::byte> values(expected.size(), kUntouched);
      EmitLinearValues(run, count, values.data(), isa);
      ASSERT_EQ(values, expected) << count << " values, isa " << static_cast<int>(isa)
                                  << ", seed " << kSeed;
    }
  }
}

// Planes of `bits`, lowest first; those named in `constant` are one sample.
struct StackOfPlanes {
  ChunkShape shape = {
      .dtype = Dtype::kF32, .samples = 3, .rank = 2, .extent = {5, 13, 1, 1}};
  ChunkGeometry geometry = GeometryOf(shape);
  ChunkStages stages;
  std::array<std::vector<std::byte>, 3> samples;
  std::array<PlaneSource, 3> planes;
  std::vector<std::uint8_t> mask;

  StackOfPlanes(std::array<std::uint8_t, 3> bits, std::array<bool, 3> constant,
                SampleMaker& maker) {
    stages.quantiser = {.kind = QuantiserKind::kLinear, .linear_step = 0.0371};
    stages.mask_count = 1;
    stages.masks[0].pattern = 0xFF80'0000;
    stages.offset = maker.Bits() & 0xFFFF'FFFF;
    stages.shift = 3;
    stages.plane_count = 3;
    for (std::size_t p = 0; p < planes.size(); ++p) {
      stages.plane_bits[p] = bits[p];
      const std::size_t width = bits[p] <= 8 ? 1 : 2;
      planes[p].sample_bytes = width;
      if (constant[p]) {
        planes[p].constant = static_cast<std::uint32_t>(maker.Below(1U << bits[p]));
        continue;
      }
      samples[p] = RandomBytes(shape.elements() * width, maker);
      planes[p].samples = samples[p].data();
    }
    mask = RandomMask(2 * shape.sample_elements(), maker);
  }

  // Of element `index` of the last two samples.
  std::uint32_t ExpectedBits(std::size_t index) const {
    if (mask[index] != 0) return static_cast<std::uint32_t>(stages.masks[0].pattern);
    std::uint32_t code = 0;
    unsigned shift = 0;
    for (std::size_t p = 0; p < planes.size(); ++p) {
      const std::uint32_t part =
          planes[p].samples == nullptr
              ? planes[p].constant
              : SampleAt(planes[p].samples, planes[p].sample_bytes,
                         index + shape.sample_elements()) & ((1U << stages.plane_bits[p]) - 1);
      code |= part << shift;
      shift += stages.plane_bits[p];
    }
    return ValueOf(stages.quantiser.linear_step,
                   static_cast<std::uint32_t>(stages.offset) + (code << stages.shift));
  }
};

TEST(LinearValues, ComeOfAnyPlanesConstantOrNot) {
  SampleMaker maker(kSeed + 1);
  for (std::uint32_t constant = 0; constant < 8; ++constant) {
    for (const std::uint8_t middle : {std::uint8_t{7}, std::uint8_t{13}}) {
      const StackOfPlanes stack({4, middle, 8},
                                {(constant & 1) != 0, (constant & 2) != 0, (constant & 4) != 0},
                                maker);
      const AssemblyJob job = {.shape = &stack.shape,
                               .geometry = &stack.geometry,
                               .stages = &stack.stages,
                               .planes = stack.planes,
                               .dictionary = {},
                               .masks = {std::span(stack.mask)},
                               .first_sample = 1,
                               .sample_count = 2};
      std::vector<std::uint32_t> values(stack.mask.size());
      ASSERT_TRUE(
          AssembleElements(job, std::as_writable_bytes(std::span(values))).has_value());
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], stack.ExpectedBits(i)) << i << ", constant planes " << constant;
      }
    }
  }
}

}  // namespace forebay::compress::linear_values_test
