// The AVX2 kernel of wavefront-coded planes (wavefront_order.h), for samples of up to 8 bits: 64
// lanes of a step in two registers of bytes. Sums of 16 bits lie in the order in which bytes are
// unpacked: of each 32 lanes 0-7 and 16-23, then 8-15 and 24-31.
#include "compress/decode/wavefront/wavefront_order.h"

#include <immintrin.h>

#include <algorithm>
#include <array>

#include "compress/decode/wavefront/wavefront_lanes_avx2.h"
#include "compress/decode/wavefront/wavefront_pass.h"
#include "compress/decode/wavefront/wavefront_runs.h"

namespace forebay::compress {
namespace {

// The current frame's taps in the order of their addition. West comes last, because it is the only
// tap that depends on the previous step.
constexpr std::array<std::size_t, kIntraTapCount> kTapOrder = {8, 7, 6, 5, 3, 2, 4, 1, 0};

// The operations of wavefront_pass.h on 64 samples in two registers.
class PairLanes : public LanesAvx2 {
 public:
  using Sample = std::uint8_t;
  using Pixels = BytesAvx2;
  using Symbols = BytesAvx2;  // residuals modulo 2^bits

  PairLanes(const WavefrontOrderFrame<Sample>& frame, WavefrontStream& stream)
      : LanesAvx2(frame.shape, frame.plan, frame.previous != nullptr, stream) {
    const WavefrontParameters& parameters = frame.plan.parameters;
    PrepareFilters(frame.previous != nullptr ? parameters.inter : parameters.intra);
    middle_ = _mm256_set1_epi16(static_cast<std::int16_t>(1 << (bits_ - 1)));
    sample_mask_ = _mm256_set1_epi8(static_cast<char>((1 << bits_) - 1));
    // There is no shift of bytes: 16 bits are shifted, and a mask clears what crossed from the
    // upper byte into the lower one. A shift of 8 or more leaves nothing of a byte.
    const std::uint32_t shift = std::min<std::uint32_t>(parameters.magnitude_shift, 8);
    size_shift_ = _mm_cvtsi32_si128(static_cast<int>(shift));
    size_mask_ = _mm256_set1_epi8(static_cast<char>(0xFF >> shift));
  }

  static void StorePixels(Sample* to, std::uint64_t lanes, Pixels pixels) {
    Store(to, lanes == ~std::uint64_t{0} ? pixels : Select(lanes, Load(to), pixels));
  }
  static Bytes Select(std::uint64_t lanes, Bytes a, Bytes b) {
    const BytesAvx2 mask = MaskBytes64(lanes);
    return {_mm256_blendv_epi8(a.low, b.low, mask.low),
            _mm256_blendv_epi8(a.high, b.high, mask.high)};
  }
  static Pixels AllPixels(Sample value) {
    const __m256i all = _mm256_set1_epi8(static_cast<char>(value));
    return {all, all};
  }
  // A sample is a byte here, so pixels shift as bytes do.
  static Pixels Shift(Pixels a, Sample first) { return ShiftBytes(a, first); }

  [[gnu::always_inline]] Pixels Predict(const std::int16_t* sums, Bytes choice,
                                        const std::array<Pixels, kIntraTapCount>& taps) const {
    std::array<__m256i, kIntraTapCount> half;
    for (std::size_t i = 0; i < half.size(); ++i) half[i] = taps[i].low;
    const __m256i low = PredictHalf(sums, choice.low, half);
    for (std::size_t i = 0; i < half.size(); ++i) half[i] = taps[i].high;
    return {low, PredictHalf(sums != nullptr ? sums + 32 : nullptr, choice.high, half)};
  }

  // Asked once a step. With that many bytes left no load of the step can reach beyond the words.
  bool NearEnd() const { return stream_.end - next_ < kStepBytesMax; }

  [[gnu::always_inline]] Symbols Decode(std::uint64_t lanes, Bytes contexts) {
    const BytesAvx2 mask = MaskBytes64(lanes);
    // Written out, because the compiler does not unroll a loop here, and the states would stay in
    // memory.
    const BytesAvx2 symbols = {DecodeHalf<0>(mask.low, contexts.low),
                          DecodeHalf<4>(mask.high, contexts.high)};
    // Lanes without a pixel get residual 0, so that their magnitudes are 0 for their neighbours.
    return {_mm256_and_si256(symbols.low, mask.low), _mm256_and_si256(symbols.high, mask.high)};
  }

  [[gnu::always_inline]] Symbols DecodeAtEnd(std::uint64_t lanes, Bytes contexts) {
    LanesAtEnd end;
    DecodeSlowly(lanes, contexts, end);
    const auto pack = [&](std::size_t lane) {
      const __m256i first =
          _mm256_load_si256(reinterpret_cast<const __m256i*>(&end.symbols[lane]));
      const __m256i second =
          _mm256_load_si256(reinterpret_cast<const __m256i*>(&end.symbols[lane + 16]));
      // Packing works within 128 bits and leaves the quarters in the order 0, 2, 1, 3.
      return _mm256_permute4x64_epi64(_mm256_packus_epi16(first, second), 0xD8);
    };
    return {pack(0), pack(32)};
  }

  Pixels Join(Pixels value, Symbols symbols) const {
    return {_mm256_and_si256(_mm256_add_epi8(value.low, symbols.low), sample_mask_),
            _mm256_and_si256(_mm256_add_epi8(value.high, symbols.high), sample_mask_)};
  }

  Bytes SizeOf(Symbols symbols) const {
    const auto size = [&](__m256i a) {
      // Residuals are modulo 2^bits, so the magnitude is the lesser of r and 2^bits - r.
      const __m256i negated = _mm256_sub_epi8(_mm256_setzero_si256(), a);
      const __m256i least = _mm256_min_epu8(a, _mm256_and_si256(negated, sample_mask_));
      return _mm256_and_si256(_mm256_srl_epi16(least, size_shift_), size_mask_);
    };
    return {size(symbols.low), size(symbols.high)};
  }

  // What wavefront_learned.h asks for.
  static Bytes LoadAny(const std::uint8_t* from) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32))};
  }
  static Bytes Invert(Bytes a) { return {InvertHalf(a.low), InvertHalf(a.high)}; }
  // Errors lie within -127 .. 127, so no absolute value overflows.
  static Bytes Absolute(Bytes a) { return {_mm256_abs_epi8(a.low), _mm256_abs_epi8(a.high)}; }
  static Bytes Difference(Bytes a, Bytes b) {
    // Flipping the top bit makes unsigned pixels signed numbers. Their difference saturates to -128
    // .. 127, as the format says, and a second flip adds 128.
    return {InvertHalf(_mm256_subs_epi8(InvertHalf(a.low), InvertHalf(b.low))),
            InvertHalf(_mm256_subs_epi8(InvertHalf(a.high), InvertHalf(b.high)))};
  }
  static Bytes ErrorOf(Pixels pixels, Pixels values) {
    // The format clamps errors to -127 .. 127, and saturation alone would allow -128.
    const __m256i least = _mm256_set1_epi8(-127);
    const auto error = [&](__m256i a, __m256i b) {
      return _mm256_max_epi8(_mm256_subs_epi8(InvertHalf(a), InvertHalf(b)), least);
    };
    return {error(pixels.low, values.low), error(pixels.high, values.high)};
  }
  std::uint64_t Learned(Bytes choice) const {
    const __m256i filter = _mm256_set1_epi8(0x0F);
    return MaskOf({_mm256_shuffle_epi8(learned_, _mm256_and_si256(choice.low, filter)),
                   _mm256_shuffle_epi8(learned_, _mm256_and_si256(choice.high, filter))});
  }
  Pixels Correct(Pixels values, Bytes corrections) const {
    const auto correct = [&](__m256i a, __m256i b) {
      // The saturated sum cannot leave 0 .. 255; the minimum confines it to samples of fewer bits.
      return _mm256_min_epu8(InvertHalf(_mm256_adds_epi8(InvertHalf(a), b)), sample_mask_);
    };
    return {correct(values.low, corrections.low), correct(values.high, corrections.high)};
  }
  static Symbols Mirror(Bytes signs, Symbols symbols) {
    // Negates where the sign's byte is all ones: (a ^ -1) - (-1) = -a.
    return {_mm256_sub_epi8(_mm256_xor_si256(symbols.low, signs.low), signs.low),
            _mm256_sub_epi8(_mm256_xor_si256(symbols.high, signs.high), signs.high)};
  }

 private:
  static constexpr std::ptrdiff_t kStepBytesMax = 2 * kWavefrontLanes;

  static __m256i InvertHalf(__m256i a) { return _mm256_xor_si256(a, _mm256_set1_epi8(-128)); }

  // Turns the group's filters into tables of 16 entries, one for each number that a block can name:
  // a shuffle then looks a weight up for each lane by its block's filter.
  void PrepareFilters(const WavefrontGroup& group) {
    std::array<std::int32_t, kWavefrontFiltersMax> line;
    std::array<std::int32_t, kWavefrontFiltersMax> bias{};
    for (std::size_t tap = 0; tap < kIntraTapCount; ++tap) {
      for (std::size_t i = 0; i < line.size(); ++i) {
        line[i] = group.filters[i].weights[tap];
        // Sums are modulo 2^16, so the bias may wrap as every other addend.
        bias[i] -= line[i] * (1 << (bits_ - 1));
      }
      weights_[tap] = FilterNumbers::Of(line);
    }
    bias_ = FilterNumbers::Of(bias);
    std::array<std::uint8_t, 16> clamped;
    std::array<std::uint8_t, 16> learned;
    for (std::size_t i = 0; i < clamped.size(); ++i) {
      clamped[i] = group.filters[i].clamped ? 0xFF : 0;
      learned[i] = group.filters[i].learned ? 0xFF : 0;
    }
    clamped_ = Table(clamped);
    learned_ = Table(learned);
  }

  [[gnu::always_inline]] __m256i PredictHalf(
      const std::int16_t* sums, __m256i choice,
      const std::array<__m256i, kIntraTapCount>& taps) const {
    // A shuffle gives zero for bytes with the top bit set, which marks skipped blocks. Those have a
    // prediction like all others, so the bit is dropped.
    const __m256i filters = _mm256_and_si256(choice, _mm256_set1_epi8(0x0F));
    const __m256i zero = _mm256_setzero_si256();
    // Taps are not centred: `bias_` subtracts half the range times each weight.
    BytesAvx2 sum = bias_.Look(filters);
    if (sums != nullptr) {
      sum.low = _mm256_add_epi16(
          sum.low, _mm256_load_si256(reinterpret_cast<const __m256i*>(sums)));
      sum.high = _mm256_add_epi16(
          sum.high, _mm256_load_si256(reinterpret_cast<const __m256i*>(sums + 16)));
    }
    // Modulo 2^16 the order of additions does not matter to the result, only to how long they wait.
    for (std::size_t tap : kTapOrder) {
      const BytesAvx2 weights = weights_[tap].Look(filters);
      sum.low = _mm256_add_epi16(
          sum.low, _mm256_mullo_epi16(_mm256_unpacklo_epi8(taps[tap], zero), weights.low));
      sum.high = _mm256_add_epi16(
          sum.high, _mm256_mullo_epi16(_mm256_unpackhi_epi8(taps[tap], zero), weights.high));
    }
    // A clamped filter stays between west and north, as median predictors do: it cannot overshoot
    // at an edge.
    const __m256i value = _mm256_packus_epi16(Round(sum.low), Round(sum.high));
    const __m256i confined =
        _mm256_min_epu8(_mm256_max_epu8(value, _mm256_min_epu8(taps[0], taps[2])),
                        _mm256_max_epu8(taps[0], taps[2]));
    return _mm256_blendv_epi8(value, confined, _mm256_shuffle_epi8(clamped_, filters));
  }

  // Rounds sums to samples: scaled, clamped, and put back to 0 .. 2^bits - 1.
  __m256i Round(__m256i sum) const {
    const __m256i highest = _mm256_sub_epi16(middle_, _mm256_set1_epi16(1));
    const __m256i lowest = _mm256_sub_epi16(_mm256_setzero_si256(), middle_);
    // The addition may wrap, as the format says: it is taken modulo 2^16.
    const __m256i rounded =
        _mm256_srai_epi16(_mm256_add_epi16(sum, _mm256_set1_epi16(1 << (kWavefrontWeightBits - 1))),
                          kWavefrontWeightBits);
    return _mm256_add_epi16(_mm256_min_epi16(_mm256_max_epi16(rounded, lowest), highest),
                            middle_);
  }

  // The symbols of 32 lanes, eight at a time. Lanes outside `mask` get arbitrary symbols.
  template <std::size_t kFirst>
  [[gnu::always_inline]] __m256i DecodeHalf(__m256i mask, __m256i contexts) {
    const __m128i masks_low = _mm256_castsi256_si128(mask);
    const __m128i masks_high = _mm256_extracti128_si256(mask, 1);
    const __m128i low = _mm256_castsi256_si128(contexts);
    const __m128i high = _mm256_extracti128_si256(contexts, 1);
    const __m256i first = DecodeGroup(kFirst, masks_low, low);
    const __m256i second =
        DecodeGroup(kFirst + 1, _mm_srli_si128(masks_low, 8), _mm_srli_si128(low, 8));
    const __m256i third = DecodeGroup(kFirst + 2, masks_high, high);
    const __m256i fourth =
        DecodeGroup(kFirst + 3, _mm_srli_si128(masks_high, 8), _mm_srli_si128(high, 8));
    // Two packs within 128 bits leave the lanes in groups of four; the permutation sorts these
    // groups.
    const __m256i packed = _mm256_packus_epi16(_mm256_packus_epi32(first, second),
                                               _mm256_packus_epi32(third, fourth));
    return _mm256_permutevar8x32_epi32(packed, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
  }

  // One rANS step of eight lanes. Lanes whose state became too small take the next words in
  // ascending order: a table by mask says which word each of them gets.
  [[gnu::always_inline]] __m256i DecodeGroup(std::size_t group, __m128i mask_bytes,
                                             __m128i contexts) {
    const Advanced advanced = Advance(group, _mm256_cvtepi8_epi32(mask_bytes), contexts);
    const std::uint32_t taken = MaskOf32(advanced.refill);
    const __m256i places = _mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kExpandIndices.data() + taken)));
    // Loads eight words, of which only those that lanes need are used up.
    const __m256i words = _mm256_permutevar8x32_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(next_))), places);
    next_ += 2 * __builtin_popcount(taken);
    states_[group] = _mm256_blendv_epi8(
        advanced.state, _mm256_or_si256(_mm256_slli_epi32(advanced.state, 16), words),
        advanced.refill);
    return _mm256_and_si256(advanced.entry, _mm256_set1_epi32(0xFF));
  }

  std::array<FilterNumbers, kIntraTapCount> weights_;
  FilterNumbers bias_;
  __m256i clamped_, learned_, middle_, sample_mask_, size_mask_;
  __m128i size_shift_;
};

// Temporal sums of a band in raster order, 16 pixels at a time. A run of blocks writes up to 15
// sums beyond its end, which the next run overwrites.
void SumBand(const WavefrontOrderFrame<std::uint8_t>& frame, std::uint32_t band_top) {
  const WavefrontMemory<std::uint8_t>& memory = frame.memory;
  ForEachRun(frame, band_top, [&](const WavefrontBlock& block, const RunArea& area) {
    const TapList<std::uint8_t> taps(frame, block);
    std::array<__m256i, kTemporalTapCount> factors;
    for (std::size_t i = 0; i < taps.count; ++i) factors[i] = _mm256_set1_epi16(taps.weights[i]);
    const __m256i bias = _mm256_set1_epi16(
        static_cast<std::int16_t>(-taps.total * (1 << (frame.shape.bits - 1))));
    for (std::uint32_t row = area.top; row < area.bottom; ++row) {
      for (std::uint32_t column = area.left; column < area.right; column += 16) {
        const std::size_t at = row * frame.previous->stride + column;
        __m256i sum = bias;
        for (std::size_t i = 0; i < taps.count; ++i) {
          const __m256i samples = _mm256_cvtepu8_epi16(
              _mm_loadu_si128(reinterpret_cast<const __m128i*>(taps.from[i] + at)));
          sum = _mm256_add_epi16(sum, _mm256_mullo_epi16(samples, factors[i]));
        }
        std::int16_t* const to = memory.sums.data() + (row - band_top) * memory.sums_stride +
                                 kSumMargin + column;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), sum);
      }
    }
  });
}

// Transposes 8 x 8 sums of 16 bits in each half of the registers: rows are lanes before, steps
// afterwards.
std::array<__m256i, 8> Transpose(const std::array<__m256i, 8>& lanes) {
  std::array<__m256i, 8> pairs;
  for (std::size_t i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm256_unpacklo_epi16(lanes[2 * i], lanes[2 * i + 1]);
    pairs[2 * i + 1] = _mm256_unpackhi_epi16(lanes[2 * i], lanes[2 * i + 1]);
  }
  std::array<__m256i, 8> fours;
  for (std::size_t i = 0; i < 8; i += 4) {
    fours[i] = _mm256_unpacklo_epi32(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm256_unpackhi_epi32(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm256_unpacklo_epi32(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm256_unpackhi_epi32(pairs[i + 1], pairs[i + 3]);
  }
  std::array<__m256i, 8> steps;
  for (std::size_t i = 0; i < 4; ++i) {
    steps[2 * i] = _mm256_unpacklo_epi64(fours[i], fours[i + 4]);
    steps[2 * i + 1] = _mm256_unpackhi_epi64(fours[i], fours[i + 4]);
  }
  return steps;
}

// A register with all bits of a word set for each bit of a byte that is set.
__m128i MaskWords(std::uint64_t lanes) {
  const __m128i bits = _mm_set_epi16(128, 64, 32, 16, 8, 4, 2, 1);
  return _mm_cmpeq_epi16(
      _mm_and_si128(_mm_set1_epi16(static_cast<std::int16_t>(lanes & 0xFF)), bits), bits);
}

// Stores the sums of lanes base to base + 7 and base + 16 to base + 23 of a step. Lanes that are in
// another band keep what they hold.
void StoreSums(std::int16_t* to, std::uint64_t within, std::uint32_t base, __m256i sums) {
  const std::uint64_t lanes = within >> base & 0x00FF00FF;
  if (lanes == 0) return;
  auto* const place = reinterpret_cast<__m256i*>(to);
  if (lanes != 0x00FF00FF) {
    const __m256i mask =
        _mm256_inserti128_si256(_mm256_castsi128_si256(MaskWords(lanes)), MaskWords(lanes >> 16),
                                1);
    sums = _mm256_blendv_epi8(_mm256_load_si256(place), sums, mask);
  }
  _mm256_store_si256(place, sums);
}

// Brings the sums of a band from raster to wavefront order, 8 steps of 16 lanes at a time.
void BandToWavefront(const WavefrontOrderFrame<std::uint8_t>& frame, std::uint32_t band) {
  const PlaneShape& shape = frame.shape;
  const WavefrontMemory<std::uint8_t>& memory = frame.memory;
  const auto columns = static_cast<std::int32_t>(shape.columns);
  const std::uint32_t rows = std::min(kWavefrontLanes, shape.rows - band * kWavefrontLanes);
  const std::size_t first_step = std::size_t{band} * WavefrontPeriod(shape.columns);
  for (std::uint32_t part = 0; part < 4; ++part) {
    // A part is the 16 lanes whose sums share a register: base to base + 7 and base + 16 to base +
    // 23, as bytes are unpacked. Each lane's sums are read at its own column, which lags behind the
    // lane above, so that a transposition of 8 x 8 yields whole steps.
    const std::uint32_t base = part / 2 * 32 + part % 2 * 8;
    const std::uint32_t lag = kWavefrontLag * base;
    std::array<const std::int16_t*, 24> lines;
    for (std::uint32_t i = 0; i < lines.size(); ++i) {
      lines[i] =
          memory.sums.data() + std::min(base + i, rows - 1) * memory.sums_stride + kSumMargin;
    }
    for (std::uint32_t step = lag; step < lag + shape.columns + kWavefrontLag * 23; step += 8) {
      const auto load = [&](std::uint32_t lane) {
        // Lanes outside of their row read sums from its margins, and StoreSums drops them.
        const std::int32_t column = std::clamp(
            static_cast<std::int32_t>(step - lag) - static_cast<std::int32_t>(kWavefrontLag * lane),
            -8, columns);
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[lane] + column));
      };
      std::array<__m256i, 8> lanes;
      for (std::uint32_t i = 0; i < 8; ++i) {
        lanes[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load(i)), load(i + 16), 1);
      }
      const std::array<__m256i, 8> steps = Transpose(lanes);
      std::int16_t* const to =
          memory.ordered_sums.data() + (first_step + step) * kWavefrontLanes + part * 16;
      for (std::uint32_t i = 0; i < 8; ++i) {
        StoreSums(to + i * kWavefrontLanes, LanesWithin(step + i, 0, shape.columns), base,
                  steps[i]);
      }
    }
  }
}

void SumTemporal(const WavefrontOrderFrame<std::uint8_t>& frame) {
  for (std::uint32_t band = 0; band < WavefrontBands(frame.shape.rows); ++band) {
    SumBand(frame, band * kWavefrontLanes);
    BandToWavefront(frame, band);
  }
}

void RunLanes(const WavefrontOrderFrame<std::uint8_t>& frame, WavefrontStream& stream) {
  // AVX2 has 16 registers, too few to hold a step and the sums of the next one (pipelined pass).
  WavefrontPass<PairLanes>(frame).Run(stream);
}

// Brings a frame from wavefront to raster order, 16 steps of 32 lanes at a time.
void ToRaster(const WavefrontOrderFrame<std::uint8_t>& frame) {
  const PlaneShape& shape = frame.shape;
  const std::uint32_t period = WavefrontPeriod(shape.columns);
  const auto columns = static_cast<std::int32_t>(shape.columns);
  const std::uint32_t span = shape.columns + kWavefrontLag * (kWavefrontLanes - 1);
  for (std::uint32_t band = 0; band < WavefrontBands(shape.rows); ++band) {
    const std::uint32_t rows = std::min(kWavefrontLanes, shape.rows - band * kWavefrontLanes);
    for (std::uint32_t half = 0; half < rows; half += 32) {
      for (std::uint32_t step = kWavefrontLag * half; step < span; step += 16) {
        const std::uint8_t* const from = frame.memory.pixels.data() + half +
                                         (std::size_t{band + 1} * period + step) * kWavefrontLanes;
        std::array<__m256i, 16> a;
        std::array<__m256i, 16> b;
        for (std::size_t i = 0; i < 16; ++i) {
          a[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i * kWavefrontLanes));
        }
        // Four rounds of interleaving step i with step i + 8 transpose 16 x 16 bytes.
        const auto round = [](const std::array<__m256i, 16>& in, std::array<__m256i, 16>& out) {
          for (std::size_t i = 0; i < 8; ++i) {
            out[2 * i] = _mm256_unpacklo_epi8(in[i], in[i + 8]);
            out[2 * i + 1] = _mm256_unpackhi_epi8(in[i], in[i + 8]);
          }
        };
        round(a, b);
        round(b, a);
        round(a, b);
        round(b, a);
        const auto store = [&](std::uint32_t lane, __m128i pixels) {
          const std::int32_t column =
              static_cast<std::int32_t>(step) - static_cast<std::int32_t>(kWavefrontLag * lane);
          // A store may reach up to 15 pixels beyond either end of the row: frames have margins
          // there (PaddedFrame), which are filled later.
          if (lane >= rows || column <= -16 || column >= columns) return;
          std::uint8_t* const row =
              frame.current.Row(static_cast<std::int32_t>(band * kWavefrontLanes + lane));
          _mm_storeu_si128(reinterpret_cast<__m128i*>(row + column), pixels);
        };
        for (std::uint32_t i = 0; i < 16; ++i) {
          store(half + i, _mm256_castsi256_si128(a[i]));
          store(half + i + 16, _mm256_extracti128_si256(a[i], 1));
        }
      }
    }
  }
}

}  // namespace

const WavefrontOrderKernel<std::uint8_t> kWavefrontAvx2 = {
    .sum_temporal = SumTemporal, .run_lanes = RunLanes, .to_raster = ToRaster};

}  // namespace forebay::compress
