#include "proto/contract/order_permutation.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "proto/contract/check.h"
#include "proto/contract/order_mix.h"

namespace forebay {
namespace {

// 64 scattered bits of a part of the state under a round key; the top bits are the best.
inline std::uint64_t RoundWord(std::uint64_t part, std::uint64_t key) {
  std::uint64_t x = (part + key) * 0xD6E8FEB86659FD93ULL;
  x ^= x >> 32;
  return x * 0xBF58476D1CE4E5B9ULL;
}

// (x + y) mod m for x, y < m < 2^63: the wrapped difference is huge where x + y < m.
inline std::uint64_t AddModulo(std::uint64_t x, std::uint64_t y, std::uint64_t m) {
  const std::uint64_t sum = x + y;
  return std::min(sum, sum - m);
}

inline std::uint64_t SubtractModulo(std::uint64_t x, std::uint64_t y, std::uint64_t m) {
  const std::uint64_t difference = x - y;
  return std::min(difference, difference + m);
}

// Elements in flight in the batched forms: enough to hide the latency of the multiplies.
constexpr std::size_t kLanes = 4;

}  // namespace

KeyedPermutation::KeyedPermutation(std::uint64_t size, std::uint64_t key, unsigned rounds)
    : size_(size), rounds_(rounds) {
  FOREBAY_CHECK(size >= 1 && size <= (1ULL << 41));
  FOREBAY_CHECK(rounds >= 2 && rounds <= kRoundsMax && rounds % 2 == 0);
  if (size <= kTableSizeMax) {
    BuildTable(key);
    return;
  }
  low_bits_ = static_cast<unsigned>(std::bit_width(size - 1)) / 2;
  low_mask_ = (1ULL << low_bits_) - 1;
  rows_ = ((size - 1) >> low_bits_) + 1;
  for (unsigned i = 0; i < rounds_; ++i) keys_[i] = DrawWord64(key, i);
}

void KeyedPermutation::BuildTable(std::uint64_t key) {
  std::uint64_t forward = 0xFEDC'BA98'7654'3210ULL;
  for (std::uint64_t i = size_ - 1; i > 0; --i) {
    const std::uint64_t j = MulHigh64(DrawWord64(key, size_ - 1 - i), i + 1);
    const std::uint64_t swap = ((forward >> (4 * i)) ^ (forward >> (4 * j))) & 15;
    forward ^= (swap << (4 * i)) | (swap << (4 * j));
  }
  std::uint64_t inverse = 0;
  for (std::uint64_t i = 0; i < size_; ++i) {
    inverse |= i << (4 * ((forward >> (4 * i)) & 15));
  }
  keys_[0] = forward;
  keys_[1] = inverse;
}

inline std::uint64_t KeyedPermutation::Encrypt(std::uint64_t x) const {
  std::uint64_t low = x & low_mask_;
  std::uint64_t high = x >> low_bits_;
  const unsigned drop = 64 - low_bits_;
  for (unsigned i = 0; i < rounds_; i += 2) {
    high = AddModulo(high, MulHigh64(RoundWord(low, keys_[i]), rows_), rows_);
    low = (low + (RoundWord(high, keys_[i + 1]) >> drop)) & low_mask_;
  }
  return (high << low_bits_) | low;
}

inline std::uint64_t KeyedPermutation::Decrypt(std::uint64_t y) const {
  std::uint64_t low = y & low_mask_;
  std::uint64_t high = y >> low_bits_;
  const unsigned drop = 64 - low_bits_;
  for (unsigned i = rounds_; i > 0; i -= 2) {
    low = (low - (RoundWord(high, keys_[i - 1]) >> drop)) & low_mask_;
    high = SubtractModulo(high, MulHigh64(RoundWord(low, keys_[i - 2]), rows_), rows_);
  }
  return (high << low_bits_) | low;
}

std::uint64_t KeyedPermutation::Forward(std::uint64_t x) const {
  if (low_bits_ == 0) return (keys_[0] >> (4 * x)) & 15;
  do {
    x = Encrypt(x);
  } while (x >= size_);
  return x;
}

std::uint64_t KeyedPermutation::Inverse(std::uint64_t y) const {
  if (low_bits_ == 0) return (keys_[1] >> (4 * y)) & 15;
  do {
    y = Decrypt(y);
  } while (y >= size_);
  return y;
}

void KeyedPermutation::Forward(std::span<std::uint64_t> values) const {
  std::size_t done = 0;
  if (low_bits_ != 0) {
    const unsigned drop = 64 - low_bits_;
    for (; values.size() - done >= kLanes; done += kLanes) {
      std::uint64_t* lane = values.data() + done;
      std::array<std::uint64_t, kLanes> low;
      std::array<std::uint64_t, kLanes> high;
      for (std::size_t j = 0; j < kLanes; ++j) {
        low[j] = lane[j] & low_mask_;
        high[j] = lane[j] >> low_bits_;
      }
      for (unsigned i = 0; i < rounds_; i += 2) {
        for (std::size_t j = 0; j < kLanes; ++j) {
          high[j] = AddModulo(high[j], MulHigh64(RoundWord(low[j], keys_[i]), rows_), rows_);
        }
        for (std::size_t j = 0; j < kLanes; ++j) {
          low[j] = (low[j] + (RoundWord(high[j], keys_[i + 1]) >> drop)) & low_mask_;
        }
      }
      for (std::size_t j = 0; j < kLanes; ++j) {
        std::uint64_t x = (high[j] << low_bits_) | low[j];
        while (x >= size_) x = Encrypt(x);
        lane[j] = x;
      }
    }
  }
  for (; done < values.size(); ++done) values[done] = Forward(values[done]);
}

void KeyedPermutation::Inverse(std::span<std::uint64_t> values) const {
  std::size_t done = 0;
  if (low_bits_ != 0) {
    const unsigned drop = 64 - low_bits_;
    for (; values.size() - done >= kLanes; done += kLanes) {
      std::uint64_t* lane = values.data() + done;
      std::array<std::uint64_t, kLanes> low;
      std::array<std::uint64_t, kLanes> high;
      for (std::size_t j = 0; j < kLanes; ++j) {
        low[j] = lane[j] & low_mask_;
        high[j] = lane[j] >> low_bits_;
      }
      for (unsigned i = rounds_; i > 0; i -= 2) {
        for (std::size_t j = 0; j < kLanes; ++j) {
          low[j] = (low[j] - (RoundWord(high[j], keys_[i - 1]) >> drop)) & low_mask_;
        }
        for (std::size_t j = 0; j < kLanes; ++j) {
          high[j] =
              SubtractModulo(high[j], MulHigh64(RoundWord(low[j], keys_[i - 2]), rows_), rows_);
        }
      }
      for (std::size_t j = 0; j < kLanes; ++j) {
        std::uint64_t y = (high[j] << low_bits_) | low[j];
        while (y >= size_) y = Decrypt(y);
        lane[j] = y;
      }
    }
  }
  for (; done < values.size(); ++done) values[done] = Inverse(values[done]);
}

}  // namespace forebay
