// Reads every byte of a sample, as a trainer would. Bytes that nobody reads cost no memory
// bandwidth and no page fault, so a rate without reading would be one that no trainer sees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace forebay::cli {

// The sum of the bytes, eight at a time as little-endian words and what is left one by one.
std::uint64_t SumWords(std::span<const std::byte> bytes);

}  // namespace forebay::cli
