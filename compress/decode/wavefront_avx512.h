// The wavefront decoder in AVX-512 (F, BW, VL, VBMI, VBMI2, and GFNI).
#pragma once

#include <cstdint>

#include "compress/decode/wavefront_order.h"

namespace forebay::compress {

// For samples of up to 8 bits: a step's 64 samples in one register.
extern const WavefrontOrderKernel<std::uint8_t> kWavefrontAvx512;

// For samples of 9 to 16 bits: in two.
extern const WavefrontOrderKernel<std::uint16_t> kWavefrontWideAvx512;

}  // namespace forebay::compress
