// The 64 lanes of a block-rANS stream in two registers, a byte of each state in either. For files
// that are compiled for AVX-512 only.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "compress/decode/block/block_rans_blocks.h"

namespace forebay::compress {

// States while a row is decoded; Store them afterwards.
class BlockRansLanes {
 public:
  explicit BlockRansLanes(const BlockRansStream& stream)
      : low_(_mm512_load_si512(stream.low.data())),
        high_(_mm512_load_si512(stream.high.data())),
        next_(stream.bytes) {}

  void Store(BlockRansStream& stream) const {
    _mm512_store_si512(stream.low.data(), low_);
    _mm512_store_si512(stream.high.data(), high_);
    stream.bytes = next_;
  }

  // One step: each lane's token, and which lanes escape.
  __m512i Step(const BlockRansClass& table, __mmask64& escapes) {
    escapes = _mm512_cmpge_epu8_mask(
        low_, _mm512_set1_epi8(static_cast<char>(table.escape_slots_at)));
    const __mmask64 upper = _mm512_movepi8_mask(low_);
    const __m512i token = LookUp(table.token.data(), upper);
    const __m512i frequency = LookUp(table.frequency.data(), upper);
    const __m512i bias = LookUp(table.bias.data(), upper);
    // frequency * high + bias, lanes of even number and of odd one apart.
    const __m512i byte = _mm512_set1_epi16(0xFF);
    const __m512i even = _mm512_add_epi16(
        _mm512_mullo_epi16(_mm512_and_si512(frequency, byte), _mm512_and_si512(high_, byte)),
        _mm512_and_si512(bias, byte));
    const __m512i odd = _mm512_add_epi16(
        _mm512_mullo_epi16(_mm512_srli_epi16(frequency, 8), _mm512_srli_epi16(high_, 8)),
        _mm512_srli_epi16(bias, 8));
    constexpr __mmask64 kOdd = 0xAAAA'AAAA'AAAA'AAAA;
    const __m512i low = _mm512_mask_blend_epi8(kOdd, even, _mm512_slli_epi16(odd, 8));
    const __m512i high = _mm512_mask_blend_epi8(kOdd, _mm512_srli_epi16(even, 8), odd);
    const __mmask64 refill = _mm512_testn_epi8_mask(high, high);
    high_ = _mm512_mask_mov_epi8(high, refill, low);
    low_ = _mm512_mask_expand_epi8(low, refill, _mm512_loadu_si512(next_));
    next_ += _mm_popcnt_u64(refill);
    return token;
  }

  const std::byte* next() const { return next_; }

 private:
  __m512i LookUp(const std::uint8_t* table, __mmask64 upper) const {
    const __m512i first =
        _mm512_permutex2var_epi8(_mm512_load_si512(table), low_, _mm512_load_si512(table + 64));
    const __m512i second = _mm512_permutex2var_epi8(_mm512_load_si512(table + 128), low_,
                                                    _mm512_load_si512(table + 192));
    return _mm512_mask_blend_epi8(upper, first, second);
  }

  __m512i low_, high_;
  const std::byte* next_;
};

}  // namespace forebay::compress
