// How far values may lie from the originals: what `forebay pack --bound` asks for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/source/pack_source.h"
#include "compress/encode/chunk/value_range.h"
#include "compress/format/pack/field_statistics.h"
#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// A bound as it is asked for.
struct BoundRequest {
  compress::DeclaredBound bound;
  // `bound.relative` is of the range of the field's values; else of each chunk's, where the mode
  // is relative to a range.
  bool of_field = false;
  std::optional<compress::ValueRange> range;  // the field's, where it is given
};

// Positive numbers X, ABS and REL:
//   abs:X, pw:X                          absolute; of each value
//   rel:X, both:ABS,REL, either:ABS,REL  of the field's range; absolute and that: the smaller, the
//                                        larger. The range may be given: rel:X,LOW,HIGH
//   chunk-rel:X, chunk-both:ABS,REL, chunk-either:ABS,REL     of each chunk's range
Result<BoundRequest> ParseBound(std::string_view text);

// The text of a bound relative to a field's range, that range included: what ParseBound reads.
std::string BoundText(const BoundRequest& request, const compress::ValueRange& range);

struct BoundOptions {
  std::vector<std::string> bounds, fields;  // --bound, --field
  std::uint64_t samples = 0;                // of the source, that are packed
  // Opens the source once more, for ranges that are not given.
  std::function<Result<std::unique_ptr<PackSource>>()> open;
  // Of the set that samples are added to, or of the pack that is resumed, or null. It has one bound
  // throughout, so the range of its first samples counts where the same bound is asked for again.
  const compress::PackSchema* before = nullptr;
  // `before` is of the unfinished pack that is resumed: its ranges come from where it says.
  bool resumes = false;
};

// Gives the n-th bound to the n-th field named; a single bound to the one field that is neither a
// label nor byte strings. A bound relative to a field's range becomes an absolute one; the
// provenance has what was asked, and whether the range was given or found. Errors:
// kInvalidArgument, kNotFound (no such field), those of reading the source.
Status SetBounds(const BoundOptions& options, const PackSource& source,
                 compress::PackSchema& schema);

// "lossless", "abs 0.5", "abs 0.12 (rel 0.001 of the field's range, 200 to 320)".
std::string DescribeBound(const compress::PackSchema& schema, const compress::PackField& field);

// What is wrong with the range that was given for the field's bound, beside the `values` that were
// packed: some lie outside, or all in a small part of it. Nothing where no range was given.
std::optional<std::string> RangeWarning(const compress::PackSchema& schema,
                                        const compress::PackField& field,
                                        const compress::FieldStatistics& values);

}  // namespace forebay::cli
