// Error bounds as users write them, and as a pack declares them. A bound relative to the range of a
// field becomes an absolute one here: the range is given, or taken from what the set or the
// unfinished pack says, or found by a pass over all samples. The pack's provenance keeps what was
// asked, so that appending and resuming ask for the same.
#include "client/cli/pack/pack_bounds.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "compress/encode/chunk/error_bound.h"

namespace forebay::cli {
namespace {

using compress::BoundMode;
using compress::PackField;
using compress::PackSchema;
using compress::ValueRange;

constexpr std::string_view kOfChunk = "chunk-";
constexpr std::string_view kGiven = "given";  // an origin of a range
// A given range is said to be wide beside the values from here on.
constexpr double kWideRange = 10;

struct BoundKind {
  std::string_view name;
  BoundMode mode;
  std::size_t numbers;
};
constexpr std::array kKinds = {
    BoundKind{"abs", BoundMode::kAbsolute, 1},
    BoundKind{"pw", BoundMode::kPointwise, 1},
    BoundKind{"rel", BoundMode::kChunkRelative, 1},
    BoundKind{"both", BoundMode::kAbsoluteAndChunkRelative, 2},
    BoundKind{"either", BoundMode::kAbsoluteOrChunkRelative, 2},
};

Error BadBound(std::string what) { return Error(ErrorCode::kInvalidArgument, std::move(what)); }

bool IsOfRange(BoundMode mode) {
  // A lossless field has no request of a bound, so it does not come here.
  return mode != BoundMode::kAbsolute && mode != BoundMode::kPointwise;
}

// Finite numbers between commas, or nothing.
std::optional<std::vector<double>> NumbersOf(std::string_view text) {
  std::vector<double> numbers;
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    double value = 0;
    // from_chars knows no locale: a bound means the same on every machine.
    const auto [end, failed] = std::from_chars(part.data(), part.data() + part.size(), value);
    // The whole part must be a number: "0.5x" is refused instead of read as 0.5.
    if (failed != std::errc() || end != part.data() + part.size() || !std::isfinite(value)) {
      return std::nullopt;
    }
    numbers.push_back(value);
    // No comma was left. A text that ends in a comma goes round once more and fails at the empty
    // part.
    if (part.size() == text.size()) return numbers;
    text.remove_prefix(part.size() + 1);
  }
}

Error WrongBound(std::string_view text) {
  return BadBound(fmt::format(
      "--bound {}: wanted is abs:X, rel:X, pw:X, both:ABS,REL or either:ABS,REL with positive "
      "numbers, behind which rel, both and either may have the range of the field's values, "
      "LOW,HIGH; or chunk-rel, chunk-both and chunk-either, of the range of each chunk's",
      text));
}

// The field that a bound is of.
Result<PackField*> FieldOf(const BoundOptions& options, std::size_t number, PackSchema& schema) {
  std::vector<PackField*> wanted;
  std::string names;
  for (PackField& field : schema.fields) {
    const bool named = !options.fields.empty() && field.name == options.fields[number];
    // Without --field a bound is of the one field that can have one. Where there are several,
    // choosing is the user's: an error bound on the wrong field damages data.
    const bool only = options.fields.empty() && field.dtype != Dtype::kBytes &&
                      field.kind != compress::FieldKind::kLabel;
    if (named || only) wanted.push_back(&field);
    // The message lists the names, so that a user who misspelt one finds the right one.
    names += (names.empty() ? "" : ", ") + field.name;
  }
  if (wanted.empty()) {
    return Error(ErrorCode::kNotFound,
                 fmt::format("--bound {}: no field {}; there are: {}", options.bounds[number],
                             options.fields.empty() ? "to bound" : options.fields[number], names));
  }
  if (wanted.size() > 1 || (options.fields.empty() && options.bounds.size() > 1)) {
    return BadBound(fmt::format("--bound {}: say of which field with --field; there are: {}",
                                options.bounds[number], names));
  }
  return wanted.front();
}

Status CheckBoundOf(const PackField& field, const std::string& text) {
  if (field.bound.mode == static_cast<std::uint8_t>(BoundMode::kPointwise) &&
      field.dtype < Dtype::kF16) {
    return BadBound(fmt::format("--bound {}: field {} has {} elements; pw is for floating point: "
                                "use abs or rel", text, field.name, DtypeName(field.dtype)));
  }
  // The writer's own check, asked now and not after the first samples were read.
  const Status writable = compress::CheckWritableBound(field);
  if (!writable.has_value()) return writable.error().WithContext("--bound " + text);
  return {};
}

std::string_view FindProvenance(const PackSchema& schema, std::string_view key) {
  const auto found =
      std::ranges::find(schema.provenance, key, &std::pair<std::string, std::string>::first);
  return found == schema.provenance.end() ? std::string_view() : found->second;
}

void SetProvenance(const std::string& key, std::string value, PackSchema& schema) {
  // The source may be a pack that had an entry of its own under this key.
  std::erase_if(schema.provenance, [&](const auto& entry) { return entry.first == key; });
  if (!value.empty()) schema.provenance.emplace_back(key, std::move(value));
}

// What `field`'s bound was asked for as, where that was relative to its range.
std::optional<BoundRequest> AskedBefore(const PackSchema& schema, const PackField& field) {
  const auto asked = ParseBound(FindProvenance(schema, compress::BoundKey(field.name)));
  // Provenance is text that anybody may have written; what does not parse as a bound with its range
  // was not written here.
  if (!asked.has_value() || !asked->of_field || !asked->range.has_value()) return std::nullopt;
  return *asked;
}

// The key under which provenance says where the range of `field` comes from. No BoundKey begins so,
// whatever the names of fields are.
std::string OriginKey(std::string_view field) { return "bound-range." + std::string(field); }

bool IsSameBound(const compress::DeclaredBound& a, const compress::DeclaredBound& b) {
  // Exact comparison: the texts of numbers are written so that they read back to the same bits.
  return a.mode == b.mode && a.absolute == b.absolute && a.relative == b.relative;
}

// A field whose range is not known yet.
struct Unknown {
  std::size_t number = 0;  // of the bound
  // Points into the schema, whose list of fields does not change while bounds are set.
  PackField* field = nullptr;
  BoundRequest request;
};

Status Resolve(const std::string& text, const BoundRequest& request, const ValueRange& range,
               std::string_view origin, PackField& field, PackSchema& schema) {
  const auto bound = compress::BoundOfRange(request.bound, range);
  if (!bound.has_value()) return bound.error().WithContext("--bound " + text);
  // From here on the bound is absolute. Readers need no provenance to know what holds.
  field.bound = *bound;
  SetProvenance(compress::BoundKey(field.name), BoundText(request, range), schema);
  SetProvenance(OriginKey(field.name), std::string(origin), schema);
  return {};
}

// What is opened again may have changed meanwhile.
Status CheckSameSource(const PackSource& again, const PackSchema& schema, std::uint64_t samples) {
  const std::vector<PackField>& fields = again.schema().fields;
  const auto same = [](const PackField& a, const PackField& b) {
    return a.name == b.name && a.dtype == b.dtype && a.rank == b.rank && a.extent == b.extent;
  };
  // The names and shapes only: comparing the values would take the pass that follows.
  if (again.samples() >= samples && std::ranges::equal(fields, schema.fields, same)) return {};
  return Error(ErrorCode::kFailedPrecondition,
               "the samples changed while they were read for the range of their values; pack them "
               "when nobody writes them, or give the range");
}

// One pass over all samples.
Result<std::vector<ValueRange>> FindRanges(const BoundOptions& options, const PackSchema& schema,
                                           const std::vector<Unknown>& unknown) {
  FOREBAY_ASSIGN(const std::unique_ptr<PackSource> source, options.open());
  FOREBAY_TRY(CheckSameSource(*source, schema, options.samples));
  std::vector<compress::RangeFinder> finders;
  finders.reserve(unknown.size());
  for (const Unknown& one : unknown) finders.emplace_back(*one.field);
  PackSample sample;
  // Only the samples that will be packed are read, because the others must not widen the range.
  for (std::uint64_t i = 0; i < options.samples; ++i) {
    FOREBAY_TRY(source->Next(sample));
    for (std::size_t u = 0; u < unknown.size(); ++u) {
      // One pass finds the ranges of all fields that need one.
      finders[u].Add(sample.fields[static_cast<std::size_t>(unknown[u].field -
                                                            schema.fields.data())]);
    }
  }
  std::vector<ValueRange> ranges;
  ranges.reserve(finders.size());
  for (const compress::RangeFinder& finder : finders) ranges.push_back(finder.range());
  return ranges;
}

}  // namespace

Result<BoundRequest> ParseBound(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == text.npos) return WrongBound(text);
  std::string_view name = text.substr(0, colon);
  const bool of_chunk = name.starts_with(kOfChunk);
  if (of_chunk) name.remove_prefix(kOfChunk.size());
  const auto kind = std::ranges::find(kKinds, name, &BoundKind::name);
  const auto numbers = NumbersOf(text.substr(colon + 1));
  if (kind == kKinds.end() || !numbers.has_value() || (of_chunk && !IsOfRange(kind->mode))) {
    return WrongBound(text);
  }
  BoundRequest request{
      .bound = {}, .of_field = IsOfRange(kind->mode) && !of_chunk, .range = std::nullopt};
  const bool has_range = request.of_field && numbers->size() == kind->numbers + 2;
  if (!has_range && numbers->size() != kind->numbers) return WrongBound(text);
  for (std::size_t i = 0; i < kind->numbers; ++i) {
    // Bounds are positive; the limits of a range behind them may have any sign.
    if ((*numbers)[i] <= 0) return WrongBound(text);
  }
  request.bound.mode = static_cast<std::uint8_t>(kind->mode);
  if (kind->mode == BoundMode::kAbsolute || kind->numbers == 2) {
    request.bound.absolute = numbers->front();
  }
  if (kind->mode != BoundMode::kAbsolute) request.bound.relative = (*numbers)[kind->numbers - 1];
  if (has_range) {
    request.range = ValueRange{.low = (*numbers)[kind->numbers], .high = numbers->back()};
    if (request.range->high < request.range->low) return WrongBound(text);
  }
  return request;
}

std::string BoundText(const BoundRequest& request, const ValueRange& range) {
  const auto kind = std::ranges::find(kKinds, static_cast<BoundMode>(request.bound.mode),
                                      &BoundKind::mode);
  const std::string absolute =
      kind->numbers == 2 ? fmt::format("{},", request.bound.absolute) : std::string();
  // fmt writes the fewest digits that read back as the same number.
  return fmt::format("{}:{}{},{},{}", kind->name, absolute, request.bound.relative, range.low,
                     range.high);
}

Status SetBounds(const BoundOptions& options, const PackSource& source, PackSchema& schema) {
  if (!options.fields.empty() && options.fields.size() != options.bounds.size()) {
    return BadBound(fmt::format("{} times --field and {} times --bound; each bound is of one field",
                                options.fields.size(), options.bounds.size()));
  }
  std::vector<Unknown> unknown;
  for (std::size_t i = 0; i < options.bounds.size(); ++i) {
    const std::string& text = options.bounds[i];
    FOREBAY_ASSIGN(BoundRequest request, ParseBound(text));
    FOREBAY_ASSIGN(PackField* const field, FieldOf(options, i, schema));
    field->bound = request.bound;
    FOREBAY_TRY(CheckBoundOf(*field, text));
    SetProvenance(compress::BoundKey(field->name), "", schema);  // of the pack they come from
    SetProvenance(OriginKey(field->name), "", schema);
    // An absolute bound, or one that each chunk resolves by itself when it is coded.
    if (!request.of_field) continue;
    std::string_view origin = kGiven;
    if (!request.range.has_value() && options.before != nullptr) {
      const auto before = AskedBefore(*options.before, *field);
      // The samples before were coded within the range that was found then. A new range would be
      // another bound in the same pack or set.
      if (before.has_value() && IsSameBound(before->bound, request.bound)) {
        request.range = before->range;
        origin = options.resumes ? FindProvenance(*options.before, OriginKey(field->name))
                                 : "of the set's first samples";
      }
    }
    if (request.range.has_value()) {
      FOREBAY_TRY(Resolve(text, request, *request.range, origin, *field, schema));
      continue;
    }
    // A stream of a daemon comes once. Keeping all samples until the range is known could take more
    // memory than there is.
    if (!source.can_be_read_again()) {
      return BadBound(fmt::format(
          "--bound {}: the range of field {} is not known before its samples have come, and they "
          "come once: give the range, as in {},LOW,HIGH, or bound each chunk by its own, "
          "{}{}", text, field->name, text, kOfChunk, text));
    }
    unknown.push_back({.number = i, .field = field, .request = request});
  }
  if (unknown.empty()) return {};
  FOREBAY_ASSIGN(const std::vector<ValueRange> ranges, FindRanges(options, schema, unknown));
  for (std::size_t u = 0; u < unknown.size(); ++u) {
    const Unknown& one = unknown[u];
    FOREBAY_TRY(Resolve(options.bounds[one.number], one.request, ranges[u], "found", *one.field,
                        schema));
  }
  return {};
}

std::string DescribeBound(const PackSchema& schema, const PackField& field) {
  const compress::DeclaredBound& bound = field.bound;
  switch (static_cast<BoundMode>(bound.mode)) {
    case BoundMode::kLossless: return "lossless";
    case BoundMode::kAbsolute: break;
    case BoundMode::kChunkRelative: return fmt::format("chunk-rel {}", bound.relative);
    case BoundMode::kAbsoluteAndChunkRelative:
      return fmt::format("abs {} and chunk-rel {}", bound.absolute, bound.relative);
    case BoundMode::kAbsoluteOrChunkRelative:
      return fmt::format("abs {} or chunk-rel {}", bound.absolute, bound.relative);
    case BoundMode::kPointwise: return fmt::format("pw {}", bound.relative);
  }
  std::string text = fmt::format("abs {}", bound.absolute);
  const auto asked = AskedBefore(schema, field);
  if (!asked.has_value()) return text;
  // Provenance is what somebody wrote; the bound is what holds.
  const auto meant = compress::BoundOfRange(asked->bound, *asked->range);
  if (!meant.has_value() || meant->absolute != bound.absolute) return text;
  switch (static_cast<BoundMode>(asked->bound.mode)) {
    case BoundMode::kAbsoluteAndChunkRelative:
      text += fmt::format(" (abs {} and rel {}", asked->bound.absolute, asked->bound.relative);
      break;
    case BoundMode::kAbsoluteOrChunkRelative:
      text += fmt::format(" (abs {} or rel {}", asked->bound.absolute, asked->bound.relative);
      break;
    default: text += fmt::format(" (rel {}", asked->bound.relative);
  }
  return text + fmt::format(" of the field's range, {} to {})", asked->range->low,
                            asked->range->high);
}

std::optional<std::string> RangeWarning(const PackSchema& schema, const PackField& field,
                                        const compress::FieldStatistics& values) {
  const auto asked = AskedBefore(schema, field);
  if (!asked.has_value() || FindProvenance(schema, OriginKey(field.name)) != kGiven ||
      values.valid == 0) {
    return std::nullopt;
  }
  const ValueRange& given = *asked->range;
  const double bound = field.bound.absolute;
  const double low = MinimumOf(field, values), high = MaximumOf(field, values);
  const std::string lie = fmt::format("field {}: values lie from {} to {}", field.name, low, high);
  if (low < given.low - bound || high > given.high + bound) {
    return fmt::format("{}, beyond the range that --bound gave, {} to {}; all of them are within "
                       "{} of the originals", lie, given.low, given.high, bound);
  }
  // Decoded values: what they lie apart is known to within the bound on either side.
  if (given.width() > kWideRange * (high - low + 2 * bound) || bound > high - low + 2 * bound) {
    return fmt::format("{}, a small part of the range that --bound gave, {} to {}: errors of up "
                       "to {} are large beside it", lie, given.low, given.high, bound);
  }
  return std::nullopt;
}

}  // namespace forebay::cli
