// How fields lie in a slot.
#pragma once

#include <cstdint>

namespace forebay::stream {

inline constexpr std::uint64_t kRowAlignment = 64;   // of a field within a slot: one cache line
inline constexpr std::uint64_t kPackAlignment = 16;  // of a variable-size value within it

constexpr std::uint64_t AlignUp(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace forebay::stream
