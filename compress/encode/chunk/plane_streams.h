// From codes to plane streams.
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

// How codes of `bits` bits are cut into planes, lowest first: bytes, until 16 bits are left.
// Returns the number of planes.
std::uint8_t SplitBits(std::uint32_t bits, std::array<std::uint8_t, kPlanesMax>& plane_bits);

// The estimated cost of all planes of `codes`, in elements' order.
std::size_t EstimateCodeBytes(const ChunkGeometry& geometry, std::uint32_t bits,
                              std::span<const std::uint64_t> codes);

// The colour space with the smallest estimated cost, of the first three channels' codes, one
// after the other.
ColourKind ChooseColour(const ChunkGeometry& geometry, std::uint32_t bits,
                        const std::array<std::vector<std::uint32_t>, 3>& channels);
std::vector<std::uint32_t> BitsOf(std::span<const std::uint64_t> codes, unsigned shift,
                                  std::uint32_t bits);

// What streams are made for. Within an error bound dense ones decode fast where that costs little.
struct StreamAims {
  Profile profile = Profile::kBalanced;
  const Predictor* predictor = nullptr;
  bool bounded = false;
};

// A plane of samples, of one or two bytes: constant, coded, zstd or stored, whichever is smallest,
// with some weight on what decodes fast.
Result<EncodedStream> EncodeSampleStream(const ChunkGeometry& geometry, std::uint8_t bits,
                                         std::span<const std::byte> samples,
                                         const StreamAims& aims);

// The same for bits [shift, shift + bits) of a channel's codes.
Result<EncodedStream> EncodePlaneStream(const ChunkGeometry& geometry, std::uint8_t bits,
                                        unsigned shift, std::span<const std::uint64_t> codes,
                                        const StreamAims& aims);

}  // namespace forebay::compress
