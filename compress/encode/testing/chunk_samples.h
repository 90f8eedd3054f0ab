// Chunks for tests: every element type, values of every kind, from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "compress/format/chunk/chunk_shape.h"

namespace forebay::compress {

enum class SampleKind : std::uint8_t {
  kConstant, kSmooth, kNoise, kFewValues, kHoles, kSpecial, kSteps, kOneOutlier,
};
inline constexpr std::size_t kSampleKinds = 8;

inline constexpr Dtype kAllDtypes[] = {Dtype::kBytes, Dtype::kU8,  Dtype::kI8,  Dtype::kU16,
                                       Dtype::kI16,   Dtype::kI32, Dtype::kI64, Dtype::kF16,
                                       Dtype::kBf16,  Dtype::kF32, Dtype::kF64};

// Numbers of no library distribution: the same on every machine.
class SampleMaker {
 public:
  explicit SampleMaker(std::uint32_t seed) : random_(seed) {}

  std::uint64_t Below(std::uint64_t limit) { return Bits() % limit; }
  std::uint64_t Bits() {
    const std::uint64_t high = random_();
    return high << 32 | random_();
  }
  // Elements of `shape`, dense. `shape.fill_bits` is what kHoles puts into its holes.
  std::vector<std::byte> Make(const ChunkShape& shape, SampleKind kind);
  // A shape of at most about 20,000 elements, with or without channels.
  ChunkShape Shape(Dtype dtype);

 private:
  std::uint64_t Element(const ChunkShape& shape, SampleKind kind, std::size_t index);

  std::mt19937 random_;
};

// What a failing test prints.
std::string Describe(const ChunkShape& shape);

}  // namespace forebay::compress
