// Block-rANS planes: bit-packed's predictors, residuals entropy-coded in 64 lanes
// (docs/pack_planes.md).
#pragma once

#include "compress/decode/frame_output.h"
#include "compress/decode/isa.h"
#include "compress/format/plane/plane_shape.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Scratch memory that DecodeBlockRans needs for any body of this shape.
std::size_t BlockRansScratchBytes(const PlaneShape& shape);

// Decodes the first `frames_wanted` frames of `body` (kind byte taken off) to their places in
// `out`. Errors: kDataLoss for a body that no encoder wrote; what was written is then undefined,
// within 2^bits. Every kernel gives the same bits.
Status DecodeBlockRans(const PlaneShape& shape, std::span<const std::byte> body,
                       std::uint32_t frames_wanted, Isa isa, const FrameOutput& out,
                       std::span<std::byte> scratch);

}  // namespace forebay::compress
