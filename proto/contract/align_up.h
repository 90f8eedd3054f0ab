// AlignUp: rounds a size or an offset up to a whole number of pages, blocks or records. Formats of
// files and layouts of shared memory depend on it.
#pragma once

#include <cstdint>

namespace forebay {

// The smallest multiple of `alignment`, which is not 0, that is not below `value`. The result must
// fit in 64 bits.
constexpr std::uint64_t AlignUp(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace forebay
