// The AVX-512 kernel of wavefront planes, for samples of 9 to 16 bits: 64 lanes in two registers.
// Samples are kept less half their range, so that a sample is a signed number of 16 bits and one
// instruction multiplies two taps by their weights and adds the products exactly. Sums of 32 bits
// lie in the order in which such pairs interleave: register 0 has lanes 0-3, 8-11, 16-19, 24-27,
// register 1 lanes 4-7, 12-15 ..., registers 2 and 3 the same of lanes 32 to 63.
#include <immintrin.h>

#include <algorithm>
#include <array>

#include "compress/decode/wavefront/wavefront_lanes_avx512.h"
#include "compress/decode/wavefront/wavefront_order.h"
#include "compress/decode/wavefront/wavefront_pass.h"
#include "compress/decode/wavefront/wavefront_runs.h"

namespace forebay::compress {
namespace {

// Taps whose weights are looked up and multiplied together; west, known last, ends the chain from
// one step to the next.
constexpr std::size_t kTapPairs = 4;
constexpr std::array<std::array<std::size_t, 2>, kTapPairs> kPairedTaps = {
    {{8, 7}, {6, 5}, {3, 2}, {4, 1}}};

struct Wide {
  __m512i low, high;
};

// The operations of wavefront_pass.h on 64 samples of 16 bits in two registers.
class WideLanes : public LanesAvx512 {
 public:
  using Sample = std::uint16_t;
  using Pixels = Wide;
  using Symbols = Wide;  // folded residuals

  WideLanes(const WavefrontOrderFrame<Sample>& frame, WavefrontStream& stream)
      : LanesAvx512(frame.shape, frame.plan, frame.previous != nullptr, stream) {
    const WavefrontGroup& group =
        frame.previous != nullptr ? frame.plan.parameters.inter : frame.plan.parameters.intra;
    for (std::size_t pair = 0; pair < kTapPairs; ++pair) {
      weights_[pair] = PairWeights(group, kPairedTaps[pair][0], kPairedTaps[pair][1]);
    }
    // kIntraTapCount names no tap: west's partner has a weight of 0.
    west_weights_ = PairWeights(group, 0, kIntraTapCount);
    // Indices of a shift by one lane: the lower register shifts within itself and takes `first` at
    // lane 0; the upper one begins with the last lane of the lower one, which is index 31 of both
    // together.
    alignas(64) std::array<std::uint16_t, 32> line{};
    for (std::size_t lane = 0; lane < line.size(); ++lane) {
      line[lane] = static_cast<std::uint16_t>(lane > 0 ? lane - 1 : 0);
    }
    shift_low_ = _mm512_load_si512(line.data());
    for (std::size_t lane = 0; lane < line.size(); ++lane) {
      line[lane] = static_cast<std::uint16_t>(lane + 31);
    }
    shift_high_ = _mm512_load_si512(line.data());
    const auto middle = static_cast<int>(1U << (bits_ - 1));
    lowest_ = _mm512_set1_epi16(static_cast<std::int16_t>(-middle));
    highest_ = _mm512_set1_epi16(static_cast<std::int16_t>(middle - 1));
    spare_bits_ = _mm_cvtsi32_si128(static_cast<int>(16 - bits_));
    magnitude_shift_ = _mm_cvtsi32_si128(
        static_cast<int>(frame.plan.parameters.magnitude_shift));
    // States stay in registers for the whole frame; Finish writes them back.
    LoadStates(stream.states.data());
  }

  // Gives states and words back to the stream.
  void Finish() {
    SaveStates(stream_.states.data());
    stream_.next = next_;
  }

  static Pixels AllPixels(Sample value) {
    const __m512i all = _mm512_set1_epi16(static_cast<std::int16_t>(value));
    return {all, all};
  }

  static Pixels Select(std::uint64_t lanes, Pixels a, Pixels b) {
    return {_mm512_mask_mov_epi16(a.low, static_cast<__mmask32>(lanes), b.low),
            _mm512_mask_mov_epi16(a.high, static_cast<__mmask32>(lanes >> 32), b.high)};
  }

  Pixels Shift(Pixels a, Sample first) const {
    return {_mm512_mask_permutexvar_epi16(_mm512_set1_epi16(static_cast<std::int16_t>(first)),
                                          ~__mmask32{1}, shift_low_, a.low),
            _mm512_permutex2var_epi16(a.low, shift_high_, a.high)};
  }

  [[gnu::always_inline]] Pixels Predict(const std::int32_t* sums, Bytes choice,
                                        const std::array<Pixels, kIntraTapCount>& taps) const {
    const __m512i zero = _mm512_setzero_si512();
    std::array<__m512i, 4> sum = {zero, zero, zero, zero};
    if (sums != nullptr) {
      // BandToWavefront has written the sums in the same interleaved order.
      for (std::size_t i = 0; i < 4; ++i) sum[i] = _mm512_load_si512(sums + 16 * i);
    }
    // Filters are interleaved exactly as the pairs of taps below, so that each sum meets its own
    // weights. The permutation looks at four bits, so the mark of skipped blocks does no harm.
    const __m512i choice_low = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(choice));
    const __m512i choice_high = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(choice, 1));
    const std::array<__m512i, 4> filters = {
        _mm512_unpacklo_epi16(choice_low, zero), _mm512_unpackhi_epi16(choice_low, zero),
        _mm512_unpacklo_epi16(choice_high, zero), _mm512_unpackhi_epi16(choice_high, zero)};
    const auto add = [&](const Pixels& a, const Pixels& b, __m512i weights) {
      const std::array<__m512i, 4> both = {
          _mm512_unpacklo_epi16(a.low, b.low), _mm512_unpackhi_epi16(a.low, b.low),
          _mm512_unpacklo_epi16(a.high, b.high), _mm512_unpackhi_epi16(a.high, b.high)};
      for (std::size_t i = 0; i < 4; ++i) {
        // One entry of 32 bits holds both weights of a pair: one look-up and one multiplication for
        // two taps. The products of 9 and 16 bits are exact, and sums are modulo 2^32, as the
        // format says.
        sum[i] = _mm512_add_epi32(
            sum[i], _mm512_madd_epi16(both[i], _mm512_permutexvar_epi32(filters[i], weights)));
      }
    };
    for (std::size_t pair = 0; pair < kTapPairs; ++pair) {
      add(taps[kPairedTaps[pair][0]], taps[kPairedTaps[pair][1]], weights_[pair]);
    }
    // West comes last, because the previous step decodes it: all other sums do not wait for it.
    add(taps[0], {zero, zero}, west_weights_);
    const Pixels value = {Round(sum[0], sum[1]), Round(sum[2], sum[3])};
    const __mmask64 clamped = Clamped(choice);
    return {Confine(value.low, static_cast<__mmask32>(clamped), taps[0].low, taps[2].low),
            Confine(value.high, static_cast<__mmask32>(clamped >> 32), taps[0].high,
                    taps[2].high)};
  }

  // Asked once a step. With that many bytes left no load of the step can reach beyond the words.
  bool NearEnd() const { return stream_.end - next_ < kStepBytesMax; }

  [[gnu::always_inline]] Symbols DecodeAtEnd(std::uint64_t lanes, Bytes contexts) {
    // The lanes are decoded one by one, in memory. Only the last steps of a body come here, so the
    // speed does not matter.
    LanesAtEnd end;
    SaveStates(end.states.data());
    const std::array<__m512i, 2> halves = DecodeSlowly(lanes, contexts, end);
    LoadStates(end.states.data());
    return {halves[0], halves[1]};
  }

  [[gnu::always_inline]] Symbols Decode(std::uint64_t lanes, Bytes contexts) {
    // Written out, because the compiler does not unroll a loop here, and the states would stay in
    // memory.
    const std::array<__m128i, 4> parts = Quarters(contexts);
    const std::array<__m256i, 4> folded = {
        DecodeGroup(0, lanes, parts[0]), DecodeGroup(1, lanes, parts[1]),
        DecodeGroup(2, lanes, parts[2]), DecodeGroup(3, lanes, parts[3])};
    return {_mm512_inserti64x4(_mm512_castsi256_si512(folded[0]), folded[1], 1),
            _mm512_inserti64x4(_mm512_castsi256_si512(folded[2]), folded[3], 1)};
  }

  // Adds the residual, folded as 0, -1, 1, -2 ..., modulo 2^bits, and extends the sign.
  Pixels Join(Pixels value, Symbols folded) const {
    const auto join = [&](__m512i a, __m512i f) {
      // Unfolds: an even f means f / 2, an odd one the complement of that. All ones select the
      // complement.
      const __m512i sign =
          _mm512_sub_epi16(_mm512_setzero_si512(), _mm512_and_si512(f, _mm512_set1_epi16(1)));
      const __m512i sum = _mm512_add_epi16(a, _mm512_xor_si512(_mm512_srli_epi16(f, 1), sign));
      // Two shifts drop the bits beyond the sample's and extend its sign.
      return _mm512_sra_epi16(_mm512_sll_epi16(sum, spare_bits_), spare_bits_);
    };
    return {join(value.low, folded.low), join(value.high, folded.high)};
  }

  // The magnitudes of folded residuals 0, 1, 2, 3 ... are 0, 1, 1, 2 ...: half, rounded up.
  Bytes SizeOf(Symbols folded) const {
    const auto size = [&](__m512i f) {
      // The average with zero rounds up and cannot overflow; narrowing saturates at 255, as the
      // format says.
      return _mm512_cvtusepi16_epi8(
          _mm512_srl_epi16(_mm512_avg_epu16(f, _mm512_setzero_si512()), magnitude_shift_));
    };
    return _mm512_inserti64x4(_mm512_castsi256_si512(size(folded.low)), size(folded.high), 1);
  }

  static void StorePixels(Sample* to, std::uint64_t lanes, Pixels pixels) {
    _mm512_mask_storeu_epi16(to, static_cast<__mmask32>(lanes), pixels.low);
    _mm512_mask_storeu_epi16(to + 32, static_cast<__mmask32>(lanes >> 32), pixels.high);
  }

 private:
  // Two words a lane at most, and a load that reads further than it takes.
  static constexpr std::ptrdiff_t kStepBytesMax = 4 * kWavefrontLanes;

  void LoadStates(const std::uint32_t* from) {
    states_ = {_mm512_loadu_si512(from), _mm512_loadu_si512(from + 16),
               _mm512_loadu_si512(from + 32), _mm512_loadu_si512(from + 48)};
  }

  void SaveStates(std::uint32_t* to) const {
    _mm512_storeu_si512(to, states_[0]);
    _mm512_storeu_si512(to + 16, states_[1]);
    _mm512_storeu_si512(to + 32, states_[2]);
    _mm512_storeu_si512(to + 48, states_[3]);
  }

  // One rANS step of sixteen lanes: their table entries (zero outside `lanes`) and next states.
  // States in `refill` still lack the word that they take.
  struct Advanced {
    __m512i entry, state;
    __mmask16 refill;
  };
  [[gnu::always_inline]] Advanced Advance(std::size_t group, __mmask16 lanes,
                                          __m128i contexts) const {
    const __m512i state = states_[group];
    const __m512i index = _mm512_or_si512(
        _mm512_slli_epi32(_mm512_cvtepu8_epi32(contexts), kWavefrontProbabilityBits),
        _mm512_and_si512(state, _mm512_set1_epi32(kWavefrontProbabilityScale - 1)));
    // Masked, so that lanes without a pixel read nothing and get token 0.
    const __m512i entry = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), lanes, index,
                                                      table_.data(), 4);
    const __m512i frequency =
        _mm512_and_si512(_mm512_srli_epi32(entry, 8), _mm512_set1_epi32(0xFFF));
    const __m512i advanced = _mm512_add_epi32(
        _mm512_mullo_epi32(frequency, _mm512_srli_epi32(state, kWavefrontProbabilityBits)),
        _mm512_srli_epi32(entry, 20));
    // States of lanes without a pixel stay, and never ask for a word.
    return {entry, _mm512_mask_mov_epi32(state, lanes, advanced),
            _mm512_mask_cmplt_epu32_mask(lanes, advanced, StateMin())};
  }

  static __m512i StateMin() { return _mm512_set1_epi32(static_cast<int>(kWavefrontStateMin)); }

  static __m512i PairWeights(const WavefrontGroup& group, std::size_t first, std::size_t second) {
    alignas(64) std::array<std::int16_t, 32> line{};
    for (std::size_t i = 0; i < kWavefrontFiltersMax; ++i) {
      // Both weights of a filter side by side, 16 bits each, as madd takes them.
      line[2 * i] = group.filters[i].weights[first];
      line[2 * i + 1] = second < kIntraTapCount ? group.filters[i].weights[second]
                                                : std::int16_t{0};
    }
    return _mm512_load_si512(line.data());
  }

  __m512i Round(__m512i first, __m512i second) const {
    const __m512i half = _mm512_set1_epi32(1 << (kWavefrontWeightBits - 1));
    const __m512i both =
        // Packing saturates to 16 bits; then the narrower range of the samples is enforced. It
        // works within 128 bits and so undoes the interleaving of the sums.
        _mm512_packs_epi32(_mm512_srai_epi32(_mm512_add_epi32(first, half), kWavefrontWeightBits),
                           _mm512_srai_epi32(_mm512_add_epi32(second, half), kWavefrontWeightBits));
    return _mm512_min_epi16(_mm512_max_epi16(both, lowest_), highest_);
  }

  // A clamped filter's prediction stays between west and north.
  static __m512i Confine(__m512i value, __mmask32 lanes, __m512i west, __m512i north) {
    const __m512i raised =
        _mm512_mask_max_epi16(value, lanes, value, _mm512_min_epi16(west, north));
    return _mm512_mask_min_epi16(raised, lanes, raised, _mm512_max_epi16(west, north));
  }

  // Decodes sixteen lanes. A lane takes up to two words, both before the next lane takes any.
  // Whether it takes the second does not depend on the value of the first, so one expansion of 32
  // words deals out all of them.
  [[gnu::always_inline]] __m256i DecodeGroup(std::size_t group, std::uint64_t lanes,
                                             __m128i contexts) {
    const Advanced advanced =
        Advance(group, static_cast<__mmask16>(lanes >> (16 * group)), contexts);
    const __m512i token = _mm512_and_si512(advanced.entry, _mm512_set1_epi32(0xFF));
    const __mmask16 octaves =
        _mm512_cmpge_epu32_mask(token, _mm512_set1_epi32(kWavefrontDirectTokens));
    // An octave's token has two bits below its leading one. `plain` counts the bits that follow
    // those without a model, in the low bits of the state; it is 0 for tokens that are the residual
    // itself.
    const __m512i plain = _mm512_maskz_sub_epi32(octaves, _mm512_srli_epi32(token, 2),
                                                 _mm512_set1_epi32(2));
    // The state before its word is added. The low 16 bits, which that word fills, do not decide
    // whether the state is below 2^16 after the plain bits have left it.
    const __m512i lifted =
        _mm512_mask_slli_epi32(advanced.state, advanced.refill, advanced.state, 16);
    const __mmask16 again = _mm512_mask_cmplt_epu32_mask(
        octaves, _mm512_srlv_epi32(lifted, plain), StateMin());
    // Bit 2i: lane i takes a word; bit 2i + 1: it takes a second one. Expanded in this order, both
    // words of a lane come to lie in its own 32 bits.
    const std::uint32_t taken =
        _pdep_u32(advanced.refill, 0x55555555) | _pdep_u32(again, 0xAAAAAAAA);
    const __m512i words = _mm512_maskz_expand_epi16(taken, _mm512_loadu_si512(next_));
    next_ += 2 * __builtin_popcount(taken);
    // A lane that took no first word has zeros there.
    const __m512i filled = _mm512_or_si512(
        lifted, _mm512_and_si512(words, _mm512_set1_epi32(0xFFFF)));
    // The residual is 1xx, the leading one and the token's two bits, followed by the plain bits.
    const __m512i leading = _mm512_mask_or_epi32(
        token, octaves, _mm512_and_si512(token, _mm512_set1_epi32(3)), _mm512_set1_epi32(4));
    const __m512i low =
        _mm512_andnot_si512(_mm512_sllv_epi32(_mm512_set1_epi32(-1), plain), filled);
    const __m512i shifted = _mm512_srlv_epi32(filled, plain);
    states_[group] = _mm512_or_si512(_mm512_mask_slli_epi32(shifted, again, shifted, 16),
                                     _mm512_srli_epi32(words, 16));
    return _mm512_cvtepi32_epi16(_mm512_or_si512(_mm512_sllv_epi32(leading, plain), low));
  }

  std::array<__m512i, 4> states_;
  std::array<__m512i, kTapPairs> weights_;
  __m512i west_weights_, shift_low_, shift_high_, lowest_, highest_;
  __m128i spare_bits_, magnitude_shift_;
};

// Sums of the temporal taps of 32 pixels.
class RunSums {
 public:
  explicit RunSums(const TapList<std::uint16_t>& taps) : count_((taps.count + 1) / 2) {
    for (std::size_t i = 0; i < count_; ++i) {
      const std::size_t second = std::min(2 * i + 1, taps.count - 1);
      // With an odd number of taps the last one is paired with itself, at a weight of 0.
      const std::int32_t weight = 2 * i + 1 < taps.count ? taps.weights[second] : 0;
      from_[i] = {taps.from[2 * i], taps.from[second]};
      factors_[i] = _mm512_set1_epi32(weight * (1 << 16) + (taps.weights[2 * i] & 0xFFFF));
    }
  }

  // Adds the taps of 32 pixels and writes 16 sums to each of two places. `load` loads the 32
  // samples of a tap, given the address of the tap for the pixel at (0, 0).
  template <typename Load>
  [[gnu::always_inline]] void Sum(const Load& load, std::int32_t* first,
                                  std::int32_t* second) const {
    __m512i low = _mm512_setzero_si512();
    __m512i high = low;
    for (std::size_t i = 0; i < count_; ++i) {
      const __m512i a = load(from_[i][0]);
      const __m512i b = load(from_[i][1]);
      low = _mm512_add_epi32(low, _mm512_madd_epi16(_mm512_unpacklo_epi16(a, b), factors_[i]));
      high = _mm512_add_epi32(high, _mm512_madd_epi16(_mm512_unpackhi_epi16(a, b), factors_[i]));
    }
    // Interleaving left pixels 0-3, 8-11 ... in `low` and 4-7, 12-15 ... in `high`. These indices
    // bring them back in order.
    const __m512i first_half = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i second_half = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    _mm512_storeu_si512(first, _mm512_permutex2var_epi64(low, first_half, high));
    _mm512_storeu_si512(second, _mm512_permutex2var_epi64(low, second_half, high));
  }

 private:
  std::size_t count_;
  std::array<std::array<const std::uint16_t*, 2>, (kTemporalTapCount + 1) / 2> from_;
  std::array<__m512i, (kTemporalTapCount + 1) / 2> factors_;
};

// Temporal sums of a band in raster order. A run of blocks writes up to 31 sums beyond its end,
// which the next run overwrites; after an odd last row one more row is written that nobody reads.
void SumBand(const WavefrontOrderFrame<std::uint16_t>& frame, std::uint32_t band_top) {
  const WavefrontMemory<std::uint16_t>& memory = frame.memory;
  ForEachRun(frame, band_top, [&](const WavefrontBlock& block, const RunArea& area) {
    const TapList<std::uint16_t> taps(frame, block);
    const RunSums sums(taps);
    const std::size_t stride = frame.previous->stride;
    const auto to = [&](std::uint32_t row, std::uint32_t column) {
      return memory.sums.data() + (row - band_top) * memory.sums_stride + kSumMargin + column;
    };
    // Two rows of 16 pixels fill the registers that one row would fill only by half.
    if (area.right - area.left <= 16) {
      for (std::uint32_t row = area.top; row < area.bottom; row += 2) {
        const auto two_rows = [&](const std::uint16_t* from) {
          from += row * stride + area.left;
          return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(
                                        reinterpret_cast<const __m256i*>(from))),
                                    _mm256_loadu_si256(
                                        reinterpret_cast<const __m256i*>(from + stride)), 1);
        };
        sums.Sum(two_rows, to(row, area.left), to(row + 1, area.left));
      }
      return;
    }
    for (std::uint32_t row = area.top; row < area.bottom; ++row) {
      for (std::uint32_t column = area.left; column < area.right; column += 32) {
        const auto one_row = [&](const std::uint16_t* from) {
          return _mm512_loadu_si512(from + row * stride + column);
        };
        sums.Sum(one_row, to(row, column), to(row, column + 16));
      }
    }
  });
}

// A band's raster sums into wavefront order, 4 steps of 16 lanes at a time.
void BandToWavefront(const WavefrontOrderFrame<std::uint16_t>& frame, std::uint32_t band) {
  const PlaneShape& shape = frame.shape;
  const WavefrontMemory<std::uint16_t>& memory = frame.memory;
  const auto columns = static_cast<std::int32_t>(shape.columns);
  const std::uint32_t span = shape.columns + kWavefrontLag * (kWavefrontLanes - 1);
  const std::uint32_t rows = std::min(kWavefrontLanes, shape.rows - band * kWavefrontLanes);
  const std::size_t first_step = std::size_t{band} * WavefrontPeriod(shape.columns);
  for (std::uint32_t part = 0; part < 4; ++part) {
    const std::uint32_t base = part / 2 * 32 + part % 2 * 4;
    const std::uint32_t lag = kWavefrontLag * base;
    std::array<const std::int32_t*, 28> places;
    for (std::uint32_t i = 0; i < places.size(); ++i) {
      places[i] =
          memory.sums.data() + std::min(base + i, rows - 1) * memory.sums_stride + kSumMargin;
    }
    // The lanes of this part within 32: four of every eight, in the order in which sums interleave.
    const std::uint32_t nibbles = part % 2 == 0 ? 0x0F0F0F0F : 0xF0F0F0F0;
    const std::uint32_t end = std::min(span, lag + shape.columns + kWavefrontLag * 27);
    for (std::uint32_t step = lag; step < end; step += 4) {
      const auto load = [&](std::uint32_t lane) {
        // Lanes outside of their row read sums from its margins; the masked store drops them.
        const std::int32_t column = std::clamp(
            static_cast<std::int32_t>(step - lag) - static_cast<std::int32_t>(kWavefrontLag * lane),
            -4, columns);
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(places[lane] + column));
      };
      std::array<__m512i, 4> a;
      for (std::uint32_t i = 0; i < 4; ++i) {
        __m512i line = _mm512_castsi128_si512(load(i));
        line = _mm512_inserti32x4(line, load(i + 8), 1);
        line = _mm512_inserti32x4(line, load(i + 16), 2);
        a[i] = _mm512_inserti32x4(line, load(i + 24), 3);
      }
      const __m512i low01 = _mm512_unpacklo_epi32(a[0], a[1]);
      const __m512i high01 = _mm512_unpackhi_epi32(a[0], a[1]);
      const __m512i low23 = _mm512_unpacklo_epi32(a[2], a[3]);
      const __m512i high23 = _mm512_unpackhi_epi32(a[2], a[3]);
      const std::array<__m512i, 4> lines = {
          _mm512_unpacklo_epi64(low01, low23), _mm512_unpackhi_epi64(low01, low23),
          _mm512_unpacklo_epi64(high01, high23), _mm512_unpackhi_epi64(high01, high23)};
      std::int32_t* const to =
          memory.ordered_sums.data() + (first_step + step) * kWavefrontLanes + part * 16;
      for (std::uint32_t i = 0; i < 4; ++i) {
        const auto within = static_cast<std::uint32_t>(
            LanesWithin(step + i, 0, shape.columns) >> (part / 2 * 32));
        _mm512_mask_storeu_epi32(to + i * kWavefrontLanes,
                                 static_cast<__mmask16>(_pext_u32(within, nibbles)), lines[i]);
      }
    }
  }
}

void SumTemporal(const WavefrontOrderFrame<std::uint16_t>& frame) {
  for (std::uint32_t band = 0; band < WavefrontBands(frame.shape.rows); ++band) {
    SumBand(frame, band * kWavefrontLanes);
    BandToWavefront(frame, band);
  }
}

void RunLanes(const WavefrontOrderFrame<std::uint16_t>& frame, WavefrontStream& stream) {
  WavefrontPass<WideLanes>(frame).Run(stream);
}

// 8 steps of 64 lanes at a time.
void ToRaster(const WavefrontOrderFrame<std::uint16_t>& frame) {
  const PlaneShape& shape = frame.shape;
  const std::uint32_t period = WavefrontPeriod(shape.columns);
  const auto columns = static_cast<std::int32_t>(shape.columns);
  const std::uint16_t* const ordered =
      frame.memory.pixels.data() + std::size_t{period} * kWavefrontLanes;
  const std::uint32_t span = shape.columns + kWavefrontLag * (kWavefrontLanes - 1);
  for (std::uint32_t band = 0; band < WavefrontBands(shape.rows); ++band) {
    const std::uint32_t rows = std::min(kWavefrontLanes, shape.rows - band * kWavefrontLanes);
    for (std::uint32_t step = 0; step < span; step += 8) {
      for (std::uint32_t half = 0; half < std::min(kWavefrontLanes, rows); half += 32) {
        const std::uint16_t* const from =
            ordered + (std::size_t{band} * period + step) * kWavefrontLanes + half;
        std::array<__m512i, 8> a;
        std::array<__m512i, 8> b;
        for (std::size_t i = 0; i < 8; ++i) a[i] = _mm512_load_si512(from + i * kWavefrontLanes);
        // Three rounds of interleaving step i with step i + 4 transpose 8 x 8 samples.
        const auto round = [](const std::array<__m512i, 8>& in, std::array<__m512i, 8>& out) {
          for (std::size_t i = 0; i < 4; ++i) {
            out[2 * i] = _mm512_unpacklo_epi16(in[i], in[i + 4]);
            out[2 * i + 1] = _mm512_unpackhi_epi16(in[i], in[i + 4]);
          }
        };
        round(a, b);
        round(b, a);
        round(a, b);
        const auto store = [&](std::uint32_t lane, __m128i pixels) {
          const std::int32_t column =
              static_cast<std::int32_t>(step) - static_cast<std::int32_t>(kWavefrontLag * lane);
          // A store may reach up to 7 pixels beyond either end of the row, into the frame's
          // margins.
          if (lane >= rows || column <= -8 || column >= columns) return;
          std::uint16_t* const row =
              frame.current.Row(static_cast<std::int32_t>(band * kWavefrontLanes + lane));
          _mm_storeu_si128(reinterpret_cast<__m128i*>(row + column), pixels);
        };
        for (std::uint32_t i = 0; i < 8; ++i) {
          store(half + i, _mm512_castsi512_si128(b[i]));
          store(half + i + 8, _mm512_extracti32x4_epi32(b[i], 1));
          store(half + i + 16, _mm512_extracti32x4_epi32(b[i], 2));
          store(half + i + 24, _mm512_extracti32x4_epi32(b[i], 3));
        }
      }
    }
  }
}

}  // namespace

const WavefrontOrderKernel<std::uint16_t> kWavefrontWideAvx512 = {
    .sum_temporal = SumTemporal, .run_lanes = RunLanes, .to_raster = ToRaster};

}  // namespace forebay::compress
