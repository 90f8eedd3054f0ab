// The function has a source of its own, so that the compiler does not see from a caller that a sum
// is not used, and leave out the reading.
#include "client/cli/stream/word_sum.h"

#include <cstring>

namespace forebay::cli {

// Eight bytes at a time, so that the sum is limited by memory and not by the adding.
std::uint64_t SumWords(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  std::size_t place = 0;
  for (; place + 8 <= bytes.size(); place += 8) {
    std::uint64_t word = 0;
    // Samples begin at any byte; memcpy may read an unaligned word, a cast pointer may not.
    std::memcpy(&word, bytes.data() + place, 8);
    sum += word;
  }
  for (; place < bytes.size(); ++place) sum += std::to_integer<std::uint64_t>(bytes[place]);
  return sum;
}

}  // namespace forebay::cli
