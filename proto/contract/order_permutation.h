// KeyedPermutation: a pseudo-random permutation of [0, size) with an O(1) inverse, the engine
// of OrderSpec v1 (docs/order.md, section 3).
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

namespace forebay {

// An immutable value of about 200 bytes; construction costs at most 16 word mixes whatever
// the size and allocates nothing. Thread-safe. Nothing blocks or fails; an argument outside
// [0, size) breaks the caller's contract (Order checks it).
class KeyedPermutation {
 public:
  static constexpr unsigned kRoundsMax = 16;
  static constexpr std::uint64_t kTableSizeMax = 16;  // up to here: the packed shuffle

  // `size` in [1, 2^41].
  KeyedPermutation(std::uint64_t size, std::uint64_t key)
      : KeyedPermutation(size, key, RoundsOf(size)) {}

  // With another number of rounds (even, at most kRoundsMax): not OrderSpec v1. It lets tests
  // show that their statistics reject a network with too few.
  KeyedPermutation(std::uint64_t size, std::uint64_t key, unsigned rounds);

  // Rounds of OrderSpec v1: enough for the pair statistic of docs/order.md, section 7, to be
  // invisible in 10^6 epochs. Small domains mix slowly and take more.
  static constexpr unsigned RoundsOf(std::uint64_t size) { return size <= 512 ? 12 : 8; }

  std::uint64_t size() const { return size_; }
  std::uint64_t Forward(std::uint64_t x) const;
  std::uint64_t Inverse(std::uint64_t y) const;

  // The same, element by element and in place; several elements are in flight at once.
  void Forward(std::span<std::uint64_t> values) const;
  void Inverse(std::span<std::uint64_t> values) const;

 private:
  void BuildTable(std::uint64_t key);
  std::uint64_t Encrypt(std::uint64_t x) const;
  std::uint64_t Decrypt(std::uint64_t y) const;

  std::uint64_t size_;
  std::uint64_t rows_ = 1;      // values of the high part
  std::uint64_t low_mask_ = 0;  // 2^k - 1; 0 where the packed shuffle is used
  unsigned low_bits_ = 0;       // k
  unsigned rounds_;
  // Round keys; or, for the packed shuffle, [0] and [1]: forward and inverse, 4 bits each.
  std::array<std::uint64_t, kRoundsMax> keys_{};
};

}  // namespace forebay
