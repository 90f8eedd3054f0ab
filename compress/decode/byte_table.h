// Bytes through a table of bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/decode/wave_decoder.h"

namespace forebay::compress {

using ByteTable = std::array<std::uint8_t, 256>;

// to[i] = table[from[i]] for `count` bytes; returns the largest of `from`, 0 where there are none.
// The table has `entries`, and zeros behind them. The arrays do not overlap. The same everywhere,
// whatever the kernel.
std::uint8_t MapBytes(const ByteTable& table, std::size_t entries, const std::uint8_t* from,
                      std::size_t count, std::uint8_t* to,
                      WaveKernel kernel = BestWaveKernel());

// The same, a processor with AVX2, or with AVX-512 VBMI, taken for granted.
std::uint8_t MapBytesAvx2(const ByteTable& table, std::size_t entries, const std::uint8_t* from,
                          std::size_t count, std::uint8_t* to);
std::uint8_t MapBytesAvx512(const ByteTable& table, const std::uint8_t* from, std::size_t count,
                            std::uint8_t* to);

}  // namespace forebay::compress
