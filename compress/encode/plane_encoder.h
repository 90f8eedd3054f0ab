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

// What an encoder aims at: `fast` decodes fastest, `balanced` is in between, `dense` is smallest,
// `learned` is dense with a learned predictor, `auto` measures the others. With an error bound,
// `dense` takes planes that decode five times as fast if they are at most an eighth larger.
enum class Profile : std::uint8_t { kFast, kBalanced, kDense, kLearned, kAuto };

// Encodes `samples`, which are dense and below 2^bits, to a plane body. With profile `learned` and
// a predictor, its corrections are used where they save bytes; without a predictor `learned` is
// `dense`. The same arguments give the same bytes on every machine and in every thread.
// Thread-safe. Errors: kInvalidArgument for a sample with more bits.
Result<std::vector<std::byte>> EncodePlanes(const PlaneShape& shape,
                                            std::span<const std::byte> samples,
                                            Profile profile,
                                            const Predictor* predictor = nullptr);

}  // namespace forebay::compress
