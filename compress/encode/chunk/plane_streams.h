// Encodes the codes of a chunk as streams of planes: channels, colours, planes, and their coders.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/encode/chunk/byte_stream_encoder.h"
#include "compress/encode/plane_encoder.h"
#include "compress/format/chunk/chunk_header.h"

namespace forebay::compress {

// The codes of each channel, in the order of its pixels.
std::vector<std::vector<std::uint64_t>> SplitChannels(const ChunkGeometry& geometry,
                                                      std::span<const std::uint64_t> codes);

// Cuts codes of `bits` bits into planes, lowest first: planes of 8 bits until at most 16 bits are
// left. Returns the number of planes.
std::uint8_t SplitBits(std::uint32_t bits, std::array<std::uint8_t, kPlanesMax>& plane_bits);

// The estimated size in bytes of all planes of `codes`, which are in the order of the elements.
std::size_t EstimateCodeBytes(const ChunkGeometry& geometry, std::uint32_t bits,
                              std::span<const std::uint64_t> codes);

// The colour space with the smallest estimated size for the codes of the first three channels.
ColourKind ChooseColour(const ChunkGeometry& geometry, std::uint32_t bits,
                        const std::array<std::vector<std::uint32_t>, 3>& channels);
std::vector<std::uint32_t> BitsOf(std::span<const std::uint64_t> codes, unsigned shift,
                                  std::uint32_t bits);

// What to aim at. With an error bound (`bounded`), dense profiles take planes that decode fast if
// they are only a little larger.
struct StreamAims {
  Profile profile = Profile::kBalanced;
  const Predictor* predictor = nullptr;
  bool bounded = false;
};

// Encodes a plane of samples of one or two bytes as a constant, with a plane codec, zstd or LZ4, or
// stored: the smallest, with some preference for codings that decode fast.
Result<EncodedStream> EncodeSampleStream(const ChunkGeometry& geometry, std::uint8_t bits,
                                         std::span<const std::byte> samples,
                                         const StreamAims& aims);

// The same for bits [shift, shift + bits) of a channel's codes.
Result<EncodedStream> EncodePlaneStream(const ChunkGeometry& geometry, std::uint8_t bits,
                                        unsigned shift, std::span<const std::uint64_t> codes,
                                        const StreamAims& aims);

}  // namespace forebay::compress
