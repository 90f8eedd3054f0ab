#include <algorithm>

#include "compress/decode/wave_frame.h"
#include "compress/format/wave_taps.h"

namespace forebay::compress {
namespace {

// The residual, modulo 2^bits, that a symbol and its plain bits mean.
std::uint32_t ResidualOf(std::uint32_t symbol, std::uint32_t bits) {
  if (bits <= 8) return symbol;
  const std::uint32_t half = symbol >> 1;
  return ((symbol & 1) != 0 ? ~half : half) & ((1U << bits) - 1);
}

// What a pixel is coded with: its prediction, context and sign.
struct Expectation {
  std::int32_t value = 0;
  std::uint32_t energy = 0;
  bool mirrored = false;
};

// As the chunk's predictor corrects a filter.
template <typename T>
Expectation Correct(const WaveFrameJob<T>& job,
                    const std::array<std::int32_t, kIntraTapCount>& taps, std::int32_t value,
                    std::uint32_t row, std::uint32_t column) {
  PredictorBatch batch;
  SetLearnedInputs(job.learned, taps, value, static_cast<std::int32_t>(row),
                   static_cast<std::int32_t>(column), kWaveLanes, batch.inputs[0].data());
  RunPredictorScalar(*job.net, batch, 1);
  const std::int32_t corrected = value + static_cast<std::int8_t>(batch.corrections[0]);
  return {.value = std::clamp(corrected, 0, (1 << job.bits) - 1),
          .energy = batch.energies[0],
          .mirrored = batch.mirrored[0] != 0};
}

}  // namespace

std::uint32_t DecodeWaveSymbol(std::span<const WaveEntry> table, std::uint32_t bits,
                               std::uint32_t& state, WaveStream& stream) {
  const WaveEntry entry = table[state & (kWaveProbabilityScale - 1)];
  state = WaveFrequency(entry) * (state >> kWaveProbabilityBits) + WaveBias(entry);
  if (state < kWaveStateMin) state = state << 16 | stream.NextWord();
  const std::uint32_t symbol = WaveSymbol(entry);
  if (bits <= 8 || symbol < kWaveDirectTokens) return symbol;
  // Four tokens to an octave: two bits below the leading one, then the rest as it is.
  const std::uint32_t octave = (symbol - kWaveDirectTokens) / 4 + 4;
  const std::uint32_t plain = octave - 2;
  const std::uint32_t low = state & ((1U << plain) - 1);
  state >>= plain;
  if (state < kWaveStateMin) state = state << 16 | stream.NextWord();
  return (4U | (symbol & 3)) << plain | low;
}

bool WaveStream::AtEnd() const {
  return !overrun && next == end &&
         std::ranges::all_of(states, [](std::uint32_t state) { return state == kWaveStateMin; });
}

template <typename T>
void DecodeWaveFrame(const WaveFrameJob<T>& job, const std::uint8_t* previous_sizes,
                     std::uint8_t* sizes, WaveStream& stream) {
  const PaddedFrame<T>& frame = job.current;
  const std::uint32_t period = WavePeriod(frame.columns);
  const std::uint32_t steps = WaveSteps(frame.rows, frame.columns);
  const std::int32_t middle = 1 << (job.bits - 1);
  const std::uint32_t mask = (1U << job.bits) - 1;
  for (std::uint32_t step = 0; step < steps; ++step) {
    for (std::uint32_t lane = 0; lane < kWaveLanes && lane * kWaveLag <= step; ++lane) {
      const std::uint32_t own = step - lane * kWaveLag;
      const std::uint32_t row = own / period * kWaveLanes + lane;
      const std::uint32_t column = own % period;
      if (row >= frame.rows || column >= frame.columns) continue;
      const std::size_t at = std::size_t{row} * frame.columns + column;
      const std::uint32_t log2 = job.parameters->block_log2;
      const std::uint8_t choice =
          job.blocks[(row >> log2) * job.block_columns + (column >> log2)].filter;
      const auto taps = CurrentNeighbours(frame, static_cast<std::int32_t>(row),
                                          static_cast<std::int32_t>(column));
      const WaveSum<T> temporal = job.temporal != nullptr ? job.temporal[at] : WaveSum<T>{0};
      const std::int32_t value =
          PredictPixel(job.group->filters[choice & 0x0F], temporal, taps, middle);
      Expectation expected{.value = value};
      if (job.net != nullptr) {
        expected = Correct(job, taps, value, row, column);
        if (!job.group->filters[choice & 0x0F].learned) {
          expected.value = value;
          expected.mirrored = false;
        }
      } else {
        expected.energy = PixelEnergy(sizes, previous_sizes, frame.columns, row, column);
      }
      std::uint32_t residual = 0;
      if ((choice & kWaveSkip) == 0) {
        const std::uint32_t context = EnergyContext(*job.group, expected.energy);
        const std::uint32_t symbol = DecodeWaveSymbol(
            job.table.subspan(std::size_t{context} * kWaveProbabilityScale, kWaveProbabilityScale),
            job.bits, stream.states[lane], stream);
        residual = ResidualOf(symbol, job.bits);
        if (expected.mirrored) residual = (0 - residual) & mask;
      }
      sizes[at] = WaveMagnitude(residual, job.bits, job.parameters->magnitude_shift);
      const std::uint32_t pixel = (static_cast<std::uint32_t>(expected.value) + residual) & mask;
      frame.At(static_cast<std::int32_t>(row), static_cast<std::int32_t>(column)) =
          static_cast<T>(pixel);
      if (job.errors != nullptr) {
        job.errors[at] = LearnedError(static_cast<std::int32_t>(pixel), value);
      }
    }
  }
}

template void DecodeWaveFrame<std::uint8_t>(const WaveFrameJob<std::uint8_t>&,
                                            const std::uint8_t*, std::uint8_t*, WaveStream&);
template void DecodeWaveFrame<std::uint16_t>(const WaveFrameJob<std::uint16_t>&,
                                             const std::uint8_t*, std::uint8_t*, WaveStream&);

}  // namespace forebay::compress
