// Bytes through a table of bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/isa.h"

namespace forebay::compress {

struct ByteTable {
  std::array<std::uint8_t, 256> bytes{};
  std::size_t entries = 0;  // bytes from here on are zero
};

// to[i] = table.bytes[from[i]]; returns the largest of `from`, 0 where there are none. `to` has as
// many bytes and does not overlap. The same everywhere, whatever the kernel.
std::uint8_t MapBytes(const ByteTable& table, std::span<const std::uint8_t> from,
                      std::uint8_t* to, Isa isa = BestIsa());

// The same, a processor with AVX2, or with AVX-512 VBMI, taken for granted.
std::uint8_t MapBytesAvx2(const ByteTable& table, std::span<const std::uint8_t> from,
                          std::uint8_t* to);
std::uint8_t MapBytesAvx512(const ByteTable& table, std::span<const std::uint8_t> from,
                            std::uint8_t* to);

}  // namespace forebay::compress
