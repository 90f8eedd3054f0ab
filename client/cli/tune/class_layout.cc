// Labels are any numbers, for example file offsets or the ids of another data set. They are
// replaced by 0, 1, 2, .. in the order in which they are found, so that counts are an array. The
// sorted layout is a formula, so it needs no memory for data sets of any size.
#include "client/cli/tune/class_layout.h"

#include <cmath>
#include <numeric>
#include <unordered_map>

#include "proto/contract/check.h"

namespace forebay::cli {

double EntropyOf(std::span<const std::uint64_t> counts) {
  const auto total =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  double bits = 0;
  for (const std::uint64_t count : counts) {
    // The limit of x log x at 0 is 0, and the logarithm itself is not defined there.
    if (count == 0) continue;
    const double part = static_cast<double>(count) / total;
    bits -= part * std::log2(part);
  }
  return bits;
}

ClassLayout ClassLayout::Sorted(std::uint64_t samples, std::uint64_t classes) {
  FOREBAY_CHECK(classes >= 1 && classes <= samples);
  ClassLayout layout;
  layout.samples_ = samples;
  layout.counts_.resize(classes);
  // The inverse of SortedClass: class c has the indices from ceil(c * samples / classes) on.
  const auto first_of = [&](std::uint64_t c) { return (c * samples + classes - 1) / classes; };
  for (std::uint64_t c = 0; c < classes; ++c) layout.counts_[c] = first_of(c + 1) - first_of(c);
  return layout;
}

std::uint64_t ClassLayout::SortedClass(std::uint64_t index) const {
  // Samples are at most 2^40 and classes at most 2^20 (TuneArguments), so this does not overflow.
  return index * counts_.size() / samples_;
}

ClassLayout ClassLayout::FromLabels(std::span<const std::int64_t> labels) {
  FOREBAY_CHECK(!labels.empty());
  ClassLayout layout;
  layout.samples_ = labels.size();
  layout.classes_.reserve(labels.size());
  std::unordered_map<std::int64_t, std::uint32_t> numbers;
  for (const std::int64_t label : labels) {
    const auto next = static_cast<std::uint32_t>(numbers.size());
    const auto [known, added] = numbers.try_emplace(label, next);
    if (added) layout.counts_.push_back(0);
    ++layout.counts_[known->second];
    layout.classes_.push_back(known->second);
  }
  return layout;
}

}  // namespace forebay::cli
