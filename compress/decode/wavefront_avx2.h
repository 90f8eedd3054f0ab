// The wavefront decoder in AVX2.
#pragma once

#include <cstdint>

#include "compress/decode/wavefront_order.h"

namespace forebay::compress {

// For samples of up to 8 bits: a step's 64 samples in two registers.
extern const WavefrontOrderKernel<std::uint8_t> kWavefrontAvx2;

// For samples of 9 to 16 bits: in four.
extern const WavefrontOrderKernel<std::uint16_t> kWavefrontWideAvx2;

}  // namespace forebay::compress
