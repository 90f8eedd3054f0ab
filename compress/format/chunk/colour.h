// Decorrelation of the first three channels, modulo 2^bits, reversible for every input
// (docs/pack_chunk.md, section 7). Differences are kept plus half the range, so that small ones
// of either sign are neighbours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/format/chunk/chunk_header.h"

namespace forebay::compress {

// `bits` is at most 16; codes are below 2^bits and stay so. T is any unsigned type that holds
// them.
template <typename T>
inline void ForwardColour(ColourKind kind, std::uint32_t bits, std::size_t count, T* first,
                          T* second, T* third) {
  const std::int32_t half = 1 << (bits - 1);
  const std::int32_t mask = 2 * half - 1;
  for (std::size_t i = 0; i < count; ++i) {
    const auto red = static_cast<std::int32_t>(first[i]);
    const auto green = static_cast<std::int32_t>(second[i]);
    const auto blue = static_cast<std::int32_t>(third[i]);
    if (kind == ColourKind::kGreen) {
      first[i] = static_cast<T>((red - green + half) & mask);
      third[i] = static_cast<T>((blue - green + half) & mask);
    } else {
      // YCoCg-R (Malvar and Sullivan); a difference beyond the range wraps before it is halved.
      const std::int32_t orange = ((red - blue + half) & mask) - half;
      const std::int32_t middle = (blue + (orange >> 1)) & mask;
      const std::int32_t greenness = ((green - middle + half) & mask) - half;
      first[i] = static_cast<T>((middle + (greenness >> 1)) & mask);
      second[i] = static_cast<T>(orange + half);
      third[i] = static_cast<T>(greenness + half);
    }
  }
}

template <typename T>
inline void InverseColour(ColourKind kind, std::uint32_t bits, std::size_t count, T* first,
                          T* second, T* third) {
  const std::int32_t half = 1 << (bits - 1);
  const std::int32_t mask = 2 * half - 1;
  if (kind == ColourKind::kGreen) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t green = static_cast<std::int32_t>(second[i]) - half;
      first[i] = static_cast<T>((static_cast<std::int32_t>(first[i]) + green) & mask);
      third[i] = static_cast<T>((static_cast<std::int32_t>(third[i]) + green) & mask);
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t orange = static_cast<std::int32_t>(second[i]) - half;
    const std::int32_t greenness = static_cast<std::int32_t>(third[i]) - half;
    const std::int32_t middle = (static_cast<std::int32_t>(first[i]) - (greenness >> 1)) & mask;
    const std::int32_t blue = (middle - (orange >> 1)) & mask;
    first[i] = static_cast<T>((blue + orange) & mask);
    second[i] = static_cast<T>((greenness + middle) & mask);
    third[i] = static_cast<T>(blue);
  }
}

}  // namespace forebay::compress
