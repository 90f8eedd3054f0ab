// The instruction sets for which decoding kernels exist, and which of them this processor has.
#pragma once

#include <cstdint>
#include <span>

namespace forebay::compress {

// An instruction set, from slowest to fastest. A processor that has one has those before it. For
// every codec the kernels of all instruction sets give the same bits; callers choose one only to
// test or to measure it.
//
// kScalar: portable C++. kAvx2: AVX2 and POPCNT. kAvx512: AVX-512 F, BW, VL, VBMI, VBMI2, and
// GFNI and BMI2 (Ice Lake, Zen 4 and later).
enum class Isa : std::uint8_t { kScalar, kAvx2, kAvx512 };

// The fastest instruction set of this processor.
Isa BestIsa();

// All instruction sets of this processor, from kScalar to BestIsa().
std::span<const Isa> AvailableIsas();

}  // namespace forebay::compress
