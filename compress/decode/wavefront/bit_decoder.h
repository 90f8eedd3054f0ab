// Reads what BitEncoder wrote. Any input decodes to something; reading beyond the end gives
// zeros and is found by `exhausted()`, so that a parser checks once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "compress/format/plane/plane_bits.h"

namespace forebay::compress {

// Borrows its bytes. Not thread-safe. Allocates nothing.
class BitDecoder {
 public:
  explicit BitDecoder(std::span<const std::byte> bytes) : bytes_(bytes) {
    code_ = Peek();
    offset_ = 4;
  }

  bool Bit(BitModel& model) {
    std::uint32_t zero = model.zero;
    const bool bit = Decode(zero);
    model.zero = static_cast<std::uint16_t>(zero);
    return bit;
  }

  // `count` bits, at most 24, without a model.
  std::uint32_t PlainBits(unsigned count) {
    std::uint32_t value = 0;
    for (unsigned i = 0; i < count; ++i) {
      range_ >>= 1;
      const bool bit = code_ >= range_;
      if (bit) code_ -= range_;
      value = value << 1 | static_cast<std::uint32_t>(bit);
      Normalise();
    }
    return value;
  }

  // Models of both bits that may follow are read before it is known which does.
  template <unsigned kBits>
  std::uint32_t Tree(TreeModel<kBits>& model, unsigned bits = kBits) {
    std::uint32_t node = 1;
    std::uint32_t zero = model.nodes[1].zero;
    for (unsigned i = 0; i < bits; ++i) {
      const std::uint32_t below = 2 * node % static_cast<std::uint32_t>(model.nodes.size());
      const std::uint32_t if_zero = model.nodes[below].zero;
      const std::uint32_t if_one = model.nodes[below + 1].zero;
      const bool bit = Decode(zero);
      model.nodes[node].zero = static_cast<std::uint16_t>(zero);
      node = 2 * node + static_cast<std::uint32_t>(bit);
      zero = bit ? if_one : if_zero;
    }
    return node - (1U << bits);
  }

  // Below 2^24.
  std::uint32_t Number(NumberModel& model) {
    const std::uint32_t length = Tree(model.length);
    if (length == 0) return 0;
    if (length > 24) {
      invalid_ = true;
      return 0;
    }
    return 1U << (length - 1) | PlainBits(length - 1);
  }

  // Of either sign, zig-zag.
  std::int32_t SignedNumber(NumberModel& model) {
    const std::uint32_t folded = Number(model);
    const auto half = static_cast<std::int32_t>(folded >> 1);
    return (folded & 1) != 0 ? -half - 1 : half;
  }

  // True where more was read than there was, or a number was out of range. The encoder leaves out
  // trailing zeros, of which the decoder looks at four at most.
  bool exhausted() const { return invalid_ || offset_ > bytes_.size() + 4; }

 private:
  // The next four bytes, most significant first, zeros beyond the end.
  std::uint32_t Peek() const {
    std::uint32_t value = 0;
    if (offset_ < bytes_.size() && bytes_.size() - offset_ >= sizeof(value)) {
      std::memcpy(&value, bytes_.data() + offset_, sizeof(value));
      if constexpr (std::endian::native == std::endian::little) value = __builtin_bswap32(value);
      return value;
    }
    for (std::size_t i = 0; i < sizeof(value); ++i) {
      value <<= 8;
      if (offset_ + i < bytes_.size()) value |= std::to_integer<std::uint32_t>(bytes_[offset_ + i]);
    }
    return value;
  }

  // A bit whose chance of being 0 is `zero`, which learns. The compiler may make branches of this:
  // where bits are foreseen, the next one's range does not wait for a comparison then.
  [[gnu::always_inline]] bool Decode(std::uint32_t& zero) {
    const std::uint32_t bound = (range_ >> kBitProbabilityBits) * zero;
    const std::uint32_t rest = range_ - bound;
    const std::uint32_t above = code_ - bound;
    const std::uint32_t risen =
        zero + (((1U << kBitProbabilityBits) - zero) >> kBitLearningShift);
    const std::uint32_t fallen = zero - (zero >> kBitLearningShift);
    const bool bit = code_ >= bound;
    code_ = bit ? above : code_;
    range_ = bit ? rest : bound;
    zero = bit ? fallen : risen;
    Normalise();
    return bit;
  }

  // Seldom, as most bits are foreseen and take a small part of the range. Whole bytes at once.
  void Normalise() {
    if (range_ >= 1U << 24) return;
    const auto shift = static_cast<unsigned>(std::countl_zero(range_)) & 24U;
    const std::uint64_t ahead = std::uint64_t{code_} << 32 | Peek();
    code_ = static_cast<std::uint32_t>(ahead << shift >> 32);
    range_ <<= shift;
    offset_ += shift / 8;
  }

  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
  std::uint32_t range_ = 0xFFFF'FFFF;
  std::uint32_t code_ = 0;
  bool invalid_ = false;
};

}  // namespace forebay::compress
