// Symbols of samples of up to 8 bits for 64 lanes without a table in memory: a symbol is found by a
// binary search among where symbols of the context begin, which lie in registers. A processor
// gathers 64 entries of a table in about as many cycles as all the rest of a step takes. Symbols of
// rank 15 and beyond, seldom, come from the table after all. F, BW, VL, VBMI and VBMI2. For files
// that are compiled for these only.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/wavefront/wavefront_plan.h"
#include "compress/format/plane/wavefront_format.h"
#include "compress/format/plane/wavefront_side.h"

namespace forebay::compress {

// The states of 64 lanes as halves of 16 bits, 32 lanes to a register, and how they move.
class SearchAvx512 {
 public:
  // Residuals modulo 2^bits and their magnitudes, of 64 lanes.
  struct Symbols {
    __m512i residuals, sizes;
  };

  SearchAvx512(std::span<const WavefrontEntry> table, std::uint32_t bits, std::uint32_t shift,
               std::span<const std::uint32_t> states)
      : table_(table),
        residual_mask_(_mm512_set1_epi8(static_cast<char>((1 << bits) - 1))),
        size_mask_(_mm512_set1_epi8(static_cast<char>(0xFF >> std::min(shift, 8U)))),
        size_shift_(_mm_cvtsi32_si128(static_cast<int>(std::min(shift, 8U)))) {
    PrepareTree(bits);
    alignas(64) std::array<std::uint8_t, 64> line{};
    for (std::uint32_t code = 0; code < line.size(); ++code) {
      line[code] = static_cast<std::uint8_t>(WavefrontSymbolAt(kRanks - 1 - code % kRanks, bits));
    }
    residuals_ = _mm512_load_si512(line.data());
    sizes_ = SizeOf(residuals_);
    for (std::size_t i = 0; i < line.size(); ++i) line[i] = static_cast<std::uint8_t>(2 * i);
    low_bytes_ = _mm512_load_si512(line.data());
    Load(states.data());
  }

  void Load(const std::uint32_t* from) {
    for (std::size_t half = 0; half < 2; ++half) {
      const __m512i a = _mm512_loadu_si512(from + 32 * half);
      const __m512i b = _mm512_loadu_si512(from + 32 * half + 16);
      low_[half] = Joined(_mm512_cvtepi32_epi16(a), _mm512_cvtepi32_epi16(b));
      high_[half] = Joined(_mm512_cvtepi32_epi16(_mm512_srli_epi32(a, 16)),
                           _mm512_cvtepi32_epi16(_mm512_srli_epi32(b, 16)));
    }
  }

  void Save(std::uint32_t* to) const {
    for (std::size_t half = 0; half < 2; ++half) {
      const auto state = [](__m256i low, __m256i high) {
        return _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                               _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
      };
      _mm512_storeu_si512(to + 32 * half, state(_mm512_castsi512_si256(low_[half]),
                                                _mm512_castsi512_si256(high_[half])));
      _mm512_storeu_si512(to + 32 * half + 16,
                          state(_mm512_extracti64x4_epi64(low_[half], 1),
                                _mm512_extracti64x4_epi64(high_[half], 1)));
    }
  }

  // Of the residuals of all lanes.
  __m512i SizeOf(__m512i residuals) const {
    const __m512i negated = _mm512_sub_epi8(_mm512_setzero_si512(), residuals);
    const __m512i size = _mm512_min_epu8(residuals, _mm512_and_si512(negated, residual_mask_));
    return _mm512_and_si512(_mm512_srl_epi16(size, size_shift_), size_mask_);
  }

  // Of 32 lanes. index: the context, then a bit for each boundary met, 1 where the slot lies below.
  struct Found {
    __m512i slots, index, bias, frequency;
  };

  // What lanes will decode in these contexts; changes nothing.
  [[gnu::always_inline]] std::array<Found, 2> Look(__m512i contexts) const {
    return {Search(_mm512_cvtepu8_epi16(_mm512_castsi512_si256(contexts)), low_[0]),
            Search(_mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(contexts, 1)), low_[1])};
  }

  // The symbols of `lanes`, zero in others. Moves `next` on, behind which 128 bytes can be read.
  [[gnu::always_inline]] Symbols Take(std::uint64_t lanes, __m512i contexts,
                                      std::array<Found, 2> found, const std::byte*& next) {
    const __m512i code =
        _mm512_and_si512(_mm512_permutex2var_epi8(found[0].index, low_bytes_, found[1].index),
                         _mm512_set1_epi8(kRanks - 1));
    Symbols symbols = {_mm512_maskz_shuffle_epi8(lanes, residuals_, code),
                       _mm512_maskz_shuffle_epi8(lanes, sizes_, code)};
    const std::uint64_t beyond = _mm512_mask_testn_epi8_mask(lanes, code, code);
    if (beyond != 0) [[unlikely]] {
      LookUp(beyond, contexts, found, symbols.residuals);
      symbols.sizes = SizeOf(symbols.residuals);
    }
    Advance(0, static_cast<__mmask32>(lanes), found[0], next);
    Advance(1, static_cast<__mmask32>(lanes >> 32), found[1], next);
    return symbols;
  }

 private:
  static constexpr std::uint32_t kRanks = 16;  // that the tree tells apart, the last one "beyond"

  static __m512i Joined(__m256i a, __m256i b) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
  }

  // boundaries[r]: the first slot of rank r and of those beyond it.
  static std::array<std::uint16_t, kRanks> Boundaries(std::span<const WavefrontEntry> table,
                                                      std::uint32_t bits) {
    std::array<std::uint16_t, kRanks> boundaries;
    boundaries.fill(kWavefrontProbabilityScale);
    std::uint32_t rank = 0;
    for (std::uint32_t slot = 0; slot < kWavefrontProbabilityScale && rank < kRanks;) {
      const WavefrontEntry entry = table[slot];
      const std::uint32_t of = RankOf(WavefrontSymbol(entry), bits);
      while (rank < kRanks && rank <= of) boundaries[rank++] = static_cast<std::uint16_t>(slot);
      slot += WavefrontFrequency(entry);
    }
    return boundaries;
  }

  static std::uint32_t RankOf(std::uint32_t symbol, std::uint32_t bits) {
    const std::uint32_t range = 1U << bits;
    return symbol <= range / 2 ? 2 * symbol - (symbol == range / 2 ? 1 : 0)
                               : 2 * (range - symbol) - 1;
  }

  void PrepareTree(std::uint32_t bits) {
    alignas(64) std::array<std::array<std::uint16_t, 128>, 4> levels{};
    for (std::uint32_t context = 0; context < kWavefrontContexts; ++context) {
      const std::array<std::uint16_t, kRanks> boundaries = Boundaries(
          table_.subspan(context * kWavefrontProbabilityScale, kWavefrontProbabilityScale), bits);
      for (std::uint32_t level = 0; level < levels.size(); ++level) {
        const std::uint32_t nodes = 1U << level;
        for (std::uint32_t node = 0; node < nodes; ++node) {
          const std::uint32_t rank = ((nodes - 1 - node) * 2 + 1) << (3 - level);
          levels[level][context << level | node] = boundaries[rank];
        }
      }
    }
    root_ = _mm512_load_si512(levels[0].data());
    second_ = _mm512_load_si512(levels[1].data());
    for (std::size_t i = 0; i < 2; ++i) third_[i] = _mm512_load_si512(&levels[2][32 * i]);
    for (std::size_t i = 0; i < 4; ++i) fourth_[i] = _mm512_load_si512(&levels[3][32 * i]);
  }

  [[gnu::always_inline]] Found Search(__m512i contexts, __m512i states) const {
    const __m512i slots =
        _mm512_and_si512(states, _mm512_set1_epi16(kWavefrontProbabilityScale - 1));
    __m512i index = contexts;
    // The smallest distance to a boundary at or below the slot, as an unsigned number; the largest
    // one is that to the next boundary above it, which is negative.
    __m512i nearest = slots;
    __m512i furthest = _mm512_sub_epi16(slots, _mm512_set1_epi16(kWavefrontProbabilityScale));
    const auto visit = [&](__m512i boundaries) {
      const __m512i distance = _mm512_sub_epi16(slots, boundaries);
      nearest = _mm512_min_epu16(nearest, distance);
      furthest = _mm512_max_epu16(furthest, distance);
      index = _mm512_shldi_epi16(index, distance, 1);
    };
    visit(_mm512_permutexvar_epi16(index, root_));
    visit(_mm512_permutexvar_epi16(index, second_));
    visit(_mm512_permutex2var_epi16(third_[0], index, third_[1]));
    const __mmask32 upper = _mm512_test_epi16_mask(contexts, _mm512_set1_epi16(8));
    visit(_mm512_mask_mov_epi16(_mm512_permutex2var_epi16(fourth_[0], index, fourth_[1]), upper,
                                _mm512_permutex2var_epi16(fourth_[2], index, fourth_[3])));
    return {slots, index, nearest, _mm512_sub_epi16(nearest, furthest)};
  }

  // What the search did not tell apart.
  [[gnu::always_inline]] void LookUp(std::uint64_t lanes, __m512i contexts,
                                     std::array<Found, 2>& found, __m512i& residuals) const {
    alignas(64) std::array<std::uint8_t, 64> context;
    alignas(64) std::array<std::uint16_t, 64> slot;
    _mm512_store_si512(context.data(), contexts);
    _mm512_store_si512(slot.data(), found[0].slots);
    _mm512_store_si512(&slot[32], found[1].slots);
    do {
      const auto lane = static_cast<std::size_t>(std::countr_zero(lanes));
      const std::uint64_t bit = lanes & -lanes;
      lanes ^= bit;
      const WavefrontEntry entry =
          table_.data()[std::size_t{context[lane]} * kWavefrontProbabilityScale + slot[lane]];
      residuals = _mm512_mask_set1_epi8(residuals, bit, static_cast<char>(WavefrontSymbol(entry)));
      const auto set = [&](Found& half, std::uint64_t at) {
        const auto mask = static_cast<__mmask32>(at);
        half.bias = _mm512_mask_set1_epi16(half.bias, mask,
                                           static_cast<std::int16_t>(WavefrontBias(entry)));
        half.frequency = _mm512_mask_set1_epi16(
            half.frequency, mask, static_cast<std::int16_t>(WavefrontFrequency(entry)));
      };
      set(found[0], bit);
      set(found[1], bit >> 32);
    } while (lanes != 0);
  }

  // frequency * (state >> 11) + bias, in halves, and a word where that is below 2^16.
  [[gnu::always_inline]] void Advance(std::size_t half, __mmask32 lanes, const Found& found,
                                      const std::byte*& next) {
    const __m512i low = _mm512_shldi_epi16(high_[half], low_[half], 16 - kWavefrontProbabilityBits);
    const __m512i high = _mm512_srli_epi16(high_[half], kWavefrontProbabilityBits);
    const __m512i sum =
        _mm512_add_epi16(_mm512_mullo_epi16(low, found.frequency), found.bias);
    const __m512i upper = _mm512_add_epi16(_mm512_mulhi_epu16(low, found.frequency),
                                           _mm512_mullo_epi16(high, found.frequency));
    const __mmask32 carry = _mm512_cmplt_epu16_mask(sum, found.bias);
    const __m512i carried = _mm512_mask_sub_epi16(upper, carry, upper, _mm512_set1_epi16(-1));
    const __m512i advanced_low = _mm512_mask_mov_epi16(low_[half], lanes, sum);
    const __m512i advanced_high = _mm512_mask_mov_epi16(high_[half], lanes, carried);
    const __mmask32 refill = _mm512_mask_testn_epi16_mask(lanes, carried, carried);
    high_[half] = _mm512_mask_mov_epi16(advanced_high, refill, advanced_low);
    __m512i words = _mm512_loadu_si512(next);
    // As a register: expanding from memory is several times as slow.
    asm("" : "+v"(words));
    low_[half] = _mm512_mask_expand_epi16(advanced_low, refill, words);
    next += 2 * __builtin_popcount(refill);
  }

  std::span<const WavefrontEntry> table_;
  std::array<__m512i, 2> low_, high_;  // of states
  __m512i root_, second_;
  std::array<__m512i, 2> third_;
  std::array<__m512i, 4> fourth_;
  __m512i residuals_, sizes_;  // by code
  __m512i low_bytes_, residual_mask_, size_mask_;
  __m128i size_shift_;
};

}  // namespace forebay::compress
