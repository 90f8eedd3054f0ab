// Finds the range of a field's valid values and turns a bound relative to it into an absolute one.
// A bound relative to a whole field cannot be kept chunk by chunk, because a chunk does not know
// the range of the others: the command `forebay pack` reads the field once before it packs.
#include "compress/encode/chunk/value_range.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compress/encode/chunk/bound_checker.h"
#include "compress/encode/chunk/error_bound.h"
#include "compress/format/chunk/quantiser.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

Error Invalid(const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, "error bound: " + what);
}

}  // namespace

void RangeFinder::Add(std::span<const std::byte> elements) {
  const std::size_t bytes = DtypeBytes(dtype_);
  FOREBAY_CHECK(elements.size() % bytes == 0);
  for (std::size_t at = 0; at < elements.size(); at += bytes) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, elements.data() + at, bytes);
    // Values that no bound applies to, such as NaN and the fill value, are not part of the range.
    if (!IsValidValue(dtype_, bits, fill_bits_)) continue;
    const double value = ValueOfElement(dtype_, bits);
    if (!range_.has_value()) range_ = ValueRange{.low = value, .high = value};
    range_->low = std::min(range_->low, value);
    range_->high = std::max(range_->high, value);
  }
}

Result<DeclaredBound> BoundOfRange(const DeclaredBound& asked, const ValueRange& range) {
  const double width = range.width();
  // The difference of two finite doubles may overflow; a negative width means that a caller gave
  // the ends in the wrong order.
  if (!std::isfinite(width) || width < 0) {
    return Invalid("a range from " + NumberText(range.low) + " to " +
                   NumberText(range.high) +
                   "; wanted are the smallest and the largest value, not further apart than a "
                   "double can say; or give an absolute bound");
  }
  const ErrorBound bound = {.mode = static_cast<BoundMode>(asked.mode),
                            .absolute = asked.absolute,
                            .relative = asked.relative};
  // A bound of another mode does not depend on a range; that it came here is a caller's mistake.
  if (bound.mode != BoundMode::kChunkRelative &&
      bound.mode != BoundMode::kAbsoluteAndChunkRelative &&
      bound.mode != BoundMode::kAbsoluteOrChunkRelative) {
    return Invalid("mode " + std::to_string(asked.mode) + " is not relative to a range");
  }
  const double absolute = ResolveBound(bound, range.low, range.high);
  if (!std::isfinite(absolute)) {
    return Invalid(NumberText(asked.relative) +
                   " of the range is beyond what a double can say");
  }
  // The pack declares the absolute bound only: every chunk can keep it by itself.
  return DeclaredBound{.mode = static_cast<std::uint8_t>(BoundMode::kAbsolute),
                       .absolute = absolute};
}

std::string BoundKey(std::string_view field) { return "bound." + std::string(field); }

}  // namespace forebay::compress
