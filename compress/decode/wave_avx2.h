// The wave decoder in AVX2.
#pragma once

#include <cstdint>

#include "compress/decode/wave_order.h"

namespace forebay::compress {

// For samples of up to 8 bits: a step's 64 samples in two registers.
extern const WaveOrderKernel<std::uint8_t> kWaveAvx2;

// For samples of 9 to 16 bits: in four.
extern const WaveOrderKernel<std::uint16_t> kWaveWideAvx2;

}  // namespace forebay::compress
