// ClassLayout: which class each sample of a selection has, in storage order. Shuffle quality is
// measured with it: a batch is well mixed if it has the classes that the data set has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace forebay::cli {

// The entropy, in bits, of a distribution that is given by how often each value occurs. 0 if there
// is one value or none.
double EntropyOf(std::span<const std::uint64_t> counts);

// An immutable value; thread-safe. Indices are those of the selection, as in Order.
class ClassLayout {
 public:
  // The worst case for a shuffle within windows: the samples are stored sorted by class, and all
  // classes have equally many samples. Both numbers are at least 1; classes <= samples.
  static ClassLayout Sorted(std::uint64_t samples, std::uint64_t classes);
  // Classes that were read: labels[i] is that of sample i. Any numbers; there is at least one.
  static ClassLayout FromLabels(std::span<const std::int64_t> labels);

  std::uint64_t sample_count() const { return samples_; }
  std::uint64_t class_count() const { return counts_.size(); }
  // A number below class_count(). Requires index < sample_count().
  std::uint32_t ClassOf(std::uint64_t index) const {
    return classes_.empty() ? static_cast<std::uint32_t>(SortedClass(index)) : classes_[index];
  }
  // Returns the entropy of the classes of the whole selection, in bits.
  double Entropy() const { return EntropyOf(counts_); }

 private:
  ClassLayout() = default;
  std::uint64_t SortedClass(std::uint64_t index) const;

  std::uint64_t samples_ = 0;
  std::vector<std::uint64_t> counts_;   // samples of each class
  std::vector<std::uint32_t> classes_;  // empty: sorted
};

}  // namespace forebay::cli
