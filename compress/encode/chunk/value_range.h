// Finds the range of a field's values, and makes bounds relative to it absolute.
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

// Finds the range of the values it is given, for example of all samples of a field before they are
// packed. Not thread-safe.
class RangeFinder {
 public:
  explicit RangeFinder(const PackField& field)
      : dtype_(field.dtype), fill_bits_(field.fill_bits) {}

  // Whole elements, little-endian.
  void Add(std::span<const std::byte> elements);

  // The range of all values so far; 0 to 0 if none is valid.
  ValueRange range() const { return range_.value_or(ValueRange()); }

 private:
  const Dtype dtype_;
  const std::optional<std::uint64_t> fill_bits_;
  std::optional<ValueRange> range_;
};

// The absolute bound that `asked` means for a field of this range: `asked.relative` times the width
// of the range, combined with `asked.absolute` as the mode says. `asked.mode` must be one of the
// modes that are relative to a chunk. All chunks of a pack then keep the same bound; BoundKey names
// the provenance entry that says how it was asked for. Errors: kInvalidArgument for another mode,
// and for a range that is not finite or has low > high.
Result<DeclaredBound> BoundOfRange(const DeclaredBound& asked, const ValueRange& range);

// The key under which a pack's provenance says how the bound of `field` was asked for:
// "bound.temperature".
std::string BoundKey(std::string_view field);

}  // namespace forebay::compress
