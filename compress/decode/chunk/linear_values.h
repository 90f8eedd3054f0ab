// Computes quantised f32 values on a linear scale from one plane of samples (docs/pack_chunk.md,
// section 4) in one pass. Most lossy chunks are of this kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/decode/isa.h"
#include "compress/format/chunk/chunk_header.h"

namespace forebay::compress {

// value[i] = f32(f64(i32(base + ((sample[i] & sample_mask) << shift))) * step), modulo 2^32 in the
// sum; where the byte of a mask is not 0 the value is that mask's pattern, the last mask's first.
// Borrows everything; `samples` may lie at any address.
struct LinearRun {
  const std::byte* samples = nullptr;
  std::uint8_t sample_bytes = 1;  // or 2
  std::uint8_t shift = 0;         // below 32
  std::uint32_t sample_mask = 0;
  std::uint32_t base = 0;
  double step = 1;
  std::uint32_t mask_count = 0;
  std::array<const std::uint8_t*, kMasksMax> masks{};
  std::array<std::uint32_t, kMasksMax> patterns{};
};

// Writes `count` values, 4 bytes each, to `to`, which may lie at any address. The same bits with
// every kernel, of which the processor must have `isa`.
void EmitLinearValues(const LinearRun& run, std::size_t count, std::byte* to, Isa isa);

// Kernels write the first values, as many of `count` as fill their registers, and return how many
// those are.
std::size_t EmitLinearValuesAvx2(const LinearRun& run, std::size_t count, std::byte* to);
std::size_t EmitLinearValuesAvx512(const LinearRun& run, std::size_t count, std::byte* to);

}  // namespace forebay::compress
