// FirstNotFinite: finds values that are infinite or NaN.
#pragma once

#include <cstddef>
#include <span>

namespace forebay::train {

// Returns the index of the first such value; values.size() if all are finite. As fast as memory is
// read.
std::size_t FirstNotFinite(std::span<const float> values);
std::size_t FirstNotFinite(std::span<const double> values);

}  // namespace forebay::train
