// Makes elements for tests: a slow wave with noise, few values, holes, special values and so on, of
// every type, from a seed.
#include "compress/encode/testing/chunk_samples.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "compress/format/chunk/element_code.h"
#include "compress/format/chunk/quantiser.h"

namespace forebay::compress {
namespace {

std::uint64_t BitsOfValue(Dtype dtype, double value) {
  if (OrderOf(dtype) == CodeOrder::kFloat) return FloatElementOf(dtype, value);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
}

}  // namespace

std::uint64_t SampleMaker::Element(const ChunkShape& shape, SampleKind kind, std::size_t index) {
  const double wave = 50 + 40 * std::sin(static_cast<double>(index) * 0.01);
  const std::uint64_t fill = shape.fill_bits.value_or(0);
  // Corners of the formats: zeros of both signs, NaNs with payloads, infinities, subnormals.
  const std::array<double, 6> corners = {0.0, -0.0, HUGE_VAL, -HUGE_VAL, 1.0, -1.0};
  switch (kind) {
    case SampleKind::kConstant: return BitsOfValue(shape.dtype, 17);
    case SampleKind::kSmooth:
      return BitsOfValue(shape.dtype, wave + static_cast<double>(Below(16)) / 8);
    case SampleKind::kNoise: return Bits();
    case SampleKind::kFewValues:
      return BitsOfValue(shape.dtype, static_cast<double>(Below(5) * 23));
    case SampleKind::kHoles: return index / 37 % 3 == 0 ? fill : BitsOfValue(shape.dtype, wave);
    case SampleKind::kSpecial:
      if (Below(3) == 0) return Bits();
      if (Below(3) == 0) return Below(16) - 8;  // subnormals and NaNs with all bits set
      if (Below(3) != 0) return BitsOfValue(shape.dtype, wave);
      return OrderOf(shape.dtype) == CodeOrder::kFloat
                 ? FloatElementOf(shape.dtype, corners[Below(corners.size())])
                 : Below(2) - 1;
    case SampleKind::kSteps: return (index / 50) << (8 * shape.element_bytes() - 5);
    case SampleKind::kOneOutlier: return Below(997) == 0 ? ~0ULL : BitsOfValue(shape.dtype, wave);
  }
  return 0;
}

std::vector<std::byte> SampleMaker::Make(const ChunkShape& shape, SampleKind kind) {
  std::vector<std::byte> raw(shape.bytes());
  const std::size_t bytes = shape.element_bytes();
  for (std::size_t i = 0; i < shape.elements(); ++i) {
    const std::uint64_t bits = Element(shape, kind, i);
    std::memcpy(raw.data() + i * bytes, &bits, bytes);
  }
  return raw;
}

ChunkShape SampleMaker::Shape(Dtype dtype) {
  ChunkShape shape = {.dtype = dtype};
  shape.samples = static_cast<std::uint32_t>(1 + Below(4));
  shape.rank = static_cast<std::uint8_t>(Below(5));
  std::size_t left = 5000;
  for (std::size_t axis = 0; axis < shape.rank; ++axis) {
    const bool last = axis + 1 == shape.rank;
    const std::uint64_t most = last ? left : std::min<std::size_t>(left, 80);
    shape.extent[axis] = static_cast<std::uint32_t>(1 + Below(most));
    left /= shape.extent[axis];
    left += left == 0 ? 1 : 0;
  }
  if (shape.rank > 0 && Below(2) == 0) {
    shape.channel_axis = static_cast<std::int8_t>(Below(shape.rank));
    const auto axis = static_cast<std::size_t>(shape.channel_axis);
    if (Below(4) != 0) shape.extent[axis] = static_cast<std::uint32_t>(1 + Below(5));
  }
  return shape;
}

std::string Describe(const ChunkShape& shape) {
  std::string text = std::string(DtypeName(shape.dtype)) + " " + std::to_string(shape.samples);
  for (std::size_t axis = 0; axis < shape.rank; ++axis) {
    text += "x" + std::to_string(shape.extent[axis]);
  }
  return text + ", channels on axis " + std::to_string(shape.channel_axis);
}

}  // namespace forebay::compress
