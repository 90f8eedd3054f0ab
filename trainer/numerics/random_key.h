// Keys of random numbers: what is drawn depends on what it is drawn for, and not on what was drawn
// before, on which rank, or how often.
#pragma once

#include <cstdint>
#include <string_view>

namespace forebay::train {

// The seed of the random numbers of one layer in one micro-batch of one step.
std::uint64_t LayerSeed(std::uint64_t seed, std::uint64_t step, std::uint32_t micro_batch,
                        std::string_view layer);

// The seed of a parameter's first values.
std::uint64_t ParameterSeed(std::uint64_t seed, std::string_view parameter);

}  // namespace forebay::train
