// The wave decoder of samples of up to 8 bits in AVX-512 (F, BW, VL, VBMI).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/scratch_arena.h"
#include "compress/decode/wave_plan.h"
#include "compress/format/plane_shape.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// True where this build has the kernel and this processor can run it.
bool HaveWaveAvx512();

// Takes what DecodeFramesAvx512 will.
void CountFramesAvx512(const PlaneShape& shape, ScratchArena& arena);

// As DecodeWave, behind its plan. Equals the scalar decoder bit for bit.
Status DecodeFramesAvx512(const PlaneShape& shape, const WavePlan& plan,
                          std::uint32_t frames_wanted, std::span<std::byte> samples,
                          ScratchArena& arena);

}  // namespace forebay::compress
