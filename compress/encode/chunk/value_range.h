// Bounds relative to the range of a field's values: found out, and made absolute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"
#include "proto/contract/tensor.h"

namespace forebay::compress {

// The smallest and the largest of a field's valid values (IsValidValue).
struct ValueRange {
  double low = 0, high = 0;

  double width() const { return high - low; }
};

// Finds the range of values that pass, as in a pass over all samples before they are packed. Not
// thread-safe.
class RangeFinder {
 public:
  explicit RangeFinder(const PackField& field)
      : dtype_(field.dtype), fill_bits_(field.fill_bits) {}

  // Whole elements, little-endian.
  void Add(std::span<const std::byte> elements);

  // Of all so far. 0 to 0 where none is valid.
  ValueRange range() const { return range_.value_or(ValueRange()); }

 private:
  const Dtype dtype_;
  const std::optional<std::uint64_t> fill_bits_;
  std::optional<ValueRange> range_;
};

// The absolute bound that `asked` means for a field of this range: `asked.relative` times its
// width, and for the modes that have an absolute bound, too, the smaller or the larger of both. The
// number of `asked.mode` is one of the modes relative to a chunk. So a pack holds what was asked of
// all chunks alike; how it came about is said under BoundKey. Errors: kInvalidArgument for another
// mode, and for a range that is not finite or upside down.
Result<DeclaredBound> BoundOfRange(const DeclaredBound& asked, const ValueRange& range);

// The key under which a pack's provenance says how the bound of `field` was asked for:
// "bound.temperature".
std::string BoundKey(std::string_view field);

}  // namespace forebay::compress
