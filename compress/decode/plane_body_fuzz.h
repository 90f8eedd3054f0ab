// What the fuzz targets of plane bodies have in common: a body is decoded by every kernel of this
// processor and to every number of frames.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compress/decode/isa.h"
#include "compress/format/plane/plane_shape.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// A codec of planes, as its decoder's header declares it.
struct PlaneBodyCodec {
  std::size_t (*scratch_bytes)(const PlaneShape&);
  std::function<Status(const PlaneShape&, std::span<const std::byte>, std::uint32_t, Isa,
                       std::span<std::byte>, std::span<std::byte>)>
      decode;
};

namespace fuzz {

inline constexpr std::size_t kGuard = 64;
inline constexpr std::byte kCanary{0xC7};

inline bool Decode(const PlaneBodyCodec& codec, const PlaneShape& shape,
                   std::span<const std::byte> body, std::uint32_t frames, Isa isa,
                   std::vector<std::byte>& samples) {
  PlaneShape wanted = shape;
  wanted.frames = frames;
  samples.assign(wanted.bytes() + 2 * kGuard, kCanary);
  std::vector<std::byte> scratch(codec.scratch_bytes(shape), kCanary);
  const bool decodes =
      codec
          .decode(shape, body, frames, isa,
                  std::span(samples).subspan(kGuard, wanted.bytes()), scratch)
          .has_value();
  const auto intact = [](std::byte byte) { return byte == kCanary; };
  if (!std::all_of(samples.begin(), samples.begin() + kGuard, intact) ||
      !std::all_of(samples.end() - kGuard, samples.end(), intact)) {
    __builtin_trap();
  }
  samples.erase(samples.end() - kGuard, samples.end());
  samples.erase(samples.begin(), samples.begin() + kGuard);
  return decodes;
}

inline void CheckRange(const PlaneShape& shape, std::span<const std::byte> samples) {
  const unsigned limit = 1U << shape.bits;
  for (std::size_t i = 0; i < samples.size(); i += shape.sample_bytes()) {
    unsigned value = std::to_integer<unsigned>(samples[i]);
    if (shape.sample_bytes() == 2) value |= std::to_integer<unsigned>(samples[i + 1]) << 8;
    if (value >= limit) __builtin_trap();
  }
}

}  // namespace fuzz

// Traps unless the scalar kernel and all others agree on whether the body decodes and on every
// sample, which is below 2^bits, and nothing is written beside the output.
inline void CheckPlaneBody(const PlaneBodyCodec& codec, const PlaneShape& shape,
                           std::span<const std::byte> body) {
  std::vector<std::byte> scalar, other;
  for (std::uint32_t frames = shape.frames; frames > 0; --frames) {
    const bool decodes = fuzz::Decode(codec, shape, body, frames, Isa::kScalar, scalar);
    for (const Isa isa : AvailableIsas().subspan(1)) {
      if (fuzz::Decode(codec, shape, body, frames, isa, other) != decodes) __builtin_trap();
      if (scalar != other) __builtin_trap();
    }
    if (decodes) fuzz::CheckRange(shape, scalar);
  }
}

}  // namespace forebay::compress
