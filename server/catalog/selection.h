// Selection: which samples of a catalog a stream reads (all, a range, a list, a hash fraction). It
// is a pure function of its specification and the sample id, so that every reader agrees.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"

namespace forebay::catalog {

// Textual form, used on the wire, in configuration and by the CLI:
//   "all"
//   "range:FIRST:COUNT"              samples FIRST .. FIRST+COUNT-1
//   "hash:BEGIN:END[:SALT]"          samples whose hash fraction lies in [BEGIN, END), decimal
//                                    fractions of 1 with up to 9 digits; SALT is a decimal
//                                    64-bit number, 0 where it is left out
//   "list:NAME"                      a split file of the data set: one sample id per line, in
//                                    any order, each once; lines that start with '#' and blank
//                                    lines are skipped
// Immutable and thread-safe.
class Selection {
 public:
  virtual ~Selection() = default;
  virtual std::uint64_t size() const = 0;                       // n of the OrderSpec
  virtual SampleId At(std::uint64_t index) const = 0;           // index < size(); O(1)
  // The index of `sample`, or size() if the sample is not selected.
  virtual std::uint64_t IndexOf(SampleId sample) const = 0;
  virtual std::uint64_t fingerprint() const = 0;                // docs/catalog.md, Selections
  virtual std::string_view spec() const = 0;                    // canonical text
};

// The hash fraction of `sample` in billionths, [0, 10^9). docs/catalog.md specifies it, with golden
// values. A sample is in "hash:BEGIN:END:SALT" if 10^9 BEGIN <= its fraction < 10^9 END.
std::uint64_t HashBillionths(SampleId sample, std::uint64_t salt);

// Parses `spec`. `list_text` is the split file's text for "list:", empty for other forms.
// kInvalidArgument: unknown form, range past the end, an id that is listed twice, no sample
// selected. A hash selection takes about 2 ns per sample of the catalog.
Result<std::shared_ptr<const Selection>> MakeSelection(std::string_view spec,
                                                       std::uint64_t sample_count,
                                                       std::string_view list_text);

}  // namespace forebay::catalog
