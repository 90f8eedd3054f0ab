// The wave decoder in AVX2, for samples of up to 8 bits.
#pragma once

#include <cstdint>

#include "compress/decode/wave_order.h"

namespace forebay::compress {

// True where this processor can run the kernel.
bool HaveWaveAvx2();

extern const WaveOrderKernel<std::uint8_t> kWaveAvx2;

}  // namespace forebay::compress
