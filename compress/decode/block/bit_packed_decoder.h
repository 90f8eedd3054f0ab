// Decodes bit-packed planes (kind 3 of docs/pack_planes.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/frame_output.h"
#include "compress/decode/isa.h"
#include "compress/format/plane/plane_shape.h"
#include "proto/contract/result.h"

namespace forebay::compress {

std::size_t BitPackedScratchBytes(const PlaneShape& shape);

// As DecodeWavefront: `body` begins behind the kind byte.
Status DecodeBitPacked(const PlaneShape& shape, std::span<const std::byte> body,
                       std::uint32_t frames_wanted, Isa isa, const FrameOutput& out,
                       std::span<std::byte> scratch);

}  // namespace forebay::compress
