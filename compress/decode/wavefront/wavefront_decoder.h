// Decodes wavefront-coded planes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/frame_output.h"
#include "compress/decode/isa.h"
#include "compress/format/plane/plane_shape.h"
#include "compress/format/plane/predictor.h"
#include "proto/contract/result.h"

namespace forebay::compress {

std::size_t WavefrontScratchBytes(const PlaneShape& shape);

// Decodes the first `frames_wanted` frames; `out` has the places of those that are to be had.
// `body` begins behind the kind byte; `scratch` has WavefrontScratchBytes. Allocates nothing.
// `predictor` is what a learned body (of samples of up to 8 bits) was coded with, else null.
// Errors: kDataLoss.
Status DecodeWavefront(const PlaneShape& shape, std::span<const std::byte> body,
                       std::uint32_t frames_wanted, Isa isa, const FrameOutput& out,
                       std::span<std::byte> scratch, const Predictor* predictor = nullptr);

}  // namespace forebay::compress
