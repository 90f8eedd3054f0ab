// Maps bytes through a table of up to 256 bytes, for dictionaries of bytes.
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

// Sets to[i] = table.bytes[from[i]] and returns the largest byte of `from`, 0 if there is none.
// `to` has as many bytes and does not overlap. Every instruction set gives the same result.
std::uint8_t MapBytes(const ByteTable& table, std::span<const std::uint8_t> from,
                      std::uint8_t* to, Isa isa = BestIsa());

// The kernels for processors with AVX2, and with AVX-512 VBMI.
std::uint8_t MapBytesAvx2(const ByteTable& table, std::span<const std::uint8_t> from,
                          std::uint8_t* to);
std::uint8_t MapBytesAvx512(const ByteTable& table, std::span<const std::uint8_t> from,
                            std::uint8_t* to);

}  // namespace forebay::compress
