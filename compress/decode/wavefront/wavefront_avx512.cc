// The AVX-512 kernel of wavefront planes (wavefront_order.h), for samples of up to 8 bits: all 64
// lanes of a step in one register of bytes, their sums in two of 16-bit numbers, of even and of odd
// lanes.
#include "compress/decode/wavefront/wavefront_order.h"

#include <immintrin.h>

#include <algorithm>
#include <array>

#include "compress/decode/wavefront/wavefront_lanes_avx512.h"
#include "compress/decode/wavefront/wavefront_pass.h"
#include "compress/decode/wavefront/wavefront_pipelined_pass.h"
#include "compress/decode/wavefront/wavefront_runs.h"
#include "compress/decode/wavefront/wavefront_search_avx512.h"

namespace forebay::compress {
namespace {

// The operations of wavefront_pass.h on 64 samples in one register.
class ByteLanes : public LanesAvx512 {
 public:
  using Sample = std::uint8_t;
  using Pixels = __m512i;
  using Symbols = SearchAvx512::Symbols;

  ByteLanes(const WavefrontOrderFrame<Sample>& frame, WavefrontStream& stream)
      : LanesAvx512(frame.shape, frame.plan, frame.previous != nullptr, stream),
        search_(table_, bits_, frame.plan.parameters.magnitude_shift, stream.states) {
    const WavefrontGroup& group =
        frame.previous != nullptr ? frame.plan.parameters.inter : frame.plan.parameters.intra;
    // Tables of 32 entries of 16 bits: filter i has entry i, and the upper 16 entries are not used,
    // because a block names one of 16 filters.
    alignas(64) std::array<std::int16_t, 32> line{};
    alignas(64) std::array<std::int16_t, 32> bias{};
    const std::int32_t middle = 1 << (bits_ - 1);
    for (std::size_t tap = 0; tap < kIntraTapCount; ++tap) {
      for (std::size_t i = 0; i < kWavefrontFiltersMax; ++i) {
        line[i] = group.filters[i].weights[tap];
        // Sums are modulo 2^16, so the bias may wrap as every other addend.
        bias[i] = static_cast<std::int16_t>(bias[i] - line[i] * middle);
      }
      weights_[tap] = _mm512_load_si512(line.data());
    }
    bias_ = _mm512_load_si512(bias.data());
    alignas(64) std::array<std::uint8_t, 64> learned{};
    for (std::size_t i = 0; i < learned.size(); ++i) {
      learned[i] = group.filters[i % kWavefrontFiltersMax].learned ? 1 : 0;
    }
    learned_ = _mm512_load_si512(learned.data());
    middle_ = _mm512_set1_epi16(static_cast<std::int16_t>(middle));
    sample_mask_ = _mm512_set1_epi8(static_cast<char>((1 << bits_) - 1));
  }

  // Gives states and words back to the stream.
  void Finish() {
    search_.Save(stream_.states.data());
    stream_.next = next_;
  }

  static Pixels AllPixels(Sample value) { return _mm512_set1_epi8(static_cast<char>(value)); }
  static Pixels Select(std::uint64_t lanes, Pixels a, Pixels b) {
    return _mm512_mask_mov_epi8(a, lanes, b);
  }
  Pixels Shift(Pixels a, Sample first) const { return ShiftBytes(a, first); }

  // Sums of even and of odd lanes apart: then bytes become numbers of 16 bits by a mask and by a
  // shift.
  struct Sums {
    __m512i even, odd, choice, odd_choice;

    [[gnu::always_inline]] void Add(__m512i pixels, __m512i weights) {
      // Even lanes are the low bytes of the 16-bit elements, odd lanes the high ones: neither needs
      // the bytes to be unpacked and put in order again.
      const __m512i even_pixels = _mm512_and_si512(pixels, _mm512_set1_epi16(0xFF));
      const __m512i odd_pixels = _mm512_srli_epi16(pixels, 8);
      even = _mm512_add_epi16(
          even, _mm512_mullo_epi16(even_pixels, _mm512_permutexvar_epi16(choice, weights)));
      odd = _mm512_add_epi16(
          odd, _mm512_mullo_epi16(odd_pixels, _mm512_permutexvar_epi16(odd_choice, weights)));
    }
  };

  [[gnu::always_inline]] Sums Begin(const std::int16_t* temporal, Bytes choice) const {
    // Tables of 32 look at five bits of an index, of which a filter has four.
    const __m512i odd_choice = _mm512_srli_epi16(choice, 8);
    // Taps are not centred: `bias_` subtracts half the range times each weight.
    Sums sums = {_mm512_permutexvar_epi16(choice, bias_),
                 _mm512_permutexvar_epi16(odd_choice, bias_), choice, odd_choice};
    if (temporal != nullptr) {
      // BandToWavefront has put the even lanes of a step before the odd ones.
      sums.even = _mm512_add_epi16(sums.even, _mm512_load_si512(temporal));
      sums.odd = _mm512_add_epi16(sums.odd, _mm512_load_si512(temporal + 32));
    }
    return sums;
  }

  [[gnu::always_inline]] void AddTap(std::size_t tap, Pixels pixels, Sums& sums) const {
    sums.Add(pixels, weights_[tap]);
  }

  [[gnu::always_inline]] Pixels End(const Sums& sums, Pixels west, Pixels north) const {
    // Rounded sums are samples below 256, so the odd ones move to the high bytes without a mask.
    const __m512i value =
        _mm512_or_si512(Round(sums.even), _mm512_slli_epi16(Round(sums.odd), 8));
    // A clamped filter stays between west and north.
    const __mmask64 clamped = Clamped(sums.choice);
    const __m512i raised =
        _mm512_mask_max_epu8(value, clamped, value, _mm512_min_epu8(west, north));
    return _mm512_mask_min_epu8(raised, clamped, raised, _mm512_max_epu8(west, north));
  }

  [[gnu::always_inline]] Pixels Predict(const std::int16_t* temporal, Bytes choice,
                                        const std::array<Pixels, kIntraTapCount>& taps) const {
    Sums sums = Begin(temporal, choice);
    // From the last tap to the first: west, which the previous step decodes, comes last.
    for (std::size_t tap = kIntraTapCount; tap-- > 0;) AddTap(tap, taps[tap], sums);
    return End(sums, taps[0], taps[2]);
  }

  bool NearEnd() const { return stream_.end - next_ < kStepBytesMax; }

  // Near the end of the words, where a load of a whole register could reach beyond them: lane by
  // lane.
  [[gnu::always_inline]] Symbols DecodeAtEnd(std::uint64_t lanes, Bytes contexts) {
    LanesAtEnd end;
    // The states live in the registers of the search, in halves of 16 bits. The slow way needs them
    // whole.
    search_.Save(end.states.data());
    const std::array<__m512i, 2> halves = DecodeSlowly(lanes, contexts, end);
    search_.Load(end.states.data());
    // Residuals have up to 8 bits, so narrowing loses nothing.
    const __m512i residuals =
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(halves[0])),
                           _mm512_cvtepi16_epi8(halves[1]), 1);
    return {residuals, search_.SizeOf(residuals)};
  }

  [[gnu::always_inline]] Symbols Decode(std::uint64_t lanes, Bytes contexts) {
    return search_.Take(lanes, contexts, search_.Look(contexts), next_);
  }
  using Found = std::array<SearchAvx512::Found, 2>;
  // Decode in two parts, for the pipelined pass: it looks symbols up as soon as the contexts are
  // known, and begins the next step's sums before it takes words.
  [[gnu::always_inline]] Found Look(Bytes contexts) const { return search_.Look(contexts); }
  [[gnu::always_inline]] Symbols Take(std::uint64_t lanes, Bytes contexts, const Found& found) {
    return search_.Take(lanes, contexts, found, next_);
  }

  Pixels Join(Pixels value, const Symbols& symbols) const {
    return _mm512_and_si512(_mm512_add_epi8(value, symbols.residuals), sample_mask_);
  }

  static Bytes SizeOf(const Symbols& symbols) { return symbols.sizes; }

  // What wavefront_learned.h asks for.
  static Bytes LoadAny(const std::uint8_t* from) { return Load(from); }
  static Bytes Invert(Bytes a) { return _mm512_xor_si512(a, _mm512_set1_epi8(-128)); }
  static Bytes Absolute(Bytes a) { return _mm512_abs_epi8(a); }
  static Bytes Difference(Bytes a, Bytes b) {
    return Invert(_mm512_subs_epi8(Invert(a), Invert(b)));
  }
  static Bytes ErrorOf(Pixels pixels, Pixels values) {
    // The format clamps errors to -127 .. 127, and saturation alone would allow -128.
    return _mm512_max_epi8(_mm512_subs_epi8(Invert(pixels), Invert(values)),
                           _mm512_set1_epi8(-127));
  }
  std::uint64_t Learned(Bytes choice) const {
    return _mm512_test_epi8_mask(_mm512_permutexvar_epi8(choice, learned_),
                                 _mm512_set1_epi8(1));
  }
  Pixels Correct(Pixels values, Bytes corrections) const {
    // The saturated sum cannot leave 0 .. 255; the minimum confines it to samples of fewer bits.
    return _mm512_min_epu8(Invert(_mm512_adds_epi8(Invert(values), corrections)), sample_mask_);
  }
  static Symbols Mirror(Bytes signs, const Symbols& symbols) {
    // Negates where the sign's byte is all ones. Sizes do not change with the sign.
    return {_mm512_sub_epi8(_mm512_xor_si512(symbols.residuals, signs), signs), symbols.sizes};
  }

  static void StorePixels(Sample* to, std::uint64_t lanes, Pixels pixels) {
    // Masked: lanes 62 and 63 hold the rows above the frame until their own rows begin.
    _mm512_mask_storeu_epi8(to, lanes, pixels);
  }

 private:
  static constexpr std::ptrdiff_t kStepBytesMax = 2 * kWavefrontLanes;

  // Rounds sums to samples: scaled, clamped, and put back to 0 .. 2^bits - 1.
  __m512i Round(__m512i sum) const {
    const __m512i highest = _mm512_sub_epi16(middle_, _mm512_set1_epi16(1));
    const __m512i lowest = _mm512_sub_epi16(_mm512_setzero_si512(), middle_);
    const __m512i rounded =
        _mm512_srai_epi16(_mm512_add_epi16(sum, _mm512_set1_epi16(1 << (kWavefrontWeightBits - 1))),
                          kWavefrontWeightBits);
    return _mm512_add_epi16(_mm512_min_epi16(_mm512_max_epi16(rounded, lowest), highest),
                            middle_);
  }

  std::array<__m512i, kIntraTapCount> weights_;
  __m512i bias_, learned_, middle_, sample_mask_;
  SearchAvx512 search_;
};

// Indices that pick the samples of a tap out of a window of 64 bytes, for 32 pixels in kRows rows.
// The rows of a window begin two columns left of the first pixel; taps lie -2 to 2 columns from
// theirs.
template <std::uint32_t kRows>
struct WindowIndex {
  static constexpr std::uint32_t kWidth = 32 / kRows;
  static constexpr std::uint32_t kRowBytes = 64 / kRows;

  alignas(64) std::array<std::array<std::uint8_t, 64>, 5> bytes{};

  constexpr WindowIndex() {
    for (std::uint32_t shift = 0; shift < bytes.size(); ++shift) {
      for (std::uint32_t i = 0; i < 32; ++i) {
        bytes[shift][2 * i] =
            static_cast<std::uint8_t>(i / kWidth * kRowBytes + i % kWidth + shift);
      }
    }
  }
};

template <std::uint32_t kRows>
constexpr WindowIndex<kRows> kWindowIndex;

// A filter's temporal weights, each twice side by side in 32 bits, as multiplications of 16 bits
// need them.
struct WindowFilter {
  std::array<std::int32_t, kTemporalTapCount> pairs{};
  std::int16_t bias = 0;

  WindowFilter() = default;
  WindowFilter(const WavefrontFilter& filter, std::uint32_t bits) {
    std::int32_t total = 0;
    for (std::size_t tap = 0; tap < kTemporalTapCount; ++tap) {
      const std::int16_t weight = filter.weights[kIntraTapCount + tap];
      // Both halves get the same 16 bits. The mask keeps a negative weight out of the upper half.
      pairs[tap] = weight * (1 << 16) + (weight & 0xFFFF);
      total += weight;
    }
    bias = static_cast<std::int16_t>(-total * (1 << (bits - 1)));
  }
};

// Temporal sums of 32 pixels in kRows rows, the first at (row, column). Three windows are loaded,
// one for each row of taps, and a permutation of bytes takes each tap out of its window.
template <std::uint32_t kRows>
[[gnu::always_inline]] inline __m512i WindowSums(const WavefrontOrderFrame<std::uint8_t>& frame,
                                                 const WindowFilter& filter,
                                                 const WavefrontBlock& block, std::uint32_t row,
                                                 std::uint32_t column) {
  const std::size_t stride = frame.previous->stride;
  const auto window = [&](const std::uint8_t* from) {
    const auto sixteen = [&](std::size_t line) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + line * stride));
    };
    const auto thirty_two = [&](std::size_t line) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + line * stride));
    };
    if constexpr (kRows == 1) {
      return _mm512_loadu_si512(from);
    } else if constexpr (kRows == 2) {
      return _mm512_inserti64x4(_mm512_castsi256_si512(thirty_two(0)), thirty_two(1), 1);
    } else {
      const __m512i two = _mm512_inserti32x4(_mm512_castsi128_si512(sixteen(0)), sixteen(1), 1);
      return _mm512_inserti32x4(_mm512_inserti32x4(two, sixteen(2), 2), sixteen(3), 3);
    }
  };
  // Motion leads at most 16 pixels beyond the frame, and 32 in the frame before the previous one.
  // The margin has 40, so no tap needs a bounds check; what a window loads beyond its taps is not
  // used.
  const auto y = static_cast<std::int32_t>(row) + block.motion_row;
  const auto x = static_cast<std::int32_t>(column) + block.motion_column - 2;
  const std::uint8_t* const here = frame.previous->Row(y) + x;
  const std::array<__m512i, 3> windows = {window(here - stride), window(here),
                                          window(here + stride)};
  __m512i sum = _mm512_set1_epi16(filter.bias);
  const auto add = [&](std::size_t tap, __m512i from, std::int32_t shift) {
    const __m512i index =
        _mm512_load_si512(kWindowIndex<kRows>.bytes[static_cast<std::size_t>(shift + 2)].data());
    // Every other byte is zero, which makes 16-bit numbers of the samples.
    const __m512i samples = _mm512_maskz_permutexvar_epi8(0x5555555555555555, index, from);
    sum = _mm512_add_epi16(sum,
                           _mm512_mullo_epi16(samples, _mm512_set1_epi32(filter.pairs[tap])));
  };
#pragma GCC unroll 12
  for (std::size_t tap = 0; tap < kPreviousTaps.size(); ++tap) {
    add(tap, windows[static_cast<std::size_t>(kPreviousTaps[tap].row + 1)],
        kPreviousTaps[tap].column);
  }
  const std::uint8_t* const before =
      frame.earlier == nullptr
          ? here
          : frame.earlier->Row(y + block.motion_row) + x + block.motion_column;
  add(kPreviousTaps.size(), window(before), 0);
  return sum;
}

// Temporal sums of a band in raster order, block by block. Blocks are small and differ in filter
// and motion, so testing for what neighbours or weights have in common would cost more than it
// saves. The last blocks write up to three rows that nobody reads.
class BandSums {
 public:
  // Weights are prepared once for each filter and not for each block.
  explicit BandSums(const WavefrontOrderFrame<std::uint8_t>& frame) : frame_(frame) {
    const WavefrontGroup& group = frame.plan.parameters.inter;
    for (std::size_t i = 0; i < group.filter_count; ++i) {
      filters_[i] = WindowFilter(group.filters[i], frame.shape.bits);
    }
  }

  void Sum(std::uint32_t band_top) const {
    switch (frame_.plan.parameters.block_log2) {
      case 3: return SumBlocks<4>(band_top);
      case 4: return SumBlocks<2>(band_top);
      default: return SumBlocks<1>(band_top);
    }
  }

 private:
  std::int16_t* To(std::uint32_t row, std::uint32_t column) const {
    const WavefrontMemory<std::uint8_t>& memory = frame_.memory;
    return memory.sums.data() + row * memory.sums_stride + kSumMargin + column;
  }

  // Blocks of 32 / kRows columns.
  template <std::uint32_t kRows>
  void SumBlocks(std::uint32_t band_top) const {
    constexpr std::uint32_t kSize = 32 / kRows;
    const PlaneShape& shape = frame_.shape;
    const std::uint32_t end_row = std::min(band_top + kWavefrontLanes, shape.rows);
    for (std::uint32_t top = band_top; top < end_row; top += kSize) {
      const WavefrontBlock* block =
          frame_.blocks.data() + std::size_t{top / kSize} * frame_.plan.block_columns;
      const std::uint32_t bottom = std::min(top + kSize, end_row);
      for (std::uint32_t column = 0; column < shape.columns; column += kSize, ++block) {
        // Skipped blocks are predicted, too: their residuals are zero and not their pixels.
        const WindowFilter& filter = filters_[block->filter & 0x0F];
        for (std::uint32_t row = top; row < bottom; row += kRows) {
          Store<kRows>(row - band_top, column,
                       WindowSums<kRows>(frame_, filter, *block, row, column));
        }
      }
    }
  }

  template <std::uint32_t kRows>
  void Store(std::uint32_t line, std::uint32_t column, __m512i sum) const {
    if constexpr (kRows == 1) {
      _mm512_storeu_si512(To(line, column), sum);
    } else if constexpr (kRows == 2) {
      const auto store = [&](std::uint32_t below, __m256i part) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(To(line + below, column)), part);
      };
      store(0, _mm512_castsi512_si256(sum));
      store(1, _mm512_extracti64x4_epi64(sum, 1));
    } else {
      const auto store = [&](std::uint32_t below, __m128i part) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(To(line + below, column)), part);
      };
      store(0, _mm512_castsi512_si128(sum));
      store(1, _mm512_extracti32x4_epi32(sum, 1));
      store(2, _mm512_extracti32x4_epi32(sum, 2));
      store(3, _mm512_extracti32x4_epi32(sum, 3));
    }
  }

  const WavefrontOrderFrame<std::uint8_t>& frame_;
  std::array<WindowFilter, kWavefrontFiltersMax> filters_;
};

// Transposes 8 x 8 sums of 16 bits in each quarter of the registers: rows are lanes before, steps
// afterwards.
[[gnu::always_inline]] inline std::array<__m512i, 8> Transpose(
    const std::array<__m512i, 8>& lanes) {
  std::array<__m512i, 8> pairs;
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm512_unpacklo_epi16(lanes[2 * i], lanes[2 * i + 1]);
    pairs[2 * i + 1] = _mm512_unpackhi_epi16(lanes[2 * i], lanes[2 * i + 1]);
  }
  std::array<__m512i, 8> fours;
#pragma GCC unroll 2
  for (std::size_t i = 0; i < 8; i += 4) {
    fours[i] = _mm512_unpacklo_epi32(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi32(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi32(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi32(pairs[i + 1], pairs[i + 3]);
  }
  std::array<__m512i, 8> steps;
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    steps[2 * i] = _mm512_unpacklo_epi64(fours[i], fours[i + 4]);
    steps[2 * i + 1] = _mm512_unpackhi_epi64(fours[i], fours[i + 4]);
  }
  return steps;
}

// Brings eight steps of 32 lanes, every other one, from raster to wavefront order. The first lane
// is at column `first` of the row that begins at `line`; each further lane is two rows below and
// four columns behind. Columns from -8 to `columns` may be read; with kEdges, lanes may be beyond
// them, and their sums are not used.
template <bool kEdges>
[[gnu::always_inline]] inline std::array<__m512i, 8> TurnTile(const std::int16_t* line,
                                                              std::ptrdiff_t stride,
                                                              std::int32_t first,
                                                              std::int32_t columns) {
  const auto load = [&](std::int32_t i) {
    const std::int32_t column = first - 2 * static_cast<std::int32_t>(kWavefrontLag) * i;
    const std::int32_t at = kEdges ? std::clamp(column, -8, columns) : column;
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(line + 2 * i * stride + at));
  };
  std::array<__m512i, 8> lanes;
#pragma GCC unroll 8
  for (std::int32_t i = 0; i < 8; ++i) {
    __m512i four = _mm512_castsi128_si512(load(i));
    // Lanes 8 apart share a register, so that one transposition of 8 x 8 serves four groups at
    // once.
    four = _mm512_inserti32x4(four, load(i + 8), 1);
    four = _mm512_inserti32x4(four, load(i + 16), 2);
    lanes[static_cast<std::size_t>(i)] = _mm512_inserti32x4(four, load(i + 24), 3);
  }
  return Transpose(lanes);
}

// Brings the sums of a band from raster to wavefront order: the even lanes of a step, then the odd
// ones, as Sums needs them. Rows beyond the frame are processed with the others and not used.
void BandToWavefront(const WavefrontOrderFrame<std::uint8_t>& frame, std::uint32_t band) {
  const WavefrontMemory<std::uint8_t>& memory = frame.memory;
  const auto columns = static_cast<std::int32_t>(frame.shape.columns);
  const auto stride = static_cast<std::ptrdiff_t>(memory.sums_stride);
  constexpr std::int32_t kReach = 2 * kWavefrontLag * 31;
  const std::size_t first_step = std::size_t{band} * WavefrontPeriod(frame.shape.columns);
  for (std::uint32_t odd = 0; odd < 2; ++odd) {
    const std::int16_t* const line = memory.sums.data() + odd * memory.sums_stride + kSumMargin;
    for (std::int32_t first = 0; first < columns + kReach; first += 8) {
      const std::uint32_t step = static_cast<std::uint32_t>(first) + kWavefrontLag * odd;
      std::int16_t* const to =
          memory.ordered_sums.data() + (first_step + step) * kWavefrontLanes + 32 * odd;
      // Every lane of these eight steps lies inside its row: nothing is clamped and nothing masked.
      if (first >= kReach && first + 8 <= columns) {
        const std::array<__m512i, 8> steps = TurnTile<false>(line, stride, first, columns);
#pragma GCC unroll 8
        for (std::size_t i = 0; i < 8; ++i) _mm512_store_si512(to + i * kWavefrontLanes, steps[i]);
        continue;
      }
      const std::array<__m512i, 8> steps = TurnTile<true>(line, stride, first, columns);
      for (std::uint32_t i = 0; i < 8; ++i) {
        // Only lanes that are inside their rows are stored. The others belong to the band before or
        // after, whose sums are there already or come later.
        const std::uint64_t within = LanesWithin(step + i, 0, frame.shape.columns) >> odd;
        _mm512_mask_storeu_epi16(to + i * kWavefrontLanes,
                                 static_cast<__mmask32>(_pext_u64(within, 0x5555555555555555)),
                                 steps[i]);
      }
    }
  }
}

void SumTemporal(const WavefrontOrderFrame<std::uint8_t>& frame) {
  const BandSums sums(frame);
  for (std::uint32_t band = 0; band < WavefrontBands(frame.shape.rows); ++band) {
    sums.Sum(band * kWavefrontLanes);
    BandToWavefront(frame, band);
  }
}

// The pipelined pass does not know learned predictors, which need each step's errors at once.
void RunLanes(const WavefrontOrderFrame<std::uint8_t>& frame, WavefrontStream& stream) {
  if (frame.errors != nullptr) {
    WavefrontPass<ByteLanes>(frame).Run(stream);
  } else {
    WavefrontPipelinedPass<ByteLanes>(frame).Run(stream);
  }
}

// Transposes sixteen steps of pixels: register i then holds 16 pixels of each of the rows i, i +
// 16, i + 32 and i + 48.
[[gnu::always_inline]] inline std::array<__m512i, 16> TurnPixels(const std::uint8_t* from) {
  std::array<__m512i, 16> a;
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) a[i] = _mm512_load_si512(from + i * kWavefrontLanes);
  // Four rounds of interleaving step i with step i + 8 transpose 16 x 16 bytes.
#pragma GCC unroll 4
  for (std::size_t round = 0; round < 4; ++round) {
    std::array<__m512i, 16> b;
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) {
      b[2 * i] = _mm512_unpacklo_epi8(a[i], a[i + 8]);
      b[2 * i + 1] = _mm512_unpackhi_epi8(a[i], a[i + 8]);
    }
    a = b;
  }
  return a;
}

// Brings a frame from wavefront to raster order, 16 steps of 64 lanes at a time.
void ToRaster(const WavefrontOrderFrame<std::uint8_t>& frame) {
  const PlaneShape& shape = frame.shape;
  const std::uint32_t period = WavefrontPeriod(shape.columns);
  const auto columns = static_cast<std::int32_t>(shape.columns);
  constexpr std::int32_t kReach = kWavefrontLag * (kWavefrontLanes - 1);
  for (std::uint32_t band = 0; band < WavefrontBands(shape.rows); ++band) {
    const std::uint32_t rows = std::min(kWavefrontLanes, shape.rows - band * kWavefrontLanes);
    const std::uint8_t* from =
        frame.memory.pixels.data() + std::size_t{band + 1} * period * kWavefrontLanes;
    std::uint8_t* const top = frame.current.Row(static_cast<std::int32_t>(band * kWavefrontLanes));
    // The distance in memory from a lane's pixels to the next lane's in the same steps: a row down
    // and two columns back.
    const auto slant = static_cast<std::ptrdiff_t>(frame.current.stride - kWavefrontLag);
    for (std::int32_t step = 0; step < columns + kReach; step += 16, from += 16 * kWavefrontLanes) {
      const std::array<__m512i, 16> turned = TurnPixels(from);
      const auto store = [&](std::size_t lane, __m128i pixels) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(
                             top + step + static_cast<std::ptrdiff_t>(lane) * slant), pixels);
      };
      const auto store_wanted = [&](std::size_t lane, __m128i pixels) {
        const std::int32_t column = step - static_cast<std::int32_t>(kWavefrontLag * lane);
        if (lane < rows && column > -16 && column < columns) store(lane, pixels);
      };
      const auto store_all = [&](const auto& store_one) {
#pragma GCC unroll 16
        for (std::size_t i = 0; i < 16; ++i) {
          store_one(i, _mm512_castsi512_si128(turned[i]));
          store_one(i + 16, _mm512_extracti32x4_epi32(turned[i], 1));
          store_one(i + 32, _mm512_extracti32x4_epi32(turned[i], 2));
          store_one(i + 48, _mm512_extracti32x4_epi32(turned[i], 3));
        }
      };
      // Lanes that begin or end within the steps write into the frame's margins.
      // Within these bounds no lane's store would be refused by store_wanted.
      if (rows == kWavefrontLanes && step > kReach - 16 && step < columns) {
        store_all(store);
      } else {
        store_all(store_wanted);
      }
    }
  }
}

}  // namespace

const WavefrontOrderKernel<std::uint8_t> kWavefrontAvx512 = {
    .sum_temporal = SumTemporal, .run_lanes = RunLanes, .to_raster = ToRaster};

}  // namespace forebay::compress
