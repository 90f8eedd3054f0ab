// What the AVX2 kernels of both sample widths share: 64 bytes, one for each lane, in two registers.
// Only for files that are compiled for AVX2 and POPCNT.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/decode/wavefront/wavefront_order.h"
#include "compress/format/plane/wavefront_format.h"

namespace forebay::compress {

// For each mask of 8 lanes, a byte for each lane: the number of lower lanes in the mask. It says
// which of the next words a lane takes.
constexpr std::array<std::uint64_t, 256> ExpandIndices() {
  std::array<std::uint64_t, 256> indices{};
  for (std::uint32_t mask = 0; mask < indices.size(); ++mask) {
    std::uint64_t before = 0;
    for (std::uint32_t lane = 0; lane < 8; ++lane) {
      indices[mask] |= before << (8 * lane);
      before += mask >> lane & 1;
    }
  }
  return indices;
}
inline constexpr std::array<std::uint64_t, 256> kExpandIndices = ExpandIndices();

struct BytesAvx2 {
  __m256i low, high;  // lanes 0 to 31, and 32 to 63
};

// Bytes of ones for the lanes of a mask.
inline __m256i MaskBytes(std::uint32_t lanes) {
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(static_cast<int>(lanes)),
      _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0));
  const __m256i bits = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
  return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bits), bits);
}
inline BytesAvx2 MaskBytes64(std::uint64_t lanes) {
  return {MaskBytes(static_cast<std::uint32_t>(lanes)),
          MaskBytes(static_cast<std::uint32_t>(lanes >> 32))};
}

// A table of 16 bytes in both halves of a register, for shuffles.
inline __m256i Table(const std::array<std::uint8_t, 16>& bytes) {
  return _mm256_broadcastsi128_si256(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes.data())));
}

// A number of 16 bits for each of 16 filters, in two tables: low and high bytes.
struct FilterNumbers {
  __m256i low, high;

  static FilterNumbers Of(const std::array<std::int32_t, kWavefrontFiltersMax>& numbers) {
    std::array<std::uint8_t, 16> low;
    std::array<std::uint8_t, 16> high;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      low[i] = static_cast<std::uint8_t>(numbers[i] & 0xFF);
      high[i] = static_cast<std::uint8_t>(numbers[i] >> 8 & 0xFF);
    }
    return {Table(low), Table(high)};
  }

  // The numbers of the filters of 32 lanes, in the order of sums.
  BytesAvx2 Look(__m256i filters) const {
    const __m256i low_bytes = _mm256_shuffle_epi8(low, filters);
    const __m256i high_bytes = _mm256_shuffle_epi8(high, filters);
    return {_mm256_unpacklo_epi8(low_bytes, high_bytes),
            _mm256_unpackhi_epi8(low_bytes, high_bytes)};
  }
};

class LanesAvx2 {
 public:
  using Bytes = BytesAvx2;
  static constexpr bool kSplitsEdges = true;

  LanesAvx2(const PlaneShape& shape, const WavefrontPlan& plan, bool inter, WavefrontStream& stream)
      : stream_(stream),
        bits_(shape.bits),
        table_(inter ? plan.inter_table : plan.intra_table),
        next_(stream.next) {
    PrepareEntering(plan.parameters.block_log2);
    PrepareContexts(inter ? plan.parameters.inter : plan.parameters.intra);
    Take(stream.states.data());
  }

  // Gives states and words back to the stream.
  void Finish() {
    Save(stream_.states.data());
    stream_.next = next_;
  }

  static Bytes Zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Bytes Load(const std::uint8_t* from) {
    return {_mm256_load_si256(reinterpret_cast<const __m256i*>(from)),
            _mm256_load_si256(reinterpret_cast<const __m256i*>(from + 32))};
  }
  static void Store(std::uint8_t* to, Bytes bytes) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), bytes.low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(to + 32), bytes.high);
  }
  static Bytes Add(Bytes a, Bytes b) {
    return {_mm256_adds_epu8(a.low, b.low), _mm256_adds_epu8(a.high, b.high)};
  }
  static Bytes Clear(std::uint64_t lanes, Bytes a) {
    const BytesAvx2 mask = MaskBytes64(lanes);
    return {_mm256_andnot_si256(mask.low, a.low), _mm256_andnot_si256(mask.high, a.high)};
  }
  static std::uint64_t Skipped(Bytes choice) { return MaskOf(choice); }

  static Bytes ShiftBytes(Bytes a, std::uint8_t first) {
    const __m256i before = _mm256_set1_epi8(static_cast<char>(first));
    return {_mm256_alignr_epi8(a.low, _mm256_permute2x128_si256(before, a.low, 0x21), 15),
            _mm256_alignr_epi8(a.high, _mm256_permute2x128_si256(a.low, a.high, 0x21), 15)};
  }

  Bytes Enter(Bytes choice, std::uint64_t fresh) const {
    const Bytes shifted = ShiftBytes(choice, 0);
    const __m256i entering = _mm256_set1_epi64x(static_cast<long long>(fresh));
    return {_mm256_or_si256(_mm256_and_si256(shifted.low, staying_.low),
                            _mm256_shuffle_epi8(entering, fresh_index_.low)),
            _mm256_or_si256(_mm256_and_si256(shifted.high, staying_.high),
                            _mm256_shuffle_epi8(entering, fresh_index_.high))};
  }

  Bytes Contexts(Bytes energy) const {
    return {SearchThresholds(energy.low), SearchThresholds(energy.high)};
  }

 protected:
  static std::uint64_t MaskOf(Bytes a) {
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(a.low)) |
           std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_epi8(a.high))} << 32;
  }

  // Decodes one lane after the other into end.symbols, near the end of the words.
  [[gnu::always_inline]] void DecodeSlowly(std::uint64_t lanes, Bytes contexts, LanesAtEnd& end) {
    Save(end.states.data());
    Store(end.contexts.data(), contexts);
    stream_.next = next_;
    DecodeLanesAtEnd(table_, bits_, lanes, stream_, end);
    next_ = stream_.next;
    Take(end.states.data());
  }

  // One rANS step of eight lanes: their table entries and next states. States in `refill` still
  // lack the word that they take. Outside `mask` entries are meaningless, and states stay.
  struct Advanced {
    __m256i entry, state, refill;
  };
  [[gnu::always_inline]] Advanced Advance(std::size_t group, __m256i mask, __m128i contexts) const {
    const __m256i state = states_[group];
    const __m256i index = _mm256_or_si256(
        _mm256_slli_epi32(_mm256_cvtepu8_epi32(contexts), kWavefrontProbabilityBits),
        _mm256_and_si256(state, _mm256_set1_epi32(kWavefrontProbabilityScale - 1)));
    const __m256i entry =
        _mm256_i32gather_epi32(reinterpret_cast<const int*>(table_.data()), index, 4);
    const __m256i frequency =
        _mm256_and_si256(_mm256_srli_epi32(entry, 8), _mm256_set1_epi32(0xFFF));
    const __m256i advanced = _mm256_blendv_epi8(
        state,
        _mm256_add_epi32(
            _mm256_mullo_epi32(frequency, _mm256_srli_epi32(state, kWavefrontProbabilityBits)),
            _mm256_srli_epi32(entry, 20)),
        mask);
    // Lanes outside the mask have states that need no word.
    return {entry, advanced, NeedsWord(advanced)};
  }

  static __m256i NeedsWord(__m256i states) {
    return _mm256_cmpeq_epi32(_mm256_srli_epi32(states, 16), _mm256_setzero_si256());
  }
  // The mask of lanes of 32 bits whose top bit is set.
  static std::uint32_t MaskOf32(__m256i lanes) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(lanes)));
  }

  WavefrontStream& stream_;
  const std::uint32_t bits_;
  const std::span<const WavefrontEntry> table_;
  const std::byte* next_;
  std::array<__m256i, 8> states_;

 private:
  void PrepareContexts(const WavefrontGroup& group) {
    for (std::size_t round = 0; round < thresholds_.size(); ++round) {
      const std::size_t offset = (std::size_t{8} >> round) - 1;
      std::array<std::uint8_t, 16> line{};
      for (std::size_t i = 0; i + offset < group.thresholds.size(); ++i) {
        line[i] = group.thresholds[i + offset];
      }
      thresholds_[round] = Table(line);
    }
  }

  void PrepareEntering(std::uint32_t block_log2) {
    alignas(32) std::array<std::uint8_t, kWavefrontLanes> index;
    alignas(32) std::array<std::uint8_t, kWavefrontLanes> staying;
    for (std::uint32_t lane = 0; lane < kWavefrontLanes; ++lane) {
      const bool enters = (lane & ((1U << block_log2) - 1)) == 0;
      index[lane] = enters ? static_cast<std::uint8_t>(lane >> block_log2) : std::uint8_t{0x80};
      staying[lane] = enters ? 0 : 0xFF;
    }
    fresh_index_ = Load(index.data());
    staying_ = Load(staying.data());
  }

  // The number of thresholds that each energy reaches, by a binary search in four rounds.
  [[gnu::always_inline]] __m256i SearchThresholds(__m256i energy) const {
    __m256i found = _mm256_setzero_si256();
    for (std::size_t round = 0; round < thresholds_.size(); ++round) {
      const __m256i threshold = _mm256_shuffle_epi8(thresholds_[round], found);
      const __m256i reached = _mm256_cmpeq_epi8(_mm256_max_epu8(energy, threshold), energy);
      found = _mm256_or_si256(
          found, _mm256_and_si256(reached, _mm256_set1_epi8(static_cast<char>(8 >> round))));
    }
    return found;
  }

  void Take(const std::uint32_t* states) {
    const auto at = [&](std::size_t group) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(states + 8 * group));
    };
    states_ = {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)};
  }

  void Save(std::uint32_t* states) const {
    for (std::size_t group = 0; group < states_.size(); ++group) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(states + 8 * group), states_[group]);
    }
  }

  std::array<__m256i, 4> thresholds_;
  BytesAvx2 fresh_index_, staying_;
};

}  // namespace forebay::compress
