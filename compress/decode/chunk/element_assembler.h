// From planes to elements: the last steps of decoding a chunk, in blocks that stay in cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/isa.h"
#include "compress/format/chunk/chunk_header.h"
#include "compress/format/chunk/chunk_shape.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// A decoded plane: samples of one or two bytes, or one value for all pixels.
struct PlaneSource {
  const std::byte* samples = nullptr;
  std::size_t sample_bytes = 1;
  std::uint32_t constant = 0;
};

// What to assemble: decoded planes, dictionary and masks of a chunk, and which of its samples.
// Borrows everything.
struct AssemblyJob {
  const ChunkShape* shape = nullptr;
  const ChunkGeometry* geometry = nullptr;
  const ChunkStages* stages = nullptr;
  std::span<const PlaneSource> planes;  // [channel][plane], from the chunk's first pixel
  std::span<const std::uint64_t> dictionary;
  std::array<std::span<const std::uint8_t>, kMasksMax> masks;  // of the wanted elements
  std::uint32_t first_sample = 0, sample_count = 0;
  Isa isa = Isa::kScalar;
};

// Writes the samples to `out`, one after the other, without their escapes. Errors: kDataLoss for a
// code beyond the dictionary.
Status AssembleElements(const AssemblyJob& job, std::span<std::byte> out);

}  // namespace forebay::compress
