// KeyedPermutation: a pseudo-random permutation of [0, size) with an O(1) inverse, the engine
// of OrderSpec (docs/order.md, section 3).
//
// Up to 16 elements: a Fisher-Yates shuffle packed into two words. Above: an alternating
// unbalanced Feistel network over the mixed radix 2^k x rows >= size with cycle walking
// (Black, Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002; Morris, Rogaway,
// Stegers, "How to encipher messages on a small domain", CRYPTO 2009). The domain exceeds
// `size` by less than 2^k <= sqrt(size), so walking is rare. A statistical shuffle, not a
// cipher: it keeps no secret.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "proto/contract/order_feistel.h"

namespace forebay {

// An immutable value of about 200 bytes. Construction takes at most 16 word mixes for any size and
// allocates nothing. Thread-safe. Nothing blocks or fails. An argument outside [0, size) is a
// programming error, which only Order checks.
class KeyedPermutation {
 public:
  static constexpr unsigned kRoundsMax = 16;
  static constexpr std::uint64_t kTableSizeMax = 16;  // up to here: the packed shuffle

  // `size` in [1, 2^41].
  KeyedPermutation(std::uint64_t size, std::uint64_t key)
      : KeyedPermutation(size, key, RoundsOf(size)) {}

  // Uses another number of rounds (even, at most kRoundsMax); this is not the order then. It lets
  // tests show that their statistics reject a network with too few rounds.
  KeyedPermutation(std::uint64_t size, std::uint64_t key, unsigned rounds);

  // Rounds of OrderSpec: enough for the pair statistic of docs/order.md, section 7, to be
  // invisible in 10^6 epochs. Small domains mix slowly and take more.
  static constexpr unsigned RoundsOf(std::uint64_t size) {
    return size <= kSmallSizeMax ? kSmallRounds : kRounds;
  }

  std::uint64_t size() const { return shape_.size; }
  std::uint64_t Forward(std::uint64_t x) const;
  std::uint64_t Inverse(std::uint64_t y) const;

  // Apply the permutation to each element in place; several elements are in flight at once.
  void Forward(std::span<std::uint64_t> values) const;
  void Inverse(std::span<std::uint64_t> values) const;

  // Return KeyedPermutation(shape.size, key).Forward(x) or .Inverse(y). Faster for a key that is
  // used once, because its words are computed while the rounds run.
  static std::uint64_t ForwardOnce(const FeistelShape& shape, std::uint64_t key,
                                   std::uint64_t x);
  static std::uint64_t InverseOnce(const FeistelShape& shape, std::uint64_t key,
                                   std::uint64_t y);

 private:
  static constexpr std::uint64_t kSmallSizeMax = 512;
  static constexpr unsigned kSmallRounds = 12;
  static constexpr unsigned kRounds = 8;

  void BuildTable(std::uint64_t key);
  bool is_table() const { return shape_.size <= kTableSizeMax; }
  std::uint64_t Encrypt(std::uint64_t x) const;
  std::uint64_t Decrypt(std::uint64_t y) const;
  // For tables, and for networks with another number of rounds than kRounds.
  std::uint64_t SmallForward(std::uint64_t x) const;
  std::uint64_t SmallInverse(std::uint64_t y) const;
  static std::uint64_t SmallForwardOnce(const FeistelShape& shape, std::uint64_t key,
                                        std::uint64_t x);
  static std::uint64_t SmallInverseOnce(const FeistelShape& shape, std::uint64_t key,
                                        std::uint64_t y);

  FeistelShape shape_;
  unsigned rounds_;
  // The round keys. For the packed shuffle: [0] forward, [1] inverse, 4 bits per element.
  std::array<std::uint64_t, kRoundsMax> keys_{};
};

inline std::uint64_t KeyedPermutation::Forward(std::uint64_t x) const {
  if (rounds_ != kRounds) return SmallForward(x);
  return FeistelForward<kRounds>(shape_, keys_, x);
}

inline std::uint64_t KeyedPermutation::Inverse(std::uint64_t y) const {
  if (rounds_ != kRounds) return SmallInverse(y);
  return FeistelInverse<kRounds>(shape_, keys_, y);
}

inline std::uint64_t KeyedPermutation::ForwardOnce(const FeistelShape& shape, std::uint64_t key,
                                                   std::uint64_t x) {
  if (shape.size <= kSmallSizeMax) return SmallForwardOnce(shape, key, x);
  return FeistelForward<kRounds>(shape, DrawnKeys{key}, x);
}

inline std::uint64_t KeyedPermutation::InverseOnce(const FeistelShape& shape, std::uint64_t key,
                                                   std::uint64_t y) {
  if (shape.size <= kSmallSizeMax) return SmallInverseOnce(shape, key, y);
  return FeistelInverse<kRounds>(shape, DrawnKeys{key}, y);
}

}  // namespace forebay
