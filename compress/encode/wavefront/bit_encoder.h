// Writes adaptive binary decisions for BitDecoder: the same models, moved alike.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/format/plane/plane_bits.h"
#include "proto/contract/check.h"

namespace forebay::compress {

// Owns what it has written. Not thread-safe.
class BitEncoder {
 public:
  void Bit(BitModel& model, bool bit) {
    const std::uint32_t bound = (range_ >> kBitProbabilityBits) * model.zero;
    if (bit) {
      low_ += bound;
      range_ -= bound;
    } else {
      range_ = bound;
    }
    model.Learn(bit);
    Normalise();
  }

  void PlainBits(std::uint32_t value, unsigned count) {
    for (unsigned i = count; i-- > 0;) {
      range_ >>= 1;
      if ((value >> i & 1) != 0) low_ += range_;
      Normalise();
    }
  }

  template <unsigned kBits>
  void Tree(TreeModel<kBits>& model, std::uint32_t value, unsigned bits = kBits) {
    std::uint32_t node = 1;
    for (unsigned i = bits; i-- > 0;) {
      const bool bit = (value >> i & 1) != 0;
      Bit(model.nodes[node], bit);
      node = node << 1 | static_cast<std::uint32_t>(bit);
    }
  }

  // Below 2^24.
  void Number(NumberModel& model, std::uint32_t value) {
    FOREBAY_CHECK(value < 1U << 24);
    const auto length = static_cast<std::uint32_t>(std::bit_width(value));
    Tree(model.length, length);
    if (length > 1) PlainBits(value & ((1U << (length - 1)) - 1), length - 1);
  }

  void SignedNumber(NumberModel& model, std::int32_t value) {
    const auto folded = value < 0 ? static_cast<std::uint32_t>(-(value + 1)) * 2 + 1
                                  : static_cast<std::uint32_t>(value) * 2;
    Number(model, folded);
  }

  // Ends the stream; up to four zeros at its end are left out. The encoder is spent.
  std::vector<std::byte> Finish() {
    for (int i = 0; i < 5; ++i) ShiftLow();
    // The first byte is always zero: it is the room for a carry.
    bytes_.erase(bytes_.begin());
    for (int i = 0; i < 4 && !bytes_.empty() && bytes_.back() == std::byte{0}; ++i) {
      bytes_.pop_back();
    }
    return std::move(bytes_);
  }

 private:
  void Normalise() {
    while (range_ < (1U << 24)) {
      range_ <<= 8;
      ShiftLow();
    }
  }

  // Emits the top byte of low once no carry can reach it any more.
  void ShiftLow() {
    if (low_ < 0xFF00'0000U || low_ >= (1ULL << 32)) {
      const auto carry = static_cast<std::uint8_t>(low_ >> 32);
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint8_t>(held_ + carry)));
      for (; held_count_ > 0; --held_count_) {
        bytes_.push_back(static_cast<std::byte>(static_cast<std::uint8_t>(0xFF + carry)));
      }
      held_ = static_cast<std::uint8_t>(low_ >> 24);
    } else {
      ++held_count_;
    }
    low_ = (low_ & 0x00FF'FFFF) << 8;
  }

  std::vector<std::byte> bytes_;
  std::uint64_t low_ = 0;
  std::uint64_t held_count_ = 0;
  std::uint32_t range_ = 0xFFFF'FFFF;
  std::uint8_t held_ = 0;
};

}  // namespace forebay::compress
