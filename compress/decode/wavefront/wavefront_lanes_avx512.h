// What the AVX-512 kernels of both sample widths share: 64 bytes, one for each lane, in a register.
// Only for files that are compiled for AVX-512 F, BW, VL, VBMI, VBMI2 and BMI2.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/decode/wavefront/wavefront_order.h"
#include "compress/format/plane/wavefront_format.h"

namespace forebay::compress {

class LanesAvx512 {
 public:
  using Bytes = __m512i;
  static constexpr bool kSplitsEdges = false;

  LanesAvx512(const PlaneShape& shape, const WavefrontPlan& plan, bool inter,
              WavefrontStream& stream)
      : stream_(stream),
        bits_(shape.bits),
        table_(inter ? plan.inter_table : plan.intra_table),
        next_(stream.next) {
    const WavefrontGroup& group = inter ? plan.parameters.inter : plan.parameters.intra;
    PrepareFilters(group, plan.parameters.block_log2);
    PrepareContexts(group);
  }

  static Bytes Zero() { return _mm512_setzero_si512(); }
  static Bytes Load(const std::uint8_t* from) { return _mm512_loadu_si512(from); }
  static void Store(std::uint8_t* to, Bytes bytes) { _mm512_store_si512(to, bytes); }
  static Bytes Add(Bytes a, Bytes b) { return _mm512_adds_epu8(a, b); }
  static Bytes Clear(std::uint64_t lanes, Bytes a) { return _mm512_maskz_mov_epi8(~lanes, a); }
  static std::uint64_t Skipped(Bytes choice) { return _mm512_movepi8_mask(choice); }

  Bytes ShiftBytes(Bytes a, std::uint8_t first) const {
    return _mm512_mask_permutexvar_epi8(_mm512_set1_epi8(static_cast<char>(first)),
                                        ~std::uint64_t{1}, shift_index_, a);
  }

  Bytes Enter(Bytes choice, std::uint64_t fresh) const {
    return _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(shift_index_, choice), entering_,
                                        fresh_index_,
                                        _mm512_set1_epi64(static_cast<long long>(fresh)));
  }

  Bytes Contexts(Bytes energy) const {
    const __m512i low = _mm512_permutex2var_epi8(contexts_[0], energy, contexts_[1]);
    const __m512i high = _mm512_permutex2var_epi8(contexts_[2], energy, contexts_[3]);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(energy), high);
  }

 protected:
  __mmask64 Clamped(Bytes choice) const {
    return _mm512_test_epi8_mask(_mm512_permutexvar_epi8(choice, clamped_),
                                 _mm512_set1_epi8(1));
  }

  // Decodes one lane after the other, near the end of the words: symbols of 16 bits of the lower
  // and the upper lanes. `end` holds the states.
  [[gnu::always_inline]] std::array<__m512i, 2> DecodeSlowly(std::uint64_t lanes, Bytes contexts,
                                                             LanesAtEnd& end) {
    _mm512_store_si512(end.contexts.data(), contexts);
    stream_.next = next_;
    DecodeLanesAtEnd(table_, bits_, lanes, stream_, end);
    next_ = stream_.next;
    return {_mm512_load_si512(end.symbols.data()), _mm512_load_si512(&end.symbols[32])};
  }

  static std::array<__m128i, 4> Quarters(Bytes a) {
    return {_mm512_castsi512_si128(a), _mm512_extracti32x4_epi32(a, 1),
            _mm512_extracti32x4_epi32(a, 2), _mm512_extracti32x4_epi32(a, 3)};
  }

  WavefrontStream& stream_;
  const std::uint32_t bits_;
  const std::span<const WavefrontEntry> table_;
  const std::byte* next_;

 private:
  void PrepareFilters(const WavefrontGroup& group, std::uint32_t block_log2) {
    alignas(64) std::array<std::uint8_t, 64> line{};
    for (std::size_t i = 0; i < line.size(); ++i) {
      line[i] = group.filters[i % kWavefrontFiltersMax].clamped ? 1 : 0;
    }
    clamped_ = _mm512_load_si512(line.data());
    line = {};
    entering_ = 0;
    for (std::uint32_t lane = 0; lane < kWavefrontLanes; lane += 1U << block_log2) {
      line[lane] = static_cast<std::uint8_t>(lane >> block_log2);
      entering_ |= std::uint64_t{1} << lane;
    }
    fresh_index_ = _mm512_load_si512(line.data());
    for (std::size_t lane = 0; lane < line.size(); ++lane) {
      line[lane] = static_cast<std::uint8_t>(lane > 0 ? lane - 1 : 0);
    }
    shift_index_ = _mm512_load_si512(line.data());
  }

  void PrepareContexts(const WavefrontGroup& group) {
    alignas(64) std::array<std::uint8_t, 256> contexts{};
    for (std::size_t energy = 0; energy < contexts.size(); ++energy) {
      std::uint8_t context = 0;
      while (context < group.thresholds.size() && energy >= group.thresholds[context]) ++context;
      contexts[energy] = context;
    }
    for (std::size_t i = 0; i < 4; ++i) contexts_[i] = _mm512_load_si512(&contexts[i * 64]);
  }

  std::array<__m512i, 4> contexts_;
  __m512i clamped_, fresh_index_, shift_index_;
  std::uint64_t entering_ = 0;
};

}  // namespace forebay::compress
