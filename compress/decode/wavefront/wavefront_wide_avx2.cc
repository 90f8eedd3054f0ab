// The AVX2 kernel of wavefront planes, for samples of 9 to 16 bits: 64 lanes in four registers.
// Samples are kept less half their range, so that a sample is a signed number of 16 bits and one
// instruction multiplies two taps by their weights and adds the products exactly. Sums of 32 bits
// lie in the order in which such pairs interleave: of each 16 lanes 0-3 and 8-11, then 4-7 and
// 12-15.
#include <immintrin.h>

#include <algorithm>
#include <array>

#include "compress/decode/wavefront/wavefront_lanes_avx2.h"
#include "compress/decode/wavefront/wavefront_order.h"
#include "compress/decode/wavefront/wavefront_pass.h"
#include "compress/decode/wavefront/wavefront_runs.h"

namespace forebay::compress {
namespace {

// Taps that are multiplied together; west, known last, ends the chain from one step to the next.
constexpr std::size_t kTapPairs = 4;
// The numbers are places in kCurrentTaps. Every tap but west (0) is in one pair.
constexpr std::array<std::array<std::size_t, 2>, kTapPairs> kPairedTaps = {
    {{8, 7}, {6, 5}, {3, 2}, {4, 1}}};

using Quarters = std::array<__m256i, 4>;  // lanes 0 to 15, 16 to 31 ...

// Words of ones in the lanes of 16 bits.
__m256i MaskWords(std::uint64_t lanes) {
  const __m256i bits = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
                                         8192, 16384, static_cast<std::int16_t>(0x8000));
  return _mm256_cmpeq_epi16(
      _mm256_and_si256(_mm256_set1_epi16(static_cast<std::int16_t>(lanes & 0xFFFF)), bits), bits);
}

// Puts in order what two registers of lanes become when they are narrowed into one.
// Narrowing works within 128 bits and leaves the quarters in the order 0, 2, 1, 3.
__m256i InOrder(__m256i narrowed) { return _mm256_permute4x64_epi64(narrowed, 0xD8); }

// The operations of wavefront_pass.h on 64 samples of 16 bits in four registers.
class WideLanes : public LanesAvx2 {
 public:
  using Sample = std::uint16_t;
  using Pixels = Quarters;
  using Symbols = Quarters;  // folded residuals

  WideLanes(const WavefrontOrderFrame<Sample>& frame, WavefrontStream& stream)
      : LanesAvx2(frame.shape, frame.plan, frame.previous != nullptr, stream) {
    const WavefrontParameters& parameters = frame.plan.parameters;
    PrepareFilters(frame.previous != nullptr ? parameters.inter : parameters.intra);
    const auto middle = static_cast<int>(1U << (bits_ - 1));
    lowest_ = _mm256_set1_epi16(static_cast<std::int16_t>(-middle));
    highest_ = _mm256_set1_epi16(static_cast<std::int16_t>(middle - 1));
    spare_bits_ = _mm_cvtsi32_si128(static_cast<int>(16 - bits_));
    magnitude_shift_ = _mm_cvtsi32_si128(static_cast<int>(parameters.magnitude_shift));
  }

  static Pixels AllPixels(Sample value) {
    const __m256i all = _mm256_set1_epi16(static_cast<std::int16_t>(value));
    return {all, all, all, all};
  }

  static Pixels Select(std::uint64_t lanes, const Pixels& a, const Pixels& b) {
    const auto select = [&](std::size_t i) {
      return _mm256_blendv_epi8(a[i], b[i], MaskWords(lanes >> (16 * i)));
    };
    return {select(0), select(1), select(2), select(3)};
  }

  static Pixels Shift(const Pixels& a, Sample first) {
    const auto shift = [](__m256i before, __m256i here) {
      // A shift by one lane of 16 bits: alignr works within 128 bits, so the permutation first puts
      // next to each half the half that comes before it.
      return _mm256_alignr_epi8(here, _mm256_permute2x128_si256(before, here, 0x21), 14);
    };
    const __m256i before = _mm256_set1_epi16(static_cast<std::int16_t>(first));
    return {shift(before, a[0]), shift(a[0], a[1]), shift(a[1], a[2]), shift(a[2], a[3])};
  }

  [[gnu::always_inline]] Pixels Predict(const std::int32_t* sums, Bytes choice,
                                        const std::array<Pixels, kIntraTapCount>& taps) const {
    const auto first = PredictHalf<0>(sums, choice.low, taps);
    const auto second =
        PredictHalf<2>(sums != nullptr ? sums + 32 : nullptr, choice.high, taps);
    return {first[0], first[1], second[0], second[1]};
  }

  bool NearEnd() const { return stream_.end - next_ < kStepBytesMax; }

  [[gnu::always_inline]] Symbols DecodeAtEnd(std::uint64_t lanes, Bytes contexts) {
    LanesAtEnd end;
    DecodeSlowly(lanes, contexts, end);
    const auto at = [&](std::size_t lane) {
      return _mm256_load_si256(reinterpret_cast<const __m256i*>(&end.symbols[lane]));
    };
    return {at(0), at(16), at(32), at(48)};
  }

  [[gnu::always_inline]] Symbols Decode(std::uint64_t lanes, Bytes contexts) {
    const Bytes mask = MaskBytes64(lanes);
    // Written out, because the compiler does not unroll a loop here, and the states would stay in
    // memory.
    const __m256i first = DecodeQuarter<0>(_mm256_castsi256_si128(mask.low),
                                           _mm256_castsi256_si128(contexts.low));
    const __m256i second = DecodeQuarter<2>(_mm256_extracti128_si256(mask.low, 1),
                                            _mm256_extracti128_si256(contexts.low, 1));
    const __m256i third = DecodeQuarter<4>(_mm256_castsi256_si128(mask.high),
                                           _mm256_castsi256_si128(contexts.high));
    const __m256i fourth = DecodeQuarter<6>(_mm256_extracti128_si256(mask.high, 1),
                                            _mm256_extracti128_si256(contexts.high, 1));
    return {first, second, third, fourth};
  }

  // Adds the residual, folded as 0, -1, 1, -2 ..., modulo 2^bits, and extends the sign.
  Pixels Join(const Pixels& value, const Symbols& folded) const {
    const auto join = [&](__m256i a, __m256i f) {
      // Unfolds: an even f means f / 2, an odd one the complement of that. All ones select the
      // complement.
      const __m256i sign =
          _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_and_si256(f, _mm256_set1_epi16(1)));
      const __m256i sum = _mm256_add_epi16(a, _mm256_xor_si256(_mm256_srli_epi16(f, 1), sign));
      // Two shifts drop the bits beyond the sample's and extend its sign, which is modulo 2^bits.
      return _mm256_sra_epi16(_mm256_sll_epi16(sum, spare_bits_), spare_bits_);
    };
    return {join(value[0], folded[0]), join(value[1], folded[1]), join(value[2], folded[2]),
            join(value[3], folded[3])};
  }

  // The magnitudes of folded residuals 0, 1, 2, 3 ... are 0, 1, 1, 2 ...: half, rounded up.
  Bytes SizeOf(const Symbols& folded) const {
    // (f + 1) / 2 by the rounding average with zero, which cannot overflow 16 bits.
    const auto size = [&](__m256i f) {
      return _mm256_min_epu16(
          _mm256_srl_epi16(_mm256_avg_epu16(f, _mm256_setzero_si256()), magnitude_shift_),
          _mm256_set1_epi16(0xFF));
    };
    return {InOrder(_mm256_packus_epi16(size(folded[0]), size(folded[1]))),
            InOrder(_mm256_packus_epi16(size(folded[2]), size(folded[3])))};
  }

  static void StorePixels(Sample* to, std::uint64_t lanes, const Pixels& pixels) {
    auto* const place = reinterpret_cast<__m256i*>(to);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const std::uint64_t here = lanes >> (16 * i) & 0xFFFF;
      const __m256i wanted =
          here == 0xFFFF ? pixels[i]
                         : _mm256_blendv_epi8(_mm256_load_si256(place + i), pixels[i],
                                              MaskWords(here));
      _mm256_store_si256(place + i, wanted);
    }
  }

 private:
  // Two words a lane at most.
  static constexpr std::ptrdiff_t kStepBytesMax = 4 * kWavefrontLanes;

  void PrepareFilters(const WavefrontGroup& group) {
    std::array<std::int32_t, kWavefrontFiltersMax> line;
    for (std::size_t tap = 0; tap < kIntraTapCount; ++tap) {
      for (std::size_t i = 0; i < line.size(); ++i) line[i] = group.filters[i].weights[tap];
      weights_[tap] = FilterNumbers::Of(line);
    }
    std::array<std::uint8_t, 16> clamped;
    for (std::size_t i = 0; i < clamped.size(); ++i) {
      clamped[i] = group.filters[i].clamped ? 0xFF : 0;
    }
    clamped_ = Table(clamped);
  }

  // Rounds 16 sums to samples less half their range: packing saturates to 16 bits, and then the
  // range of `bits_` is enforced.
  __m256i Round(__m256i first, __m256i second) const {
    const __m256i half = _mm256_set1_epi32(1 << (kWavefrontWeightBits - 1));
    const __m256i both =
        _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(first, half), kWavefrontWeightBits),
                           _mm256_srai_epi32(_mm256_add_epi32(second, half), kWavefrontWeightBits));
    return _mm256_min_epi16(_mm256_max_epi16(both, lowest_), highest_);
  }

  // Thirty-two lanes: quarters kFirst and the next.
  template <std::size_t kFirst>
  [[gnu::always_inline]] std::array<__m256i, 2> PredictHalf(
      const std::int32_t* sums, __m256i choice,
      const std::array<Pixels, kIntraTapCount>& taps) const {
    // In such an order that what is unpacked are the lanes of one quarter, then the other's.
    const __m256i filters = InOrder(_mm256_and_si256(choice, _mm256_set1_epi8(0x0F)));
    const __m256i zero = _mm256_setzero_si256();
    // Samples are centred already, so there is no bias to begin with.
    Quarters sum = {zero, zero, zero, zero};
    if (sums != nullptr) {
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(sums + 8 * i));
      }
    }
    // madd multiplies 16 bits by 16 and adds two products in 32: a weight of 9 bits times a sample
    // of 16 is exact, and the sum of all taps is modulo 2^32, as the format says.
    const auto add = [&](const Pixels& a, const Pixels& b, const BytesAvx2& a_weights,
                         const BytesAvx2& b_weights) {
      const auto quarter = [&](std::size_t i, __m256i a_weight, __m256i b_weight) {
        const __m256i x = a[kFirst + i];
        const __m256i y = b[kFirst + i];
        sum[2 * i] = _mm256_add_epi32(
            sum[2 * i], _mm256_madd_epi16(_mm256_unpacklo_epi16(x, y),
                                          _mm256_unpacklo_epi16(a_weight, b_weight)));
        sum[2 * i + 1] = _mm256_add_epi32(
            sum[2 * i + 1], _mm256_madd_epi16(_mm256_unpackhi_epi16(x, y),
                                              _mm256_unpackhi_epi16(a_weight, b_weight)));
      };
      quarter(0, a_weights.low, b_weights.low);
      quarter(1, a_weights.high, b_weights.high);
    };
    for (const auto& [first, second] : kPairedTaps) {
      add(taps[first], taps[second], weights_[first].Look(filters),
          weights_[second].Look(filters));
    }
    // West is paired with zeros, so that everything else is summed before it is known.
    add(taps[0], {zero, zero, zero, zero}, weights_[0].Look(filters), {zero, zero});
    const __m256i clamped = _mm256_shuffle_epi8(clamped_, filters);
    const auto confine = [&](std::size_t i, __m256i value, __m256i wanted) {
      const __m256i west = taps[0][kFirst + i];
      const __m256i north = taps[2][kFirst + i];
      const __m256i confined = _mm256_min_epi16(
          _mm256_max_epi16(value, _mm256_min_epi16(west, north)), _mm256_max_epi16(west, north));
      return _mm256_blendv_epi8(value, confined, wanted);
    };
    return {confine(0, Round(sum[0], sum[1]), _mm256_unpacklo_epi8(clamped, clamped)),
            confine(1, Round(sum[2], sum[3]), _mm256_unpackhi_epi8(clamped, clamped))};
  }

  // Sixteen lanes, eight by eight: their symbols, zero outside the mask.
  template <std::size_t kFirst>
  [[gnu::always_inline]] __m256i DecodeQuarter(__m128i mask, __m128i contexts) {
    const __m256i first = DecodeGroup(kFirst, mask, contexts);
    const __m256i second =
        DecodeGroup(kFirst + 1, _mm_srli_si128(mask, 8), _mm_srli_si128(contexts, 8));
    // Folded residuals have up to 16 bits, so packing does not saturate.
    return InOrder(_mm256_packus_epi32(first, second));
  }

  // Decodes eight lanes. A lane takes up to two words, both before the next lane takes any. Whether
  // it takes the second does not depend on the value of the first, so one load deals out all of
  // them.
  [[gnu::always_inline]] __m256i DecodeGroup(std::size_t group, __m128i mask_bytes,
                                             __m128i contexts) {
    const __m256i mask = _mm256_cvtepi8_epi32(mask_bytes);
    const Advanced advanced = Advance(group, mask, contexts);
    const __m256i token =
        _mm256_and_si256(_mm256_and_si256(advanced.entry, mask), _mm256_set1_epi32(0xFF));
    const __m256i octaves =
        _mm256_cmpgt_epi32(token, _mm256_set1_epi32(static_cast<int>(kWavefrontDirectTokens) - 1));
    // The token of an octave has two bits below the leading one; `plain` is how many bits follow
    // those, unmodelled, in the low bits of the state. Zero for tokens that are the symbol.
    const __m256i plain = _mm256_and_si256(
        octaves, _mm256_sub_epi32(_mm256_srli_epi32(token, 2), _mm256_set1_epi32(2)));
    // The state before its word is added. That is enough to tell whether a second word is needed:
    // the low 16 bits, which the first word fills, do not decide whether the state is below 2^16
    // after the plain bits have left it.
    const __m256i lifted =
        _mm256_blendv_epi8(advanced.state, _mm256_slli_epi32(advanced.state, 16), advanced.refill);
    const __m256i again = _mm256_and_si256(octaves, NeedsWord(_mm256_srlv_epi32(lifted, plain)));
    const std::uint32_t once = MaskOf32(advanced.refill);
    const std::uint32_t twice = MaskOf32(again);
    // The number of words that lower lanes take is the place of a lane's first word; the second
    // follows it.
    const __m256i places = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(
        static_cast<long long>(kExpandIndices.data()[once] + kExpandIndices.data()[twice])));
    // Four bytes for each lane: its first word in the low half and the next one in the high half. A
    // lane that takes only a second word finds it in the low half.
    const __m256i words =
        _mm256_i32gather_epi32(reinterpret_cast<const int*>(next_), places, 2);
    next_ += 2 * (__builtin_popcount(once) + __builtin_popcount(twice));
    const __m256i word = _mm256_set1_epi32(0xFFFF);
    const __m256i filled =
        _mm256_or_si256(lifted, _mm256_and_si256(_mm256_and_si256(words, word), advanced.refill));
    const __m256i behind = _mm256_and_si256(
        _mm256_srlv_epi32(words, _mm256_and_si256(advanced.refill, _mm256_set1_epi32(16))), word);
    // The symbol is 1xx, the leading one and the token's two bits, followed by the plain bits.
    const __m256i leading = _mm256_blendv_epi8(
        token,
        _mm256_or_si256(_mm256_and_si256(token, _mm256_set1_epi32(3)), _mm256_set1_epi32(4)),
        octaves);
    const __m256i low =
        _mm256_andnot_si256(_mm256_sllv_epi32(_mm256_set1_epi32(-1), plain), filled);
    const __m256i shifted = _mm256_srlv_epi32(filled, plain);
    states_[group] = _mm256_blendv_epi8(
        shifted, _mm256_or_si256(_mm256_slli_epi32(shifted, 16), behind), again);
    return _mm256_or_si256(_mm256_sllv_epi32(leading, plain), low);
  }

  std::array<FilterNumbers, kIntraTapCount> weights_;
  __m256i clamped_, lowest_, highest_;
  __m128i spare_bits_, magnitude_shift_;
};

// Temporal sums of a band in raster order, 16 pixels at a time. A run of blocks writes up to 15
// sums beyond its end, which the next run overwrites.
void SumBand(const WavefrontOrderFrame<std::uint16_t>& frame, std::uint32_t band_top) {
  const WavefrontMemory<std::uint16_t>& memory = frame.memory;
  ForEachRun(frame, band_top, [&](const WavefrontBlock& block, const RunArea& area) {
    const TapList<std::uint16_t> taps(frame, block);
    const std::size_t pairs = (taps.count + 1) / 2;
    std::array<std::array<const std::uint16_t*, 2>, (kTemporalTapCount + 1) / 2> from;
    std::array<__m256i, (kTemporalTapCount + 1) / 2> factors;
    for (std::size_t i = 0; i < pairs; ++i) {
      const std::size_t second = std::min(2 * i + 1, taps.count - 1);
      // With an odd number of taps the last one is paired with itself, at a weight of 0.
      const std::int32_t weight = 2 * i + 1 < taps.count ? taps.weights[second] : 0;
      from[i] = {taps.from[2 * i], taps.from[second]};
      factors[i] = _mm256_set1_epi32(weight * (1 << 16) + (taps.weights[2 * i] & 0xFFFF));
    }
    for (std::uint32_t row = area.top; row < area.bottom; ++row) {
      for (std::uint32_t column = area.left; column < area.right; column += 16) {
        const std::size_t at = row * frame.previous->stride + column;
        const auto load = [&](const std::uint16_t* samples) {
          return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(samples + at));
        };
        __m256i low = _mm256_setzero_si256();
        __m256i high = low;
        for (std::size_t i = 0; i < pairs; ++i) {
          const __m256i a = load(from[i][0]);
          const __m256i b = load(from[i][1]);
          low = _mm256_add_epi32(
              low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), factors[i]));
          high = _mm256_add_epi32(
              high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), factors[i]));
        }
        auto* const to = reinterpret_cast<__m256i*>(
            memory.sums.data() + (row - band_top) * memory.sums_stride + kSumMargin + column);
        // Back to the order of pixels: interleaving left pixels 0-3 and 8-11 in `low`, the others
        // in `high`.
        _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
      }
    }
  });
}

// A mask of lanes base to base + 3 and base + 8 to base + 11, as far as they are in `within`.
__m256i MaskSums(std::uint64_t within, std::uint32_t base) {
  const std::uint64_t lanes = within >> base;
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(
      _mm256_and_si256(_mm256_set1_epi32(static_cast<int>((lanes & 0xF) | (lanes >> 4 & 0xF0))),
                       bits),
      bits);
}

// Brings the sums of a band from raster to wavefront order, 4 steps of 8 lanes at a time.
void BandToWavefront(const WavefrontOrderFrame<std::uint16_t>& frame, std::uint32_t band) {
  const PlaneShape& shape = frame.shape;
  const WavefrontMemory<std::uint16_t>& memory = frame.memory;
  const auto columns = static_cast<std::int32_t>(shape.columns);
  const std::uint32_t span = shape.columns + kWavefrontLag * (kWavefrontLanes - 1);
  const std::uint32_t rows = std::min(kWavefrontLanes, shape.rows - band * kWavefrontLanes);
  const std::size_t first_step = std::size_t{band} * WavefrontPeriod(shape.columns);
  for (std::uint32_t part = 0; part < 8; ++part) {
    const std::uint32_t base = part / 2 * 16 + part % 2 * 4;
    const std::uint32_t lag = kWavefrontLag * base;
    std::array<const std::int32_t*, 12> places;
    for (std::uint32_t i = 0; i < places.size(); ++i) {
      places[i] =
          memory.sums.data() + std::min(base + i, rows - 1) * memory.sums_stride + kSumMargin;
    }
    const std::uint32_t end = std::min(span, lag + shape.columns + kWavefrontLag * 11);
    for (std::uint32_t step = lag; step < end; step += 4) {
      const auto load = [&](std::uint32_t lane) {
        const std::int32_t column = std::clamp(
            static_cast<std::int32_t>(step - lag) - static_cast<std::int32_t>(kWavefrontLag * lane),
            -4, columns);
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(places.data()[lane] + column));
      };
      Quarters a;
      for (std::uint32_t i = 0; i < 4; ++i) {
        a[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load(i)), load(i + 8), 1);
      }
      const __m256i low01 = _mm256_unpacklo_epi32(a[0], a[1]);
      const __m256i high01 = _mm256_unpackhi_epi32(a[0], a[1]);
      const __m256i low23 = _mm256_unpacklo_epi32(a[2], a[3]);
      const __m256i high23 = _mm256_unpackhi_epi32(a[2], a[3]);
      const Quarters lines = {
          _mm256_unpacklo_epi64(low01, low23), _mm256_unpackhi_epi64(low01, low23),
          _mm256_unpacklo_epi64(high01, high23), _mm256_unpackhi_epi64(high01, high23)};
      std::int32_t* const to =
          memory.ordered_sums.data() + (first_step + step) * kWavefrontLanes + part * 8;
      for (std::uint32_t i = 0; i < 4; ++i) {
        // Lanes that are in another band keep what they hold.
        _mm256_maskstore_epi32(to + i * kWavefrontLanes,
                               MaskSums(LanesWithin(step + i, 0, shape.columns), base), lines[i]);
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

// 8 steps of 16 lanes at a time.
void ToRaster(const WavefrontOrderFrame<std::uint16_t>& frame) {
  const PlaneShape& shape = frame.shape;
  const std::uint32_t period = WavefrontPeriod(shape.columns);
  const auto columns = static_cast<std::int32_t>(shape.columns);
  const std::uint32_t span = shape.columns + kWavefrontLag * (kWavefrontLanes - 1);
  for (std::uint32_t band = 0; band < WavefrontBands(shape.rows); ++band) {
    const std::uint32_t rows = std::min(kWavefrontLanes, shape.rows - band * kWavefrontLanes);
    for (std::uint32_t quarter = 0; quarter < rows; quarter += 16) {
      for (std::uint32_t step = kWavefrontLag * quarter; step < span; step += 8) {
        const std::uint16_t* const from = frame.memory.pixels.data() + quarter +
                                          (std::size_t{band + 1} * period + step) * kWavefrontLanes;
        std::array<__m256i, 8> a;
        std::array<__m256i, 8> b;
        for (std::size_t i = 0; i < 8; ++i) {
          a[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i * kWavefrontLanes));
        }
        // Three rounds of interleaving step i with step i + 4 transpose 8 x 8 samples.
        const auto round = [](const std::array<__m256i, 8>& in, std::array<__m256i, 8>& out) {
          for (std::size_t i = 0; i < 4; ++i) {
            out[2 * i] = _mm256_unpacklo_epi16(in[i], in[i + 4]);
            out[2 * i + 1] = _mm256_unpackhi_epi16(in[i], in[i + 4]);
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
          store(quarter + i, _mm256_castsi256_si128(b[i]));
          store(quarter + i + 8, _mm256_extracti128_si256(b[i], 1));
        }
      }
    }
  }
}

}  // namespace

const WavefrontOrderKernel<std::uint16_t> kWavefrontWideAvx2 = {
    .sum_temporal = SumTemporal, .run_lanes = RunLanes, .to_raster = ToRaster};

}  // namespace forebay::compress
