// Visits the values of a chunk one after the other, for statistics.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "compress/format/chunk/half_precision.h"
#include "compress/format/pack/pack_format.h"

namespace forebay::compress {

template <typename Bits>
Bits LoadElement(std::span<const std::byte> bytes, std::size_t index) {
  Bits value = 0;
  for (std::size_t i = 0; i < sizeof(Bits); ++i) {
    value = static_cast<Bits>(value | static_cast<Bits>(std::to_integer<Bits>(
                                          bytes[index * sizeof(Bits) + i]) << (8 * i)));
  }
  return value;
}

// Elements as unsigned integers of their width; convert(bits) is a std::int64_t or a double.
template <typename Bits, typename Visitor, typename Convert>
void VisitElements(const PackField& field, std::span<const std::byte> bytes, Visitor& visitor,
                   Convert convert) {
  const std::size_t count = bytes.size() / sizeof(Bits);
  const bool has_fill = field.fill_bits.has_value();
  const auto fill = static_cast<Bits>(field.fill_bits.value_or(0));
  for (std::size_t i = 0; i < count; ++i) {
    const Bits bits = LoadElement<Bits>(bytes, i);
    const auto value = convert(bits);
    if constexpr (std::is_floating_point_v<decltype(convert(bits))>) {
      if (std::isnan(value)) {
        visitor.Nan();
        continue;
      }
    }
    if (has_fill && bits == fill) {
      visitor.Fill();
    } else {
      visitor.Value(value);
    }
  }
}

template <typename Element, typename Visitor>
void VisitIntegers(const PackField& field, std::span<const std::byte> bytes, Visitor& visitor) {
  using Bits = std::make_unsigned_t<Element>;
  VisitElements<Bits>(field, bytes, visitor, [](Bits bits) {
    return static_cast<std::int64_t>(static_cast<Element>(bits));
  });
}

// The lengths of byte strings; one in parts counts where it begins.
template <typename Visitor>
void VisitLengths(const ChunkHead& head, Visitor& visitor) {
  if (head.sample_bytes != 0) {
    if (head.part_offset == 0) visitor.Value(static_cast<std::int64_t>(head.sample_bytes));
    return;
  }
  for (std::uint32_t i = 0; i < head.sample_count; ++i) {
    visitor.Value(static_cast<std::int64_t>(head.LengthOf(i)));
  }
}

// Calls, for each value of a chunk in the order of its decoded elements, Value(std::int64_t) or
// Value(double), Nan() or Fill(). A fill value that is NaN is NaN.
template <typename Visitor>
void VisitValues(const PackField& field, const ChunkHead& head,
                 std::span<const std::byte> decoded, Visitor& visitor) {
  if (field.variable()) return VisitLengths(head, visitor);
  switch (field.dtype) {
    case Dtype::kBytes:
    case Dtype::kU8: return VisitIntegers<std::uint8_t>(field, decoded, visitor);
    case Dtype::kI8: return VisitIntegers<std::int8_t>(field, decoded, visitor);
    case Dtype::kU16: return VisitIntegers<std::uint16_t>(field, decoded, visitor);
    case Dtype::kI16: return VisitIntegers<std::int16_t>(field, decoded, visitor);
    case Dtype::kI32: return VisitIntegers<std::int32_t>(field, decoded, visitor);
    case Dtype::kI64: return VisitIntegers<std::int64_t>(field, decoded, visitor);
    case Dtype::kF16: return VisitElements<std::uint16_t>(field, decoded, visitor, ValueOfF16);
    case Dtype::kBf16: return VisitElements<std::uint16_t>(field, decoded, visitor, ValueOfBf16);
    case Dtype::kF32:
      return VisitElements<std::uint32_t>(field, decoded, visitor, [](std::uint32_t bits) {
        return static_cast<double>(std::bit_cast<float>(bits));
      });
    case Dtype::kF64:
      return VisitElements<std::uint64_t>(field, decoded, visitor, [](std::uint64_t bits) {
        return std::bit_cast<double>(bits);
      });
  }
}

}  // namespace forebay::compress
