// The keyed permutation: a packed shuffle up to 16 elements, above that a Feistel network with
// cycle walking. The batched forms run kLanes networks side by side, because one network is a chain
// of dependent multiplications that leaves most of the processor idle.
#include "proto/contract/order_permutation.h"

#include <cstddef>

#include "proto/contract/check.h"
#include "proto/contract/order_mix.h"

namespace forebay {
namespace {

// Elements in flight in the batched forms: enough to hide the latency of the multiplications.
constexpr std::size_t kLanes = 4;

}  // namespace

KeyedPermutation::KeyedPermutation(std::uint64_t size, std::uint64_t key, unsigned rounds)
    : shape_(size), rounds_(rounds) {
  FOREBAY_CHECK(rounds >= 2 && rounds <= kRoundsMax && rounds % 2 == 0);
  // A network of so few elements mixes too slowly; a shuffle of 16 elements fits in one word.
  if (is_table()) {
    rounds_ = kSmallRounds;  // not used; keeps tables off the path of the large networks
    BuildTable(key);
    return;
  }
  for (unsigned i = 0; i < rounds_; ++i) keys_[i] = DrawWord64(key, i);
}

// A Fisher-Yates shuffle in one word: element i is the i-th group of 4 bits, and three XORs swap
// two.
void KeyedPermutation::BuildTable(std::uint64_t key) {
  std::uint64_t forward = 0xFEDC'BA98'7654'3210ULL;  // the identity
  for (std::uint64_t i = shape_.size - 1; i > 0; --i) {
    // A word times i + 1, high half: a number in [0, i] without a division and with negligible
    // bias.
    const std::uint64_t j = MulHigh64(DrawWord64(key, shape_.size - 1 - i), i + 1);
    const std::uint64_t swap = ((forward >> (4 * i)) ^ (forward >> (4 * j))) & 15;
    forward ^= (swap << (4 * i)) | (swap << (4 * j));
  }
  std::uint64_t inverse = 0;
  for (std::uint64_t i = 0; i < shape_.size; ++i) {
    inverse |= i << (4 * ((forward >> (4 * i)) & 15));
  }
  keys_[0] = forward;
  keys_[1] = inverse;
}

// One pass through the network, whose result may lie outside the domain; callers walk on then.
inline std::uint64_t KeyedPermutation::Encrypt(std::uint64_t x) const {
  FeistelState state{x & shape_.low_mask, x >> shape_.low_bits};
  for (unsigned i = 0; i < rounds_; i += 2) state.Mix(shape_, keys_[i], keys_[i + 1]);
  return (state.high << shape_.low_bits) | state.low;
}

inline std::uint64_t KeyedPermutation::Decrypt(std::uint64_t y) const {
  FeistelState state{y & shape_.low_mask, y >> shape_.low_bits};
  for (unsigned i = rounds_; i > 0; i -= 2) state.Unmix(shape_, keys_[i - 2], keys_[i - 1]);
  return (state.high << shape_.low_bits) | state.low;
}

// The last loop is only for tests, which choose the number of rounds.
std::uint64_t KeyedPermutation::SmallForward(std::uint64_t x) const {
  if (is_table()) return (keys_[0] >> (4 * x)) & 15;
  if (rounds_ == kSmallRounds) return FeistelForward<kSmallRounds>(shape_, keys_, x);
  do {
    x = Encrypt(x);
  } while (x >= shape_.size);
  return x;
}

std::uint64_t KeyedPermutation::SmallInverse(std::uint64_t y) const {
  if (is_table()) return (keys_[1] >> (4 * y)) & 15;
  if (rounds_ == kSmallRounds) return FeistelInverse<kSmallRounds>(shape_, keys_, y);
  do {
    y = Decrypt(y);
  } while (y >= shape_.size);
  return y;
}

std::uint64_t KeyedPermutation::SmallForwardOnce(const FeistelShape& shape, std::uint64_t key,
                                                 std::uint64_t x) {
  if (shape.size <= kTableSizeMax) return KeyedPermutation(shape.size, key).Forward(x);
  return FeistelForward<kSmallRounds>(shape, DrawnKeys{key}, x);
}

std::uint64_t KeyedPermutation::SmallInverseOnce(const FeistelShape& shape, std::uint64_t key,
                                                 std::uint64_t y) {
  if (shape.size <= kTableSizeMax) return KeyedPermutation(shape.size, key).Inverse(y);
  return FeistelInverse<kSmallRounds>(shape, DrawnKeys{key}, y);
}

void KeyedPermutation::Forward(std::span<std::uint64_t> values) const {
  std::size_t done = 0;
  for (; !is_table() && values.size() - done >= kLanes; done += kLanes) {
    std::uint64_t* lane = values.data() + done;
    std::array<FeistelState, kLanes> states;
    for (std::size_t j = 0; j < kLanes; ++j) {
      states[j] = {lane[j] & shape_.low_mask, lane[j] >> shape_.low_bits};
    }
    for (unsigned i = 0; i < rounds_; i += 2) {
      for (FeistelState& state : states) state.Mix(shape_, keys_[i], keys_[i + 1]);
    }
    for (std::size_t j = 0; j < kLanes; ++j) {
      // Cycle walking: rare, so it is done element by element.
      std::uint64_t x = (states[j].high << shape_.low_bits) | states[j].low;
      while (x >= shape_.size) x = Encrypt(x);
      lane[j] = x;
    }
  }
  for (; done < values.size(); ++done) values[done] = Forward(values[done]);
}

void KeyedPermutation::Inverse(std::span<std::uint64_t> values) const {
  std::size_t done = 0;
  for (; !is_table() && values.size() - done >= kLanes; done += kLanes) {
    std::uint64_t* lane = values.data() + done;
    std::array<FeistelState, kLanes> states;
    for (std::size_t j = 0; j < kLanes; ++j) {
      states[j] = {lane[j] & shape_.low_mask, lane[j] >> shape_.low_bits};
    }
    for (unsigned i = rounds_; i > 0; i -= 2) {
      for (FeistelState& state : states) state.Unmix(shape_, keys_[i - 2], keys_[i - 1]);
    }
    for (std::size_t j = 0; j < kLanes; ++j) {
      std::uint64_t y = (states[j].high << shape_.low_bits) | states[j].low;
      while (y >= shape_.size) y = Decrypt(y);
      lane[j] = y;
    }
  }
  for (; done < values.size(); ++done) values[done] = Inverse(values[done]);
}

}  // namespace forebay
