// Sample sets for tests: 28x28 one-channel images with labels, made up or from Fashion-MNIST.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace forebay::train::testing {

inline constexpr std::size_t kImageBytes = 28 * 28;

struct SampleSet {
  std::vector<std::byte> images;  // kImageBytes each
  std::vector<std::byte> labels;  // one byte each
  std::uint64_t size() const { return labels.size(); }
};

// `count` images of ten classes: a bright bar whose place is the class, on noise. A pure
// function of count and seed.
SampleSet MakeBars(std::uint64_t count, std::uint64_t seed);

// The real set from Debian's package dataset-fashion-mnist, unzipped into `folder`; nullopt
// where the package is not installed.
std::optional<SampleSet> LoadFashionMnist(bool test_part, const std::filesystem::path& folder);

}  // namespace forebay::train::testing
