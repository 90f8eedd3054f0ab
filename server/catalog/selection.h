// Selection: which samples of a catalog a stream reads (all, a range, a list, a hash fraction).
// A pure function of its specification and the sample id, so that every reader agrees.
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
//                                    fractions of 1 with up to 9 digits (docs/order.md)
//   "list:NAME"                      a split file of the data set: one sample id per line
class Selection {
 public:
  virtual ~Selection() = default;
  virtual std::uint64_t size() const = 0;                       // n of the OrderSpec
  virtual SampleId At(std::uint64_t index) const = 0;           // index < size(); O(1)
  // The index of `sample`, or size() where it is not selected.
  virtual std::uint64_t IndexOf(SampleId sample) const = 0;
  virtual std::uint64_t fingerprint() const = 0;                // of spec and catalog size
  virtual std::string_view spec() const = 0;                    // canonical text
};

// `list_bytes` is the split file's text for "list:", empty otherwise. Errors name what is wrong
// (unknown form, range past the end, duplicate or unsorted ids are sorted out or refused).
Result<std::shared_ptr<const Selection>> MakeSelection(std::string_view spec,
                                                       std::uint64_t sample_count,
                                                       std::string_view list_text);

}  // namespace forebay::catalog
