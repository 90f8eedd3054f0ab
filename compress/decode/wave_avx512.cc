// All 64 lanes of a step in one register of bytes. Frames lie in "wave order" here: what lane j
// does in step s is byte 64 s + j, so a neighbour is a register of an earlier step, shifted by a
// lane for each row that it is higher. Raster rows are turned into wave order and back in tiles.
#include "compress/decode/wave_avx512.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "compress/decode/wave_frame.h"
#include "compress/format/padded_frame.h"

namespace forebay::compress {
namespace {

constexpr std::uint32_t kTemporalMargin = 32;  // columns on both sides of a row of sums

// Everything that decoding a chunk holds besides its plan.
struct WaveMemory {
  std::array<PaddedFrame<std::uint8_t>, 3> ring;
  std::span<std::int16_t> sums;           // raster, a band's rows of `sums_stride`
  std::size_t sums_stride = 0;
  std::span<std::int16_t> wave_sums;      // [steps][64]
  std::span<std::uint8_t> pixels;         // [period + steps][64]
  std::array<std::span<std::uint8_t>, 2> sizes;  // [period + steps + 1][64]
  std::span<std::uint64_t> fresh;         // [steps]: filters that enter lanes 0, b, 2b ...

  void Take(const PlaneShape& shape, ScratchArena& arena) {
    const std::size_t samples = PaddedFrame<std::uint8_t>::Samples(shape.rows, shape.columns);
    for (auto& frame : ring) {
      const auto memory = arena.Take<std::uint8_t>(samples + 64);
      if (!memory.empty()) {
        frame = PaddedFrame<std::uint8_t>::Over(memory.data(), shape.rows, shape.columns);
      }
    }
    const std::size_t steps = WaveSteps(shape.rows, shape.columns);
    const std::size_t with_above = steps + WavePeriod(shape.columns);
    sums_stride = (shape.columns + 2 * std::size_t{kTemporalMargin} + 31) / 32 * 32;
    sums = arena.Take<std::int16_t>(sums_stride * (kWaveLanes + std::size_t{1}) +
                                     kTemporalMargin);
    wave_sums = arena.Take<std::int16_t>((steps + 8) * kWaveLanes);
    pixels = arena.Take<std::uint8_t>((with_above + 16) * kWaveLanes);
    for (auto& plane : sizes) plane = arena.Take<std::uint8_t>((with_above + 1) * kWaveLanes);
    fresh = arena.Take<std::uint64_t>(steps);
  }
};

// What a plane in wave order held in the steps before, a lane's upper neighbours included: "east"
// is what lies north-east of each lane, of which older steps are north, north-west and so on.
struct LaneHistory {
  __m512i own1, own2;                 // steps s - 1 and s - 2
  __m512i east1, east2, east3;        // a row higher, of steps s - 1, s - 2, s - 3
  __m512i upper1, upper2;             // two rows higher, of steps s - 1 and s - 2

  void Advance(__m512i own, __m512i east, __m512i upper) {
    own2 = own1;
    own1 = own;
    east3 = east2;
    east2 = east1;
    east1 = east;
    upper2 = upper1;
    upper1 = upper;
  }
};

// Which lanes are where in their rows, step by step: what lane j is at, lane j - 1 was at two
// steps before.
class LaneMasks {
 public:
  LaneMasks(std::uint32_t rows, std::uint32_t columns)
      : columns_(columns), period_(WavePeriod(columns)), bands_(WaveBands(rows)) {
    const std::uint32_t last_rows = rows - (bands_ - 1) * kWaveLanes;
    last_rows_ = last_rows == kWaveLanes ? ~std::uint64_t{0} : (std::uint64_t{1} << last_rows) - 1;
  }

  struct Step {
    std::uint64_t active = 0, first = 0, second = 0, last = 0, last_band = 0;
  };

  // Call once a step, from step 0 on.
  const Step& Next() {
    Step& step = parity_[step_ & 1];
    const bool in_frame = band_ < bands_;
    step.last_band = step.last_band << 1 | static_cast<std::uint64_t>(band_ + 1 >= bands_);
    raw_[step_ & 1] = raw_[step_ & 1] << 1 |
                      static_cast<std::uint64_t>(in_frame && column_ < columns_);
    step.first = step.first << 1 | static_cast<std::uint64_t>(column_ == 0);
    step.second = step.second << 1 | static_cast<std::uint64_t>(column_ == 1);
    step.last = step.last << 1 | static_cast<std::uint64_t>(column_ == columns_ - 1);
    step.active = raw_[step_ & 1] & ~(step.last_band & ~last_rows_);
    ++step_;
    if (++column_ == period_) {
      column_ = 0;
      ++band_;
    }
    return step;
  }

 private:
  std::uint32_t columns_, period_, bands_;
  std::uint64_t last_rows_;
  std::uint32_t step_ = 0, column_ = 0, band_ = 0;
  std::array<Step, 2> parity_;
  std::array<std::uint64_t, 2> raw_{};
};

// One frame's pass over all steps.
class FramePass {
 public:
  FramePass(const PlaneShape& shape, const WavePlan& plan, bool inter, WaveMemory& memory,
            std::uint8_t* sizes, const std::uint8_t* previous_sizes)
      : shape_(shape),
        inter_(inter),
        parameters_(plan.parameters),
        group_(inter ? plan.parameters.inter : plan.parameters.intra),
        table_(inter ? plan.inter_table.data() : plan.intra_table.data()),
        memory_(memory),
        period_(WavePeriod(shape.columns)),
        sizes_(sizes),
        previous_sizes_(previous_sizes) {
    PrepareFilters();
    PrepareContexts();
  }

  void Run(WaveStream& stream) {
    if (inter_) {
      RunAs<true>(stream);
    } else {
      RunAs<false>(stream);
    }
  }

 private:
  void PrepareFilters() {
    middle_ = _mm512_set1_epi16(static_cast<std::int16_t>(1 << (shape_.bits - 1)));
    alignas(64) std::array<std::int16_t, 32> line{};
    for (std::size_t tap = 0; tap < kIntraTapCount; ++tap) {
      for (std::uint32_t i = 0; i < kWaveFiltersMax; ++i) line[i] = group_.filters[i].weights[tap];
      weights_[tap] = _mm512_load_si512(line.data());
    }
    alignas(64) std::array<std::uint8_t, 64> clamped{};
    for (std::size_t i = 0; i < clamped.size(); ++i) {
      clamped[i] = group_.filters[i % kWaveFiltersMax].clamped ? 1 : 0;
    }
    clamped_ = _mm512_load_si512(clamped.data());
    alignas(64) std::array<std::uint8_t, 64> index{};
    const std::uint32_t block = 1U << parameters_.block_log2;
    entering_ = 0;
    for (std::uint32_t lane = 0; lane < kWaveLanes; lane += block) {
      index[lane] = static_cast<std::uint8_t>(lane / block);
      entering_ |= std::uint64_t{1} << lane;
    }
    fresh_index_ = _mm512_load_si512(index.data());
    for (std::size_t lane = 0; lane < index.size(); ++lane) {
      index[lane] = static_cast<std::uint8_t>(lane > 0 ? lane - 1 : 0);
    }
    shift_index_ = _mm512_load_si512(index.data());
  }

  void PrepareContexts() {
    alignas(64) std::array<std::uint8_t, 256> contexts{};
    for (std::size_t energy = 0; energy < contexts.size(); ++energy) {
      std::uint8_t context = 0;
      while (context < group_.thresholds.size() && energy >= group_.thresholds[context]) ++context;
      contexts[energy] = context;
    }
    for (std::size_t i = 0; i < 4; ++i) contexts_[i] = _mm512_load_si512(&contexts[i * 64]);
  }

  // Lane j takes what lane j - 1 has, lane 0 takes `first`.
  __m512i ShiftLanes(__m512i lanes, std::uint8_t first) const {
    return _mm512_mask_permutexvar_epi8(_mm512_set1_epi8(static_cast<char>(first)),
                                        ~std::uint64_t{1}, shift_index_, lanes);
  }

  __m512i Contexts(__m512i energy) const {
    const __m512i low = _mm512_permutex2var_epi8(contexts_[0], energy, contexts_[1]);
    const __m512i high = _mm512_permutex2var_epi8(contexts_[2], energy, contexts_[3]);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(energy), high);
  }

  template <bool kInter>
  [[gnu::always_inline]] inline __m512i Predict(std::uint32_t step, const LaneMasks::Step& at,
                                                __m512i choice, const LaneHistory& past,
                                                __m512i east, __m512i upper) const;
  template <bool kInter>
  [[gnu::always_inline]] inline __m512i Energy(std::uint32_t step, const LaneMasks::Step& at,
                                               const LaneHistory& past, __m512i east) const;
  template <bool kInter>
  void RunAs(WaveStream& stream);

  const PlaneShape& shape_;
  const bool inter_;
  const WaveParameters& parameters_;
  const WaveGroup& group_;
  const WaveEntry* table_;
  WaveMemory& memory_;
  const std::uint32_t period_;
  std::uint8_t* sizes_;
  const std::uint8_t* previous_sizes_;
  std::array<__m512i, kIntraTapCount> weights_;
  std::array<__m512i, 4> contexts_;
  __m512i middle_, clamped_, fresh_index_, shift_index_;
  std::uint64_t entering_ = 0;
};

// The rANS states of 64 lanes and the words that refill them.
class LaneDecoder {
 public:
  LaneDecoder(WaveStream& stream, const WaveEntry* table) : stream_(stream), table_(table) {
    for (std::size_t i = 0; i < 4; ++i) {
      states_[i] = _mm512_loadu_si512(stream.states.data() + 16 * i);
    }
    next_ = stream.next;
  }
  ~LaneDecoder() {
    for (std::size_t i = 0; i < 4; ++i) {
      _mm512_storeu_si512(stream_.states.data() + 16 * i, states_[i]);
    }
    stream_.next = next_;
  }
  LaneDecoder(const LaneDecoder&) = delete;
  LaneDecoder& operator=(const LaneDecoder&) = delete;

  // Symbols of the lanes in `mask`, zero elsewhere. No more than 128 bytes are read.
  __m512i Decode(std::uint64_t mask, __m512i contexts) {
    const __m512i slots = _mm512_set1_epi32(kWaveProbabilityScale - 1);
    const __m512i state_min = _mm512_set1_epi32(static_cast<int>(kWaveStateMin));
    std::array<__m128i, 4> symbols;
    const std::array<__m128i, 4> parts = {
        _mm512_castsi512_si128(contexts), _mm512_extracti32x4_epi32(contexts, 1),
        _mm512_extracti32x4_epi32(contexts, 2), _mm512_extracti32x4_epi32(contexts, 3)};
    std::array<__mmask16, 4> refill;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto lanes = static_cast<__mmask16>(mask >> (16 * i));
      const __m512i state = states_[i];
      const __m512i index = _mm512_or_si512(
          _mm512_slli_epi32(_mm512_cvtepu8_epi32(parts[i]), kWaveProbabilityBits),
          _mm512_and_si512(state, slots));
      const __m512i entry =
          _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), lanes, index, table_, 4);
      symbols[i] = _mm512_cvtepi32_epi8(entry);
      const __m512i frequency =
          _mm512_and_si512(_mm512_srli_epi32(entry, 8), _mm512_set1_epi32(0xFFF));
      const __m512i moved = _mm512_add_epi32(
          _mm512_mullo_epi32(frequency, _mm512_srli_epi32(state, kWaveProbabilityBits)),
          _mm512_srli_epi32(entry, 20));
      states_[i] = _mm512_mask_mov_epi32(state, lanes, moved);
      refill[i] = _mm512_mask_cmplt_epu32_mask(lanes, moved, state_min);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      const __m512i words = _mm512_cvtepu16_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(next_)));
      states_[i] = _mm512_mask_or_epi32(
          states_[i], refill[i], _mm512_slli_epi32(states_[i], 16),
          _mm512_maskz_expand_epi32(refill[i], words));
      next_ += 2 * __builtin_popcount(refill[i]);
    }
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(symbols[0]), symbols[1], 1);
    const __m256i high =
        _mm256_inserti128_si256(_mm256_castsi128_si256(symbols[2]), symbols[3], 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }

  // As Decode, where fewer than 128 bytes may be left: one lane after the other.
  __m512i DecodeAtEnd(std::uint64_t mask, __m512i contexts) {
    alignas(64) std::array<std::uint32_t, kWaveLanes> states;
    alignas(64) std::array<std::uint8_t, kWaveLanes> context;
    alignas(64) std::array<std::uint8_t, kWaveLanes> symbols{};
    for (std::size_t i = 0; i < 4; ++i) _mm512_store_si512(&states[16 * i], states_[i]);
    _mm512_store_si512(context.data(), contexts);
    stream_.next = next_;
    for (std::uint32_t lane = 0; lane < kWaveLanes; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      std::uint32_t& state = states[lane];
      const WaveEntry entry = table_[context[lane] * kWaveProbabilityScale +
                                     (state & (kWaveProbabilityScale - 1))];
      state = WaveFrequency(entry) * (state >> kWaveProbabilityBits) + WaveBias(entry);
      if (state < kWaveStateMin) state = state << 16 | stream_.NextWord();
      symbols[lane] = static_cast<std::uint8_t>(WaveSymbol(entry));
    }
    next_ = stream_.next;
    for (std::size_t i = 0; i < 4; ++i) states_[i] = _mm512_load_si512(&states[16 * i]);
    return _mm512_load_si512(symbols.data());
  }

  bool NearEnd() const { return stream_.end - next_ < 128; }

 private:
  WaveStream& stream_;
  const WaveEntry* table_;
  std::array<__m512i, 4> states_;
  const std::byte* next_;
};

// The sum of the current frame's taps and `sum`, as predictions before rounding; both halves.
class FilterSum {
 public:
  FilterSum(__m512i low, __m512i high, __m512i choice, __m512i middle)
      : low_(low),
        high_(high),
        choice_low_(_mm512_cvtepu8_epi16(_mm512_castsi512_si256(choice))),
        choice_high_(_mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(choice, 1))),
        middle_(middle) {}

  void Add(__m512i pixels, __m512i weights) {
    const __m512i low =
        _mm512_sub_epi16(_mm512_cvtepu8_epi16(_mm512_castsi512_si256(pixels)), middle_);
    const __m512i high =
        _mm512_sub_epi16(_mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(pixels, 1)), middle_);
    low_ = _mm512_add_epi16(
        low_, _mm512_mullo_epi16(low, _mm512_permutexvar_epi16(choice_low_, weights)));
    high_ = _mm512_add_epi16(
        high_, _mm512_mullo_epi16(high, _mm512_permutexvar_epi16(choice_high_, weights)));
  }

  // Values of the samples' range.
  __m512i Round() const {
    const __m512i highest = _mm512_sub_epi16(middle_, _mm512_set1_epi16(1));
    const __m512i lowest = _mm512_sub_epi16(_mm512_setzero_si512(), middle_);
    const auto bounded = [&](__m512i sum) {
      const __m512i rounded = _mm512_srai_epi16(
          _mm512_add_epi16(sum, _mm512_set1_epi16(1 << (kWaveWeightBits - 1))), kWaveWeightBits);
      const __m512i value = _mm512_min_epi16(_mm512_max_epi16(rounded, lowest), highest);
      return _mm512_cvtepi16_epi8(_mm512_add_epi16(value, middle_));
    };
    return _mm512_inserti64x4(_mm512_castsi256_si512(bounded(low_)), bounded(high_), 1);
  }

 private:
  __m512i low_, high_, choice_low_, choice_high_, middle_;
};

template <bool kInter>
__m512i FramePass::Predict(std::uint32_t step, const LaneMasks::Step& at, __m512i choice,
                           const LaneHistory& past, __m512i east, __m512i upper) const {
  const __m512i north = past.east1;
  const __m512i north2 = past.upper1;
  const __m512i west = _mm512_mask_mov_epi8(past.own1, at.first, north);
  const __m512i west2 = _mm512_mask_mov_epi8(past.own2, at.first | at.second, west);
  const __m512i north_west = _mm512_mask_mov_epi8(past.east2, at.first, north);
  const __m512i north_west2 =
      _mm512_mask_mov_epi8(past.east3, at.first | at.second, north_west);
  __m512i low = _mm512_setzero_si512();
  __m512i high = _mm512_setzero_si512();
  if constexpr (kInter) {
    const std::int16_t* const sums = memory_.wave_sums.data() + std::size_t{step} * kWaveLanes;
    low = _mm512_load_si512(sums);
    high = _mm512_load_si512(sums + 32);
  }
  // What was known longest comes first: west ends the chain from one step to the next.
  FilterSum sum(low, high, choice, middle_);
  sum.Add(_mm512_mask_mov_epi8(upper, at.last, north2), weights_[8]);
  sum.Add(_mm512_mask_mov_epi8(past.upper2, at.first, north2), weights_[7]);
  sum.Add(north_west2, weights_[6]);
  sum.Add(north2, weights_[5]);
  sum.Add(north_west, weights_[3]);
  sum.Add(north, weights_[2]);
  sum.Add(_mm512_mask_mov_epi8(east, at.last, north), weights_[4]);
  sum.Add(west2, weights_[1]);
  sum.Add(west, weights_[0]);
  const __m512i value = sum.Round();
  const __mmask64 clamped =
      _mm512_test_epi8_mask(_mm512_permutexvar_epi8(choice, clamped_), _mm512_set1_epi8(1));
  const __m512i raised =
      _mm512_mask_max_epu8(value, clamped, value, _mm512_min_epu8(west, north));
  return _mm512_mask_min_epu8(raised, clamped, raised, _mm512_max_epu8(west, north));
}

template <bool kInter>
__m512i FramePass::Energy(std::uint32_t step, const LaneMasks::Step& at, const LaneHistory& past,
                          __m512i east) const {
  __m512i energy = _mm512_maskz_mov_epi8(~(at.first | at.second), past.own2);
  const auto add = [&](__m512i sizes) { energy = _mm512_adds_epu8(energy, sizes); };
  if constexpr (kInter) {
    const std::uint8_t* const previous =
        previous_sizes_ + (std::size_t{period_} + step) * kWaveLanes;
    const __m512i here = _mm512_load_si512(previous);
    add(_mm512_adds_epu8(here, here));
    add(_mm512_maskz_loadu_epi8(~at.first, previous - kWaveLanes));
    add(_mm512_maskz_loadu_epi8(~at.last, previous + kWaveLanes));
  }
  add(_mm512_adds_epu8(past.east1, past.east1));
  add(_mm512_maskz_mov_epi8(~at.first, past.east2));
  add(past.upper1);
  add(_mm512_maskz_mov_epi8(~at.last, east));
  const __m512i west = _mm512_maskz_mov_epi8(~at.first, past.own1);
  add(_mm512_adds_epu8(west, west));
  return energy;
}

template <bool kInter>
void FramePass::RunAs(WaveStream& stream) {
  const __m512i zero = _mm512_setzero_si512();
  const __m512i mask8 = _mm512_set1_epi8(static_cast<char>((1 << shape_.bits) - 1));
  const std::uint32_t shift = std::min<std::uint32_t>(parameters_.magnitude_shift, 8);
  const __m128i size_shift = _mm_cvtsi32_si128(static_cast<int>(shift));
  const __m512i size_mask = _mm512_set1_epi8(static_cast<char>(0xFF >> shift));
  std::uint8_t* const pixels = memory_.pixels.data();
  // Lane 0's upper neighbours were lanes 63 and 62, a period and less than 128 steps ago; both
  // planes begin a period before step 0.
  const auto first_east = [](const std::uint8_t* plane) { return plane + 127 * kWaveLanes + 63; };
  const auto first_upper = [](const std::uint8_t* plane) { return plane + 125 * kWaveLanes + 62; };
  LaneMasks masks(shape_.rows, shape_.columns);
  LaneDecoder decoder(stream, table_);
  std::array<__m512i, 2> filters = {zero, zero};
  LaneHistory pixel{zero, zero, zero, zero, zero, zero, zero};
  LaneHistory size = pixel;
  pixel.east1 = _mm512_set1_epi8(static_cast<char>(*(first_east(pixels) - kWaveLanes)));
  pixel.upper1 = _mm512_set1_epi8(static_cast<char>(*(first_upper(pixels) - kWaveLanes)));
  const std::uint32_t steps = WaveSteps(shape_.rows, shape_.columns);
  for (std::uint32_t step = 0; step < steps; ++step) {
    const LaneMasks::Step& at = masks.Next();
    const std::size_t before = std::size_t{step} * kWaveLanes;
    const std::size_t now = before + std::size_t{period_} * kWaveLanes;
    // Lanes take their upper neighbours' filters, the first lanes of block rows new ones.
    const __m512i fresh = _mm512_set1_epi64(static_cast<long long>(memory_.fresh[step]));
    const __m512i choice =
        _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(shift_index_, filters[step & 1]),
                                     entering_, fresh_index_, fresh);
    filters[step & 1] = choice;
    const __m512i east = ShiftLanes(pixel.own1, first_east(pixels)[before]);
    const __m512i upper = ShiftLanes(pixel.east2, first_upper(pixels)[before]);
    const __m512i size_east = ShiftLanes(size.own1, first_east(sizes_)[before]);
    const __m512i size_upper = ShiftLanes(size.east2, first_upper(sizes_)[before]);
    const __m512i value = Predict<kInter>(step, at, choice, pixel, east, upper);
    const __m512i contexts = Contexts(Energy<kInter>(step, at, size, size_east));
    const std::uint64_t coded = at.active & ~_mm512_movepi8_mask(choice);
    const __m512i symbol = decoder.NearEnd() ? decoder.DecodeAtEnd(coded, contexts)
                                             : decoder.Decode(coded, contexts);
    const __m512i decoded = _mm512_and_si512(_mm512_add_epi8(value, symbol), mask8);
    const __m512i plain_size =
        _mm512_min_epu8(symbol, _mm512_and_si512(_mm512_sub_epi8(zero, symbol), mask8));
    const __m512i own_size =
        _mm512_and_si512(_mm512_srl_epi16(plain_size, size_shift), size_mask);
    // Lanes 62 and 63 hold the rows above until they begin.
    _mm512_mask_storeu_epi8(pixels + now, at.active, decoded);
    _mm512_store_si512(sizes_ + now, own_size);
    pixel.Advance(decoded, east, upper);
    size.Advance(own_size, size_east, size_upper);
  }
}

// Puts the rows above the frame where lanes 63 and 62 would have left them.
void SetRowsAbove(const PlaneShape& shape, const std::uint8_t* above, std::uint8_t top,
                  std::span<std::uint8_t> pixels) {
  // Row -1's column c belongs to step c + 126 - period of lane 63; row -2's to c + 124 - period
  // of lane 62. `pixels` begins at step -period.
  for (std::uint32_t column = 0; column < shape.columns; ++column) {
    const std::uint8_t value = above != nullptr ? above[column] : top;
    pixels[(std::size_t{column} + 126) * kWaveLanes + 63] = value;
    pixels[(std::size_t{column} + 124) * kWaveLanes + 62] = value;
  }
}

void SetFresh(const PlaneShape& shape, const WavePlan& plan, std::span<const WaveBlock> blocks,
              std::span<std::uint64_t> fresh) {
  const std::uint32_t log2 = plan.parameters.block_log2;
  const std::uint32_t size = 1U << log2;
  const std::uint32_t period = WavePeriod(shape.columns);
  const std::uint32_t bands = WaveBands(shape.rows);
  std::ranges::fill(fresh, 0);
  auto* const bytes = reinterpret_cast<std::uint8_t*>(fresh.data());
  for (std::uint32_t lane = 0; lane < kWaveLanes; lane += size) {
    for (std::uint32_t band = 0; band < bands; ++band) {
      const std::uint32_t row = band * kWaveLanes + lane;
      if (row >= shape.rows) continue;
      const WaveBlock* line = &blocks[std::size_t{row >> log2} * plan.block_columns];
      std::uint8_t* to =
          bytes + (std::size_t{band} * period + lane * kWaveLag) * 8 + (lane >> log2);
      for (std::uint32_t column = 0; column < shape.columns; ++column, to += 8) {
        *to = line[column >> log2].filter;
      }
    }
  }
}

// The temporal taps of a run of blocks that made the same choice, as offsets from a pixel.
struct TapList {
  std::array<const std::uint8_t*, kTemporalTapCount> from;  // at (0, 0) of the frame
  std::array<__m512i, kTemporalTapCount> factors;
  std::size_t count = 0;
  __m512i bias;

  TapList(const WaveFilter& filter, const WaveBlock& block,
          const PaddedFrame<std::uint8_t>& previous, const PaddedFrame<std::uint8_t>* earlier,
          std::int32_t middle) {
    const std::int16_t* weight = filter.weights.data() + kIntraTapCount;
    std::int32_t total = 0;
    const auto take = [&](const PaddedFrame<std::uint8_t>& frame, std::int32_t y,
                          std::int32_t x) {
      if (*weight != 0) {
        from[count] = frame.Row(y) + x;
        factors[count++] = _mm512_set1_epi16(*weight);
        total += *weight;
      }
      ++weight;
    };
    const std::int32_t y = block.motion_row;
    const std::int32_t x = block.motion_column;
    for (const TapOffset& tap : kPreviousTaps) take(previous, y + tap.row, x + tap.column);
    for (const TapOffset& tap : kEarlierTaps) {
      if (earlier != nullptr) {
        take(*earlier, 2 * y + tap.row, 2 * x + tap.column);
      } else {
        take(previous, y + tap.row, x + tap.column);
      }
    }
    bias = _mm512_set1_epi16(static_cast<std::int16_t>(-total * middle));
  }

  // 32 pixels of one row.
  __m512i Row(std::size_t offset) const {
    __m512i sum = bias;
    for (std::size_t tap = 0; tap < count; ++tap) {
      const __m512i values = _mm512_cvtepu8_epi16(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from[tap] + offset)));
      sum = _mm512_add_epi16(sum, _mm512_mullo_epi16(values, factors[tap]));
    }
    return sum;
  }

  // 16 pixels of two rows.
  __m512i TwoRows(std::size_t offset, std::size_t stride) const {
    __m512i sum = bias;
    for (std::size_t tap = 0; tap < count; ++tap) {
      const std::uint8_t* const at = from[tap] + offset;
      const __m256i both = _mm256_inserti128_si256(
          _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))),
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + stride)), 1);
      sum = _mm512_add_epi16(sum, _mm512_mullo_epi16(_mm512_cvtepu8_epi16(both), factors[tap]));
    }
    return sum;
  }
};

// Sums of the temporal taps of a band of 64 rows, in raster order. A run of blocks writes up to
// 31 sums beyond its end, which the next one overwrites; an odd last row is followed by one that
// nobody reads.
void PredictTemporal(const PlaneShape& shape, const WavePlan& plan,
                     std::span<const WaveBlock> blocks, const PaddedFrame<std::uint8_t>& previous,
                     const PaddedFrame<std::uint8_t>* earlier, std::uint32_t band,
                     WaveMemory& memory) {
  const std::uint32_t log2 = plan.parameters.block_log2;
  const std::int32_t middle = 1 << (shape.bits - 1);
  const std::uint32_t first_row = band * kWaveLanes;
  const std::uint32_t first_block = first_row >> log2;
  const std::uint32_t end_block =
      std::min(first_block + (kWaveLanes >> log2), plan.block_rows);
  for (std::uint32_t block_row = first_block; block_row < end_block; ++block_row) {
    const WaveBlock* const line = &blocks[std::size_t{block_row} * plan.block_columns];
    const std::uint32_t top = block_row << log2;
    const std::uint32_t bottom = std::min(top + (1U << log2), shape.rows);
    for (std::uint32_t begin = 0; begin < plan.block_columns;) {
      const WaveBlock& block = line[begin];
      std::uint32_t end = begin + 1;
      while (end < plan.block_columns && (line[end].filter & 0x0F) == (block.filter & 0x0F) &&
             line[end].motion_row == block.motion_row &&
             line[end].motion_column == block.motion_column) {
        ++end;
      }
      const TapList taps(plan.parameters.inter.filters[block.filter & 0x0F], block, previous,
                         earlier, middle);
      const std::uint32_t left = begin << log2;
      const std::uint32_t right = std::min(end << log2, shape.columns);
      std::int16_t* const sums = memory.sums.data() + kTemporalMargin;
      if (right - left <= 16) {
        for (std::uint32_t row = top; row < bottom; row += 2) {
          const __m512i two = taps.TwoRows(row * previous.stride + left, previous.stride);
          std::int16_t* const to = sums + (row - first_row) * memory.sums_stride + left;
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(two));
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + memory.sums_stride),
                              _mm512_extracti64x4_epi64(two, 1));
        }
      } else {
        for (std::uint32_t row = top; row < bottom; ++row) {
          for (std::uint32_t column = left; column < right; column += 32) {
            _mm512_storeu_si512(sums + (row - first_row) * memory.sums_stride + column,
                                taps.Row(row * previous.stride + column));
          }
        }
      }
      begin = end;
    }
  }
}

// A band's raster sums into wave order, 8 steps of 32 lanes at a time.
void SumsToWave(const PlaneShape& shape, std::uint32_t band, WaveMemory& memory) {
  const std::uint32_t period = WavePeriod(shape.columns);
  const std::uint32_t last_row = shape.rows - band * kWaveLanes - 1;
  const auto columns = static_cast<std::int32_t>(shape.columns);
  const std::uint32_t span = shape.columns + kWaveLag * (kWaveLanes - 1);
  for (std::uint32_t half = 0; half < kWaveLanes; half += 32) {
    std::array<const std::int16_t*, 32> rows;
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      const std::uint32_t row = std::min(half + lane, last_row);
      rows[lane] = memory.sums.data() + row * memory.sums_stride + kTemporalMargin;
    }
    const std::uint32_t lag = kWaveLag * half;
    // Of the lanes, those whose row's columns this step is within; the others are at that time
    // in the band before or behind.
    const auto within = [&](std::uint32_t step) {
      const auto first = [](std::uint32_t lanes) {
        return lanes >= 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << lanes) - 1;
      };
      const std::uint32_t begun = first((step - lag) / kWaveLag + 1);
      return step - lag < shape.columns
                 ? begun
                 : begun & ~first((step - lag - shape.columns) / kWaveLag + 1);
    };
    for (std::uint32_t step = lag; step < std::min(span, lag + shape.columns + 62); step += 8) {
      const auto load = [&](std::uint32_t lane) {
        const std::int32_t column =
            std::clamp(static_cast<std::int32_t>(step - lag) -
                           static_cast<std::int32_t>(kWaveLag * lane), -8, columns);
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[lane] + column));
      };
      std::array<__m512i, 8> a;
      for (std::uint32_t i = 0; i < 8; ++i) {
        __m512i line = _mm512_castsi128_si512(load(i));
        line = _mm512_inserti32x4(line, load(i + 8), 1);
        line = _mm512_inserti32x4(line, load(i + 16), 2);
        a[i] = _mm512_inserti32x4(line, load(i + 24), 3);
      }
      std::array<__m512i, 8> b;
      for (std::size_t i = 0; i < 4; ++i) {
        b[2 * i] = _mm512_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm512_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
      }
      for (std::size_t i = 0; i < 8; i += 4) {
        a[i] = _mm512_unpacklo_epi32(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi32(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi32(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi32(b[i + 1], b[i + 3]);
      }
      std::int16_t* const to =
          memory.wave_sums.data() + (std::size_t{band} * period + step) * kWaveLanes + half;
      const auto wave_end = static_cast<std::uint32_t>(memory.wave_sums.size() / kWaveLanes);
      const std::uint32_t count = std::min(8U, wave_end - (band * period + step));
      for (std::uint32_t i = 0; i < count; ++i) {
        const std::size_t pair = i / 2;
        const __m512i line = i % 2 == 0 ? _mm512_unpacklo_epi64(a[pair], a[pair + 4])
                                        : _mm512_unpackhi_epi64(a[pair], a[pair + 4]);
        _mm512_mask_storeu_epi16(to + i * kWaveLanes, within(step + i), line);
      }
    }
  }
}

// Pixels in wave order into raster rows, 16 steps of 64 lanes at a time. Up to 15 pixels on
// either side of a row lie in the frame's margin, which Extend() sets afterwards.
void PixelsToRaster(const PlaneShape& shape, const WaveMemory& memory,
                    const PaddedFrame<std::uint8_t>& frame) {
  const std::uint32_t period = WavePeriod(shape.columns);
  const std::uint32_t bands = WaveBands(shape.rows);
  const auto columns = static_cast<std::int32_t>(shape.columns);
  const std::uint8_t* const wave = memory.pixels.data() + std::size_t{period} * kWaveLanes;
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
              frame.Row(static_cast<std::int32_t>(band * kWaveLanes + lane));
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
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi");
}

void CountFramesAvx512(const PlaneShape& shape, ScratchArena& arena) {
  WaveMemory().Take(shape, arena);
}

Status DecodeFramesAvx512(const PlaneShape& shape, const WavePlan& plan,
                          std::uint32_t frames_wanted, std::span<std::byte> samples,
                          ScratchArena& arena) {
  WaveMemory memory;
  memory.Take(shape, arena);
  const std::size_t above_bytes = std::size_t{WavePeriod(shape.columns)} * kWaveLanes;
  for (auto& plane : memory.sizes) {
    std::fill_n(plane.begin(), above_bytes, std::uint8_t{0});
    std::fill_n(plane.end() - kWaveLanes, kWaveLanes, std::uint8_t{0});
  }
  WaveStream stream{.states = plan.states,
                    .next = plan.words.data(),
                    .end = plan.words.data() + plan.words.size()};
  const std::size_t frame_blocks = std::size_t{plan.block_rows} * plan.block_columns;
  for (std::uint32_t t = 0; t < frames_wanted; ++t) {
    const auto& current = memory.ring[t % 3];
    const auto* previous = t > 0 ? &memory.ring[(t - 1) % 3] : nullptr;
    const std::span<const WaveBlock> blocks = plan.blocks.subspan(t * frame_blocks, frame_blocks);
    SetRowsAbove(shape, previous != nullptr ? previous->Row(0) : nullptr,
                 static_cast<std::uint8_t>(plan.parameters.top), memory.pixels);
    SetFresh(shape, plan, blocks, memory.fresh);
    if (previous != nullptr) {
      const auto* earlier = t > 1 ? &memory.ring[(t + 1) % 3] : nullptr;
      for (std::uint32_t band = 0; band < WaveBands(shape.rows); ++band) {
        PredictTemporal(shape, plan, blocks, *previous, earlier, band, memory);
        SumsToWave(shape, band, memory);
      }
    }
    FramePass(shape, plan, t > 0, memory, memory.sizes[t % 2].data(),
              memory.sizes[(t + 1) % 2].data())
        .Run(stream);
    PixelsToRaster(shape, memory, current);
    std::byte* out = samples.data() + t * shape.frame_samples();
    for (std::uint32_t row = 0; row < shape.rows; ++row) {
      std::memcpy(out + std::size_t{row} * shape.columns,
                  current.Row(static_cast<std::int32_t>(row)), shape.columns);
    }
    if (t + 1 < frames_wanted) current.Extend();
  }
  if (stream.overrun || (frames_wanted == shape.frames && !stream.AtEnd())) {
    return Error(ErrorCode::kDataLoss, "wave-coded planes: the words do not end with the frames");
  }
  return {};
}

}  // namespace forebay::compress
