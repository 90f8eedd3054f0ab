// Finds values that are infinite or no number.
#pragma once

#include <cstddef>
#include <span>

namespace forebay::train {

// The index of the first one; values.size() where all are finite. As fast as memory is read.
std::size_t FirstNotFinite(std::span<const float> values);
std::size_t FirstNotFinite(std::span<const double> values);

}  // namespace forebay::train
