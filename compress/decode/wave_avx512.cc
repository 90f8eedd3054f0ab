// Samples of up to 8 bits: all 64 lanes of a step in one register of bytes, their sums in two.
#include "compress/decode/wave_avx512.h"

#include <immintrin.h>

#include <algorithm>
#include <array>

#include "compress/decode/wave_lanes_avx512.h"
#include "compress/decode/wave_pass.h"
#include "compress/decode/wave_runs.h"

namespace forebay::compress {
namespace {

// The current frame's taps in the order of their addition: west, known last, ends the chain from
// one step to the next.
constexpr std::array<std::size_t, kIntraTapCount> kTapOrder = {8, 7, 6, 5, 3, 2, 4, 1, 0};

class ByteLanes : public LanesAvx512 {
 public:
  using Sample = std::uint8_t;
  using Pixels = __m512i;
  using Symbols = __m512i;  // residuals modulo 2^bits

  ByteLanes(const WaveOrderFrame<Sample>& frame, WaveStream& stream)
      : LanesAvx512(frame.shape, frame.plan, frame.previous != nullptr, stream) {
    const WaveGroup& group = frame.previous != nullptr ? frame.plan.parameters.inter
                                                       : frame.plan.parameters.intra;
    alignas(64) std::array<std::int16_t, 32> line{};
    alignas(64) std::array<std::int16_t, 32> bias{};
    const std::int32_t middle = 1 << (bits_ - 1);
    for (std::size_t tap = 0; tap < kIntraTapCount; ++tap) {
      for (std::size_t i = 0; i < kWaveFiltersMax; ++i) {
        line[i] = group.filters[i].weights[tap];
        bias[i] = static_cast<std::int16_t>(bias[i] - line[i] * middle);
      }
      weights_[tap] = _mm512_load_si512(line.data());
    }
    bias_ = _mm512_load_si512(bias.data());
    alignas(64) std::array<std::uint8_t, 64> learned{};
    for (std::size_t i = 0; i < learned.size(); ++i) {
      learned[i] = group.filters[i % kWaveFiltersMax].learned ? 1 : 0;
    }
    learned_ = _mm512_load_si512(learned.data());
    middle_ = _mm512_set1_epi16(static_cast<std::int16_t>(middle));
    sample_mask_ = _mm512_set1_epi8(static_cast<char>((1 << bits_) - 1));
    const std::uint32_t shift = std::min<std::uint32_t>(frame.plan.parameters.magnitude_shift, 8);
    size_shift_ = _mm_cvtsi32_si128(static_cast<int>(shift));
    size_mask_ = _mm512_set1_epi8(static_cast<char>(0xFF >> shift));
  }

  static Pixels AllPixels(Sample value) { return _mm512_set1_epi8(static_cast<char>(value)); }
  static Pixels Select(std::uint64_t lanes, Pixels a, Pixels b) {
    return _mm512_mask_mov_epi8(a, lanes, b);
  }
  Pixels Shift(Pixels a, Sample first) const { return ShiftBytes(a, first); }

  [[gnu::always_inline]] Pixels Predict(const std::int16_t* sums, Bytes choice,
                                        const std::array<Pixels, kIntraTapCount>& taps) const {
    const __m512i choice_low = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(choice));
    const __m512i choice_high = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(choice, 1));
    // Taps are samples themselves: what half their range comes to is in the bias.
    __m512i low = _mm512_permutexvar_epi16(choice_low, bias_);
    __m512i high = _mm512_permutexvar_epi16(choice_high, bias_);
    if (sums != nullptr) {
      low = _mm512_add_epi16(low, _mm512_load_si512(sums));
      high = _mm512_add_epi16(high, _mm512_load_si512(sums + 32));
    }
    for (std::size_t tap : kTapOrder) {
      const __m512i pixels_low = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(taps[tap]));
      const __m512i pixels_high = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(taps[tap], 1));
      low = _mm512_add_epi16(low, _mm512_mullo_epi16(pixels_low, _mm512_permutexvar_epi16(
                                                                     choice_low, weights_[tap])));
      high = _mm512_add_epi16(
          high, _mm512_mullo_epi16(pixels_high,
                                   _mm512_permutexvar_epi16(choice_high, weights_[tap])));
    }
    const __m512i value =
        _mm512_inserti64x4(_mm512_castsi256_si512(Round(low)), Round(high), 1);
    const __mmask64 clamped = Clamped(choice);
    const __m512i raised =
        _mm512_mask_max_epu8(value, clamped, value, _mm512_min_epu8(taps[0], taps[2]));
    return _mm512_mask_min_epu8(raised, clamped, raised, _mm512_max_epu8(taps[0], taps[2]));
  }

  bool NearEnd() const { return stream_.end - next_ < kStepBytesMax; }

  [[gnu::always_inline]] Symbols DecodeAtEnd(std::uint64_t lanes, Bytes contexts) {
    const std::array<__m512i, 2> halves = DecodeSlowly(lanes, contexts);
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(halves[0])),
                              _mm512_cvtepi16_epi8(halves[1]), 1);
  }

  [[gnu::always_inline]] Symbols Decode(std::uint64_t lanes, Bytes contexts) {
    // Written out: the compiler keeps loops over states, which then live in memory.
    const std::array<__m128i, 4> parts = Quarters(contexts);
    const std::array<__m128i, 4> symbols = {
        MoveGroup(0, lanes, parts[0]), MoveGroup(1, lanes, parts[1]),
        MoveGroup(2, lanes, parts[2]), MoveGroup(3, lanes, parts[3])};
    Refill(0);
    Refill(1);
    Refill(2);
    Refill(3);
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(symbols[0]), symbols[1], 1);
    const __m256i high =
        _mm256_inserti128_si256(_mm256_castsi128_si256(symbols[2]), symbols[3], 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }

  Pixels Join(Pixels value, Symbols symbols) const {
    return _mm512_and_si512(_mm512_add_epi8(value, symbols), sample_mask_);
  }

  Bytes SizeOf(Symbols symbols) const {
    const __m512i negated = _mm512_sub_epi8(_mm512_setzero_si512(), symbols);
    const __m512i size = _mm512_min_epu8(symbols, _mm512_and_si512(negated, sample_mask_));
    return _mm512_and_si512(_mm512_srl_epi16(size, size_shift_), size_mask_);
  }

  // What wave_learned.h asks for.
  static Bytes LoadAny(const std::uint8_t* from) { return Load(from); }
  static Bytes Invert(Bytes a) { return _mm512_xor_si512(a, _mm512_set1_epi8(-128)); }
  static Bytes Absolute(Bytes a) { return _mm512_abs_epi8(a); }
  static Bytes Difference(Bytes a, Bytes b) {
    return Invert(_mm512_subs_epi8(Invert(a), Invert(b)));
  }
  static Bytes ErrorOf(Pixels pixels, Pixels values) {
    return _mm512_max_epi8(_mm512_subs_epi8(Invert(pixels), Invert(values)),
                           _mm512_set1_epi8(-127));
  }
  std::uint64_t Learned(Bytes choice) const {
    return _mm512_test_epi8_mask(_mm512_permutexvar_epi8(choice, learned_),
                                 _mm512_set1_epi8(1));
  }
  Pixels Correct(Pixels values, Bytes corrections) const {
    return _mm512_min_epu8(Invert(_mm512_adds_epi8(Invert(values), corrections)), sample_mask_);
  }
  static Symbols Mirror(Bytes signs, Symbols symbols) {
    return _mm512_sub_epi8(_mm512_xor_si512(symbols, signs), signs);
  }

  static void StorePixels(Sample* to, std::uint64_t lanes, Pixels pixels) {
    _mm512_mask_storeu_epi8(to, lanes, pixels);
  }

 private:
  static constexpr std::ptrdiff_t kStepBytesMax = 2 * kWaveLanes;

  [[gnu::always_inline]] __m128i MoveGroup(std::size_t group, std::uint64_t lanes,
                                           __m128i contexts) {
    const Moved moved = Move(group, static_cast<__mmask16>(lanes >> (16 * group)), contexts);
    states_[group] = moved.state;
    refill_[group] = moved.refill;
    return _mm512_cvtepi32_epi8(moved.entry);
  }

  [[gnu::always_inline]] void Refill(std::size_t group) {
    const __m512i words = _mm512_cvtepu16_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(next_)));
    states_[group] = _mm512_mask_or_epi32(
        states_[group], refill_[group], _mm512_slli_epi32(states_[group], 16),
        _mm512_maskz_expand_epi32(refill_[group], words));
    next_ += 2 * __builtin_popcount(refill_[group]);
  }

  // Values of the samples' range.
  __m256i Round(__m512i sum) const {
    const __m512i highest = _mm512_sub_epi16(middle_, _mm512_set1_epi16(1));
    const __m512i lowest = _mm512_sub_epi16(_mm512_setzero_si512(), middle_);
    const __m512i rounded = _mm512_srai_epi16(
        _mm512_add_epi16(sum, _mm512_set1_epi16(1 << (kWaveWeightBits - 1))), kWaveWeightBits);
    const __m512i value = _mm512_min_epi16(_mm512_max_epi16(rounded, lowest), highest);
    return _mm512_cvtepi16_epi8(_mm512_add_epi16(value, middle_));
  }

  std::array<__m512i, kIntraTapCount> weights_;
  __m512i bias_, learned_, middle_, sample_mask_, size_mask_;
  __m128i size_shift_;
  std::array<__mmask16, 4> refill_;
};

// Sums of the temporal taps.
class RunSums {
 public:
  RunSums(const TapList<std::uint8_t>& taps, std::uint32_t bits)
      : taps_(taps),
        bias_(_mm512_set1_epi16(static_cast<std::int16_t>(-taps.total * (1 << (bits - 1))))) {
    for (std::size_t i = 0; i < taps.count; ++i) factors_[i] = _mm512_set1_epi16(taps.weights[i]);
  }

  // 32 sums; `load(at)` gives the 32 samples that `at` is where the first of them would be for the
  // pixel at (0, 0).
  template <typename Load>
  [[gnu::always_inline]] __m512i Sum(const Load& load) const {
    __m512i sum = bias_;
    for (std::size_t i = 0; i < taps_.count; ++i) {
      const __m512i samples = _mm512_cvtepu8_epi16(load(taps_.from[i]));
      sum = _mm512_add_epi16(sum, _mm512_mullo_epi16(samples, factors_[i]));
    }
    return sum;
  }

 private:
  const TapList<std::uint8_t>& taps_;
  __m512i bias_;
  std::array<__m512i, kTemporalTapCount> factors_;
};

// A band's raster sums. A run of blocks writes up to 31 sums beyond its end, which the next one
// overwrites; an odd last row is followed by one that nobody reads.
void SumBand(const WaveOrderFrame<std::uint8_t>& frame, std::uint32_t band_top) {
  const WaveMemory<std::uint8_t>& memory = frame.memory;
  ForEachRun(frame, band_top, [&](const TapList<std::uint8_t>& taps, const RunArea& area) {
    const RunSums sums(taps, frame.shape.bits);
    const std::size_t stride = frame.previous->stride;
    const auto to = [&](std::uint32_t row, std::uint32_t column) {
      return memory.sums.data() + (row - band_top) * memory.sums_stride + kSumMargin + column;
    };
    if (area.right - area.left <= 16) {
      for (std::uint32_t row = area.top; row < area.bottom; row += 2) {
        const __m512i two = sums.Sum([&](const std::uint8_t* from) {
          from += row * stride + area.left;
          return _mm256_inserti128_si256(
              _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))),
              _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + stride)), 1);
        });
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to(row, area.left)),
                            _mm512_castsi512_si256(two));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to(row + 1, area.left)),
                            _mm512_extracti64x4_epi64(two, 1));
      }
      return;
    }
    for (std::uint32_t row = area.top; row < area.bottom; ++row) {
      for (std::uint32_t column = area.left; column < area.right; column += 32) {
        _mm512_storeu_si512(to(row, column), sums.Sum([&](const std::uint8_t* from) {
          return _mm256_loadu_si256(
              reinterpret_cast<const __m256i*>(from + row * stride + column));
        }));
      }
    }
  });
}

// Eight lanes' sums of eight steps, in each quarter of the registers, turned.
std::array<__m512i, 8> Transpose(const std::array<__m512i, 8>& lanes) {
  std::array<__m512i, 8> pairs;
  for (std::size_t i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm512_unpacklo_epi16(lanes[2 * i], lanes[2 * i + 1]);
    pairs[2 * i + 1] = _mm512_unpackhi_epi16(lanes[2 * i], lanes[2 * i + 1]);
  }
  std::array<__m512i, 8> fours;
  for (std::size_t i = 0; i < 8; i += 4) {
    fours[i] = _mm512_unpacklo_epi32(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi32(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi32(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi32(pairs[i + 1], pairs[i + 3]);
  }
  std::array<__m512i, 8> steps;
  for (std::size_t i = 0; i < 4; ++i) {
    steps[2 * i] = _mm512_unpacklo_epi64(fours[i], fours[i + 4]);
    steps[2 * i + 1] = _mm512_unpackhi_epi64(fours[i], fours[i + 4]);
  }
  return steps;
}

// A band's raster sums into wave order, 8 steps of 32 lanes at a time.
void BandToWave(const WaveOrderFrame<std::uint8_t>& frame, std::uint32_t band) {
  const PlaneShape& shape = frame.shape;
  const WaveMemory<std::uint8_t>& memory = frame.memory;
  const auto columns = static_cast<std::int32_t>(shape.columns);
  const std::uint32_t rows = std::min(kWaveLanes, shape.rows - band * kWaveLanes);
  const std::size_t first_step = std::size_t{band} * WavePeriod(shape.columns);
  for (std::uint32_t half = 0; half < kWaveLanes; half += 32) {
    const std::uint32_t lag = kWaveLag * half;
    std::array<const std::int16_t*, 32> lines;
    for (std::uint32_t i = 0; i < lines.size(); ++i) {
      lines[i] =
          memory.sums.data() + std::min(half + i, rows - 1) * memory.sums_stride + kSumMargin;
    }
    for (std::uint32_t step = lag; step < lag + shape.columns + kWaveLag * 31; step += 8) {
      const auto load = [&](std::uint32_t lane) {
        const std::int32_t column =
            std::clamp(static_cast<std::int32_t>(step - lag) -
                           static_cast<std::int32_t>(kWaveLag * lane), -8, columns);
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[lane] + column));
      };
      std::array<__m512i, 8> lanes;
      for (std::uint32_t i = 0; i < 8; ++i) {
        __m512i line = _mm512_castsi128_si512(load(i));
        line = _mm512_inserti32x4(line, load(i + 8), 1);
        line = _mm512_inserti32x4(line, load(i + 16), 2);
        lanes[i] = _mm512_inserti32x4(line, load(i + 24), 3);
      }
      const std::array<__m512i, 8> steps = Transpose(lanes);
      std::int16_t* const to =
          memory.wave_sums.data() + (first_step + step) * kWaveLanes + half;
      for (std::uint32_t i = 0; i < 8; ++i) {
        _mm512_mask_storeu_epi16(
            to + i * kWaveLanes,
            static_cast<__mmask32>(LanesWithin(step + i, lag, shape.columns)), steps[i]);
      }
    }
  }
}

void SumTemporal(const WaveOrderFrame<std::uint8_t>& frame) {
  for (std::uint32_t band = 0; band < WaveBands(frame.shape.rows); ++band) {
    SumBand(frame, band * kWaveLanes);
    BandToWave(frame, band);
  }
}

void RunLanes(const WaveOrderFrame<std::uint8_t>& frame, WaveStream& stream) {
  WavePass<ByteLanes>(frame).Run(stream);
}

// 16 steps of 64 lanes at a time.
void ToRaster(const WaveOrderFrame<std::uint8_t>& frame) {
  const PlaneShape& shape = frame.shape;
  const std::uint32_t period = WavePeriod(shape.columns);
  const std::uint32_t bands = WaveBands(shape.rows);
  const auto columns = static_cast<std::int32_t>(shape.columns);
  const std::uint8_t* const wave =
      frame.memory.pixels.data() + std::size_t{period} * kWaveLanes;
  const std::uint32_t span = shape.columns + kWaveLag * (kWaveLanes - 1);
  for (std::uint32_t band = 0; band < bands; ++band) {
    const std::uint32_t rows = std::min(kWaveLanes, shape.rows - band * kWaveLanes);
    for (std::uint32_t step = 0; step < span; step += 16) {
      const std::uint8_t* const from = wave + (std::size_t{band} * period + step) * kWaveLanes;
      std::array<__m512i, 16> a;
      std::array<__m512i, 16> b;
      for (std::size_t i = 0; i < 16; ++i) a[i] = _mm512_load_si512(from + i * kWaveLanes);
      // Four rounds of interleaving step i with step i + 8 transpose 16 x 16 bytes.
      const auto round = [](const std::array<__m512i, 16>& in, std::array<__m512i, 16>& out) {
        for (std::size_t i = 0; i < 8; ++i) {
          out[2 * i] = _mm512_unpacklo_epi8(in[i], in[i + 8]);
          out[2 * i + 1] = _mm512_unpackhi_epi8(in[i], in[i + 8]);
        }
      };
      round(a, b);
      round(b, a);
      round(a, b);
      round(b, a);
      for (std::uint32_t i = 0; i < 16; ++i) {
        const auto store = [&](std::uint32_t lane, __m128i pixels) {
          const std::int32_t column =
              static_cast<std::int32_t>(step) - static_cast<std::int32_t>(kWaveLag * lane);
          if (lane >= rows || column <= -16 || column >= columns) return;
          std::uint8_t* const row =
              frame.current.Row(static_cast<std::int32_t>(band * kWaveLanes + lane));
          _mm_storeu_si128(reinterpret_cast<__m128i*>(row + column), pixels);
        };
        store(i, _mm512_castsi512_si128(a[i]));
        store(i + 16, _mm512_extracti32x4_epi32(a[i], 1));
        store(i + 32, _mm512_extracti32x4_epi32(a[i], 2));
        store(i + 48, _mm512_extracti32x4_epi32(a[i], 3));
      }
    }
  }
}

}  // namespace

bool HaveWaveAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("bmi2");
}

const WaveOrderKernel<std::uint8_t> kWaveAvx512 = {
    .sum_temporal = SumTemporal, .run_lanes = RunLanes, .to_raster = ToRaster};

}  // namespace forebay::compress
