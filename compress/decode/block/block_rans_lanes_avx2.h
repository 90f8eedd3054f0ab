// The 64 lanes of a block-rANS stream in four registers, a byte of each state in either of two. For
// files that are compiled for AVX2 only.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "compress/decode/block/block_rans_blocks.h"

namespace forebay::compress {

// 64 bytes: lanes 0 to 31 and 32 to 63.
struct BlockRansHalves {
  __m256i low, high;
};

// Where each of 8 lanes finds its byte among those that the lanes of a mask share.
inline constexpr std::array<std::uint64_t, 256> kBlockRansExpansions = [] {
  std::array<std::uint64_t, 256> places{};
  for (std::size_t mask = 0; mask < places.size(); ++mask) {
    std::uint64_t next = 0;
    for (std::size_t lane = 0; lane < 8; ++lane) {
      const bool taken = (mask >> lane & 1) != 0;
      places[mask] |= (taken ? next : 0x80) << (8 * lane);
      next += taken ? 1 : 0;
    }
  }
  return places;
}();

// States while a row is decoded; Store them afterwards.
class BlockRansLanesAvx2 {
 public:
  explicit BlockRansLanesAvx2(const BlockRansStream& stream)
      : low_(Load(stream.low.data())), high_(Load(stream.high.data())), next_(stream.bytes) {}

  void Store(BlockRansStream& stream) const {
    StoreBytes(low_, stream.low.data());
    StoreBytes(high_, stream.high.data());
    stream.bytes = next_;
  }

  // One step: each lane's token, and which lanes escape.
  BlockRansHalves Step(const BlockRansClass& table, std::uint64_t& escapes) {
    const BlockRansHalves slots = {Signed(low_.low), Signed(low_.high)};
    const __m256i before_escapes =
        _mm256_set1_epi8(static_cast<char>(int{table.escape_slots_at} - 129));
    escapes = Mask(_mm256_cmpgt_epi8(slots.low, before_escapes),
                   _mm256_cmpgt_epi8(slots.high, before_escapes));
    Found first = Search(table.head, low_.low, slots.low);
    Found second = Search(table.head, low_.high, slots.high);
    if (table.tail_part < kBlockRansParts) AddTail(table, slots, first, second);
    Advance(first, low_.low, high_.low);
    Advance(second, low_.high, high_.high);
    const __m256i zero = _mm256_setzero_si256();
    const __m256i first_refill = _mm256_cmpeq_epi8(high_.low, zero);
    const __m256i second_refill = _mm256_cmpeq_epi8(high_.high, zero);
    const BlockRansHalves bytes = Expand(Mask(first_refill, second_refill));
    high_.low = _mm256_blendv_epi8(high_.low, low_.low, first_refill);
    high_.high = _mm256_blendv_epi8(high_.high, low_.high, second_refill);
    low_.low = _mm256_blendv_epi8(low_.low, bytes.low, first_refill);
    low_.high = _mm256_blendv_epi8(low_.high, bytes.high, second_refill);
    return {first.token, second.token};
  }

  const std::byte* next() const { return next_; }

  static BlockRansHalves Load(const std::uint8_t* from) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32))};
  }
  static void StoreBytes(const BlockRansHalves& bytes, std::uint8_t* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes.low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), bytes.high);
  }

 private:
  struct Found {
    __m256i token, frequency, bias;
  };

  static std::uint64_t Mask(__m256i first, __m256i second) {
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(first)) |
           std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_epi8(second))} << 32;
  }

  // Slots in the order of signed bytes.
  static __m256i Signed(__m256i slots) {
    return _mm256_xor_si256(slots, _mm256_set1_epi8(static_cast<char>(0x80)));
  }

  static __m256i Broadcast16(const void* from) {
    return _mm256_broadcastsi128_si256(_mm_load_si128(static_cast<const __m128i*>(from)));
  }

  static_assert(kBlockRansHeadSymbols == 16, "one shuffle looks up a symbol");
  // Halves a head's symbols four times.
  static Found Search(const BlockRansHead& head, __m256i slots, __m256i signed_slots) {
    const __m256i before = Broadcast16(head.before.data());
    __m256i symbol = _mm256_setzero_si256();
    for (const int half : {8, 4, 2, 1}) {
      const __m256i upper = _mm256_or_si256(symbol, _mm256_set1_epi8(static_cast<char>(half)));
      const __m256i reached =
          _mm256_cmpgt_epi8(signed_slots, _mm256_shuffle_epi8(before, upper));
      symbol = _mm256_blendv_epi8(symbol, upper, reached);
    }
    const auto of_symbol = [&](const std::array<std::uint8_t, kBlockRansHeadSymbols>& values) {
      return _mm256_shuffle_epi8(Broadcast16(values.data()), symbol);
    };
    return {of_symbol(head.token), of_symbol(head.frequency),
            _mm256_sub_epi8(slots, of_symbol(head.first))};
  }

  // Shuffles of the parts of a table with symbols beyond the head, where token and frequency are
  // zero so far: a lane whose slot lies in another part, or in the head, gets zero.
  void AddTail(const BlockRansClass& table, const BlockRansHalves& signed_slots, Found& first,
               Found& second) const {
    const __m256i before = _mm256_set1_epi8(table.head.before.back());
    const auto begin = [&](__m256i slots, Found& found) {
      const __m256i in_tail = _mm256_cmpgt_epi8(slots, before);
      found.bias = _mm256_andnot_si256(in_tail, found.bias);
      return _mm256_or_si256(_mm256_set1_epi8(0x70),
                             _mm256_cmpeq_epi8(in_tail, _mm256_setzero_si256()));
    };
    const __m256i first_elsewhere = begin(signed_slots.low, first);
    const __m256i second_elsewhere = begin(signed_slots.high, second);
    for (std::uint32_t at = table.tail_part * 16U; at < kBlockRansSlots; at += 16) {
      const __m256i part = _mm256_set1_epi8(static_cast<char>(at));
      const __m256i place = _mm256_adds_epu8(_mm256_xor_si256(low_.low, part), first_elsewhere);
      const __m256i other = _mm256_adds_epu8(_mm256_xor_si256(low_.high, part), second_elsewhere);
      const auto add = [&](const std::uint8_t* from, __m256i& to, __m256i& to_other) {
        const __m256i values = Broadcast16(from + at);
        to = _mm256_or_si256(to, _mm256_shuffle_epi8(values, place));
        to_other = _mm256_or_si256(to_other, _mm256_shuffle_epi8(values, other));
      };
      add(table.token.data(), first.token, second.token);
      add(table.frequency.data(), first.frequency, second.frequency);
      add(table.bias.data(), first.bias, second.bias);
    }
  }

  // frequency * high + bias, lanes of even number and of odd one apart.
  static void Advance(const Found& found, __m256i& low, __m256i& high) {
    const __m256i byte = _mm256_set1_epi16(0xFF);
    const __m256i even = _mm256_add_epi16(
        _mm256_mullo_epi16(_mm256_and_si256(found.frequency, byte), _mm256_and_si256(high, byte)),
        _mm256_and_si256(found.bias, byte));
    const __m256i odd = _mm256_add_epi16(
        _mm256_mullo_epi16(_mm256_srli_epi16(found.frequency, 8), _mm256_srli_epi16(high, 8)),
        _mm256_srli_epi16(found.bias, 8));
    low = _mm256_or_si256(_mm256_and_si256(even, byte), _mm256_slli_epi16(odd, 8));
    high = _mm256_or_si256(_mm256_srli_epi16(even, 8), _mm256_andnot_si256(byte, odd));
  }

  // The next bytes, for the lanes of `mask`.
  BlockRansHalves Expand(std::uint64_t mask) {
    std::array<__m128i, 8> eights;
    for (__m128i& eight : eights) {
      const auto lanes = static_cast<std::uint8_t>(mask);
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(next_));
      eight = _mm_shuffle_epi8(
          bytes, _mm_cvtsi64_si128(static_cast<long long>(kBlockRansExpansions[lanes])));
      next_ += _mm_popcnt_u32(lanes);
      mask >>= 8;
    }
    const auto half = [&](std::size_t i) {
      return _mm256_inserti128_si256(
          _mm256_castsi128_si256(_mm_unpacklo_epi64(eights[i], eights[i + 1])),
          _mm_unpacklo_epi64(eights[i + 2], eights[i + 3]), 1);
    };
    return {half(0), half(4)};
  }

  BlockRansHalves low_, high_;
  const std::byte* next_;
};

}  // namespace forebay::compress
