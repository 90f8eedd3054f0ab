// Parses selections and holds them. A range is two numbers. A list and a hash fraction become a
// sorted vector of ids, so At is an index and IndexOf a binary search. Every spec is rewritten to a
// canonical text, so that two spellings of one selection have the same fingerprint.
#include "server/catalog/selection.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "proto/contract/order_mix.h"
#include "proto/contract/printable.h"
#include "server/catalog/input_error.h"

namespace forebay::catalog {
namespace {

constexpr std::uint64_t kFractionOne = 1'000'000'000;  // 1 as a fraction of 9 digits
constexpr std::size_t kFractionDigitsMax = 9;

// Every error repeats the spec, because one configuration can have many streams.
Error SpecError(std::string_view spec, std::string_view reason) {
  return Error(ErrorCode::kInvalidArgument,
               "selection " + Quoted(spec) + ": " + std::string(reason));
}

// Parses decimal digits, all of them. No sign and no space is accepted: from_chars skips none.
std::optional<std::uint64_t> ParseNumber(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (text.empty() || status != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Parses "0.25", "1" or ".5" into a count of billionths; nullopt above 1 or beyond 9 digits.
// Fractions are whole numbers and never floating point, so that every reader selects the same
// samples.
std::optional<std::uint64_t> ParseFraction(std::string_view text) {
  const std::size_t dot = text.find('.');
  const std::string_view whole = text.substr(0, dot);
  std::string digits(dot == std::string_view::npos ? "" : text.substr(dot + 1));
  if (digits.size() > kFractionDigitsMax || (whole.empty() && digits.empty())) {
    return std::nullopt;
  }
  digits.resize(kFractionDigitsMax, '0');  // "25" means 250,000,000 billionths
  const auto high = whole.empty() ? std::optional<std::uint64_t>(0) : ParseNumber(whole);
  const auto low = ParseNumber(digits);
  if (!high.has_value() || !low.has_value() || *high > 1) return std::nullopt;
  const std::uint64_t value = *high * kFractionOne + *low;
  return value <= kFractionOne ? std::optional(value) : std::nullopt;
}

// The canonical text of a fraction: no zeros at its end, and no point where it is 0 or 1.
std::string FractionText(std::uint64_t billionths) {
  std::string digits = std::to_string(billionths % kFractionOne);
  digits.insert(0, kFractionDigitsMax - digits.size(), '0');
  digits.erase(digits.find_last_not_of('0') + 1);
  const std::string whole = std::to_string(billionths / kFractionOne);
  return digits.empty() ? whole : whole + "." + digits;
}

// Splits at the first four colons. No form has five parts, so a caller refuses a fifth by counting.
std::vector<std::string_view> SplitColons(std::string_view spec) {
  std::vector<std::string_view> parts;
  while (parts.size() < 4) {
    const std::size_t colon = spec.find(':');
    parts.push_back(spec.substr(0, colon));
    if (colon == std::string_view::npos) return parts;
    spec.remove_prefix(colon + 1);
  }
  parts.push_back(spec);
  return parts;
}

std::uint64_t SpecFingerprint(std::string_view spec, std::uint64_t sample_count,
                              std::uint64_t content_hash) {
  // The number of samples is part of the fingerprint: "all" of a data set that has grown is another
  // selection, and a token of the old one must not resume in it. `content_hash` is 0 for every form
  // whose spec alone decides the ids.
  ByteWriter text;
  text.String(spec);
  text.Le(sample_count);
  text.Le(content_hash);
  return Checksum(text.bytes());
}

// Consecutive samples. "all" is the range of all of them, with its own text.
class RangeSelection final : public Selection {
 public:
  struct Options {
    std::string spec;
    std::uint64_t sample_count = 0;
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  explicit RangeSelection(Options options)
      : options_(std::move(options)),
        fingerprint_(SpecFingerprint(options_.spec, options_.sample_count, 0)) {}

  std::uint64_t size() const override { return options_.count; }
  SampleId At(std::uint64_t index) const override {
    FOREBAY_CHECK(index < options_.count);
    return SampleId(options_.first + index);
  }
  std::uint64_t IndexOf(SampleId sample) const override {
    if (sample.value() < options_.first) return options_.count;
    // Both bounds are compared by subtraction from `first`, so no sum of two numbers from a spec is
    // formed.
    // Beyond the range, min gives count, which means "not selected".
    return std::min(sample.value() - options_.first, options_.count);
  }
  std::uint64_t fingerprint() const override { return fingerprint_; }
  std::string_view spec() const override { return options_.spec; }

 private:
  Options options_;
  std::uint64_t fingerprint_;
};

// A sorted list of ids. `Word` is 32 bits wide if all ids of the catalog fit, which halves the
// memory of nearly every list.
template <typename Word>
class ListSelection final : public Selection {
 public:
  ListSelection(std::string spec, std::uint64_t sample_count, std::vector<Word> ids,
                bool is_content_in_spec)
      : spec_(std::move(spec)), ids_(std::move(ids)) {
    // A hash selection's ids follow from its spec. A list's ids do not, so they are hashed as well:
    // two lists of the same name with different contents get different fingerprints.
    const std::uint64_t content =
        is_content_in_spec ? 0 : Checksum(std::as_bytes(std::span(ids_)));
    fingerprint_ = SpecFingerprint(spec_, sample_count, content);
  }

  std::uint64_t size() const override { return ids_.size(); }
  SampleId At(std::uint64_t index) const override {
    FOREBAY_CHECK(index < ids_.size());
    return SampleId(ids_[index]);
  }
  std::uint64_t IndexOf(SampleId sample) const override {
    // A search and no table of all samples, which would take memory in proportion to the catalog
    // even for a short list.
    const auto found = std::lower_bound(ids_.begin(), ids_.end(), sample.value());
    if (found == ids_.end() || *found != sample.value()) return ids_.size();
    return static_cast<std::uint64_t>(found - ids_.begin());
  }
  std::uint64_t fingerprint() const override { return fingerprint_; }
  std::string_view spec() const override { return spec_; }

 private:
  std::string spec_;
  std::vector<Word> ids_;
  std::uint64_t fingerprint_ = 0;
};

Result<std::shared_ptr<const Selection>> MakeRange(std::string_view spec,
                                                   std::span<const std::string_view> parts,
                                                   std::uint64_t sample_count) {
  if (parts.size() != 3) return SpecError(spec, "expected range:FIRST:COUNT");
  const auto first = ParseNumber(parts[1]);
  const auto count = ParseNumber(parts[2]);
  if (!first.has_value() || !count.has_value()) {
    return SpecError(spec, "FIRST and COUNT are decimal numbers");
  }
  // Subtraction, because FIRST + COUNT could wrap.
  if (*first > sample_count || *count > sample_count - *first) {
    return SpecError(spec, "range ends past the last of " + std::to_string(sample_count) +
                               " samples");
  }
  // A stream without samples would have no step: each of its epochs would end at once. Every form
  // refuses this.
  if (*count == 0) return SpecError(spec, "selects no sample");
  return std::make_shared<const RangeSelection>(RangeSelection::Options{
      .spec = "range:" + std::to_string(*first) + ":" + std::to_string(*count),
      .sample_count = sample_count,
      .first = *first,
      .count = *count});
}

struct HashWindow {
  std::uint64_t begin = 0;  // in billionths
  std::uint64_t end = 0;
  std::uint64_t salt = 0;
};

template <typename Word>
Result<std::shared_ptr<const Selection>> SelectByHash(const std::string& spec,
                                                      std::uint64_t sample_count,
                                                      const HashWindow& window) {
  // Hashes every sample of the catalog once, when the stream is opened. Look-ups need the ids: the
  // hash tells whether a sample is selected, but not which index it has.
  std::vector<Word> ids;
  for (std::uint64_t sample = 0; sample < sample_count; ++sample) {
    const std::uint64_t billionths = HashBillionths(SampleId(sample), window.salt);
    if (billionths < window.begin || billionths >= window.end) continue;
    // Checked before each id is added, so that memory is bounded by the limit and not by the
    // catalog.
    if (ids.size() >= limits::kListedSamplesMax) {
      return Error(ErrorCode::kResourceExhausted,
                   "selection " + Quoted(spec) + " lists more than " +
                       std::to_string(limits::kListedSamplesMax) + " samples (kListedSamplesMax)");
    }
    ids.push_back(static_cast<Word>(sample));  // ascending, because `sample` is
  }
  if (ids.empty()) return SpecError(spec, "selects no sample");
  ids.shrink_to_fit();
  return std::make_shared<const ListSelection<Word>>(spec, sample_count, std::move(ids), true);
}

Result<std::shared_ptr<const Selection>> MakeHash(std::string_view spec,
                                                  std::span<const std::string_view> parts,
                                                  std::uint64_t sample_count) {
  if (parts.size() != 3 && parts.size() != 4) {
    return SpecError(spec, "expected hash:BEGIN:END[:SALT]");
  }
  const auto begin = ParseFraction(parts[1]);
  const auto end = ParseFraction(parts[2]);
  const auto salt = parts.size() == 4 ? ParseNumber(parts[3]) : std::optional<std::uint64_t>(0);
  if (!begin.has_value() || !end.has_value()) {
    return SpecError(spec, "BEGIN and END are fractions of 1 with up to 9 digits");
  }
  if (!salt.has_value()) return SpecError(spec, "SALT is a decimal 64-bit number");
  // END may be 1, so that the windows [0, 0.9) and [0.9, 1) of one salt divide a data set without
  // overlap and without gap.
  if (*begin >= *end) return SpecError(spec, "BEGIN must lie below END");
  // 2 ns per sample: beyond this limit an Open would take more than half a minute of CPU time.
  if (sample_count > limits::kHashedSamplesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 "selection " + Quoted(spec) + " would hash " + std::to_string(sample_count) +
                     " samples, the limit is " + std::to_string(limits::kHashedSamplesMax) +
                     " (kHashedSamplesMax)");
  }
  // The canonical text is made of the parsed numbers, so "hash:0:.50" and "hash:0.0:0.5:0" have one
  // fingerprint.
  std::string canonical = "hash:" + FractionText(*begin) + ":" + FractionText(*end);
  if (*salt != 0) canonical += ":" + std::to_string(*salt);
  const HashWindow window{.begin = *begin, .end = *end, .salt = *salt};
  return sample_count <= (1ULL << 32)
             ? SelectByHash<std::uint32_t>(canonical, sample_count, window)
             : SelectByHash<std::uint64_t>(canonical, sample_count, window);
}

// Parses one decimal id per line; skips blank lines and lines that start with '#'. Returns the ids
// sorted: a selection is a set, and the order of a stream comes from its seed and not from this
// file.
Result<std::vector<std::uint64_t>> ParseList(std::string_view name, std::string_view text,
                                             std::uint64_t sample_count) {
  std::vector<std::uint64_t> ids;
  std::uint64_t line_number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t line_end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, line_end - at);
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);  // written on Windows
    if (!line.empty() && line.front() != '#') {
      const auto id = ParseNumber(line);
      // An id beyond the catalog is refused and not skipped: it nearly always means that the list
      // was made for another data set.
      if (!id.has_value() || *id >= sample_count) {
        return InputError(ErrorCode::kInvalidArgument, name, at,
                          "line " + std::to_string(line_number) + " " + Quoted(line) +
                              (id.has_value() ? " is beyond" : " is not a sample id; ids are") +
                              " 0 to " + std::to_string(sample_count - 1));
      }
      ids.push_back(*id);
    }
    at = line_end + 1;
  }
  std::sort(ids.begin(), ids.end());
  // A sample that comes twice would be delivered twice in an epoch, which promise P2 excludes.
  const auto duplicate = std::adjacent_find(ids.begin(), ids.end());
  if (duplicate != ids.end()) {
    return Error(ErrorCode::kInvalidArgument,
                 Quoted(name) + ": sample " + std::to_string(*duplicate) + " is listed twice");
  }
  return ids;
}

Result<std::shared_ptr<const Selection>> MakeList(std::string_view spec,
                                                  std::uint64_t sample_count,
                                                  std::string_view list_text) {
  const std::string_view name = spec.substr(std::string_view("list:").size());
  if (name.empty() || name.size() > limits::kNameBytesMax) {
    return SpecError(spec, "expected list:NAME with a name of 1 to " +
                               std::to_string(limits::kNameBytesMax) + " bytes");
  }
  // The caller reads the file with the same limit; this also holds for callers that do not.
  if (list_text.size() > limits::kIdListBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 Quoted(name) + " exceeds " + std::to_string(limits::kIdListBytesMax) +
                     " bytes (kIdListBytesMax)");
  }
  FOREBAY_ASSIGN(std::vector<std::uint64_t> ids, ParseList(name, list_text, sample_count));
  if (ids.empty()) return SpecError(spec, "selects no sample");
  // The width follows from the catalog and not from the largest id, because the fingerprint hashes
  // the ids as they are stored and must not depend on which of them are listed.
  if (sample_count > (1ULL << 32)) {
    return std::make_shared<const ListSelection<std::uint64_t>>(std::string(spec), sample_count,
                                                                std::move(ids), false);
  }
  // The catalog has at most 2^32 samples, so every id fits in 32 bits.
  std::vector<std::uint32_t> narrow(ids.size());
  std::transform(ids.begin(), ids.end(), narrow.begin(),
                 [](std::uint64_t id) { return static_cast<std::uint32_t>(id); });
  return std::make_shared<const ListSelection<std::uint32_t>>(std::string(spec), sample_count,
                                                              std::move(narrow), false);
}

}  // namespace

std::uint64_t HashBillionths(SampleId sample, std::uint64_t salt) {
  const std::uint64_t hash = Absorb64(Mix64(salt + kGolden64), sample.value());
  // floor(hash * 10^9 / 2^64), computed in two halves of 32 bits: 10^9 < 2^30, so no product
  // overflows, and no 128-bit type is needed.
  const std::uint64_t high = (hash >> 32) * kFractionOne;
  const std::uint64_t low = (hash & 0xFFFF'FFFF) * kFractionOne;
  return (high + (low >> 32)) >> 32;
}

Result<std::shared_ptr<const Selection>> MakeSelection(std::string_view spec,
                                                       std::uint64_t sample_count,
                                                       std::string_view list_text) {
  if (sample_count == 0 || sample_count > limits::kSampleCountMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "a selection needs 1 to " + std::to_string(limits::kSampleCountMax) +
                     " samples (kSampleCountMax)");
  }
  // A list's name may contain colons, so it is taken before the spec is split.
  if (spec.starts_with("list:")) return MakeList(spec, sample_count, list_text);
  const std::vector<std::string_view> parts = SplitColons(spec);
  if (spec == "all") {
    return std::make_shared<const RangeSelection>(RangeSelection::Options{
        .spec = "all", .sample_count = sample_count, .first = 0, .count = sample_count});
  }
  if (parts[0] == "range") return MakeRange(spec, parts, sample_count);
  if (parts[0] == "hash") return MakeHash(spec, parts, sample_count);
  return SpecError(spec, "expected all, range:FIRST:COUNT, hash:BEGIN:END[:SALT] or list:NAME");
}

}  // namespace forebay::catalog
