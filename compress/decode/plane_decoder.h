// Decodes a stack of integer planes (docs/pack_planes.md).
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

// Scratch memory that DecodePlanes needs for any body of this shape.
std::size_t PlaneScratchBytes(const PlaneShape& shape);

// Decodes the first `frames_wanted` frames of `body`, each dense as [rows][columns], to their
// places in `out`; `scratch` has PlaneScratchBytes. Nothing overlaps. Whatever the body says,
// samples are below 2^bits and nothing is allocated. Errors: kDataLoss for a body that no encoder
// wrote; the places are then undefined. Every kernel gives the same bits. Thread-safe.
//
// `predictors` are those that the reader has; a learned body names one by the beginning of its
// id. Without it the error is kFailedPrecondition and says which.
Status DecodePlanes(const PlaneShape& shape, std::span<const std::byte> body,
                    std::uint32_t frames_wanted, const FrameOutput& out,
                    std::span<std::byte> scratch, Isa isa = BestIsa(),
                    PredictorList predictors = {});

// The same into `samples`: the frames one after the other, exactly that long.
Status DecodePlanes(const PlaneShape& shape, std::span<const std::byte> body,
                    std::uint32_t frames_wanted, std::span<std::byte> samples,
                    std::span<std::byte> scratch, Isa isa = BestIsa(),
                    PredictorList predictors = {});

}  // namespace forebay::compress
