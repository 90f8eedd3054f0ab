// Encodes a stack of integer planes (docs/pack_planes.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/plane/plane_shape.h"
#include "compress/format/plane/predictor.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// What an encoder aims at; `auto` measures the others. Chunks of `dense` within an error bound
// take planes that decode five times as fast wherever those are at most an eighth larger.
enum class Profile : std::uint8_t { kFast, kBalanced, kDense, kLearned, kAuto };

// The body of `samples`, which are dense and below 2^bits (kInvalidArgument otherwise). The same
// bytes for the same arguments on every machine and in every thread. Thread-safe. With profile
// learned and a predictor, its corrections are used where they pay; without one it is dense.
Result<std::vector<std::byte>> EncodePlanes(const PlaneShape& shape,
                                            std::span<const std::byte> samples,
                                            Profile profile,
                                            const Predictor* predictor = nullptr);

}  // namespace forebay::compress
