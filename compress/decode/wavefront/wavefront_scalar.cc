// The reference decoder of wavefront planes: step by step and lane by lane, as docs/pack_planes.md
// says. It is the decoder of processors without AVX2, and every kernel must give its bits
// (wavefront_kernel_test.cc).
#include <algorithm>

#include "compress/decode/wavefront/wavefront_frame.h"
#include "compress/format/plane/wavefront_taps.h"

namespace forebay::compress {
namespace {

// The residual, modulo 2^bits, that a symbol and its plain bits mean.
std::uint32_t ResidualOf(std::uint32_t symbol, std::uint32_t bits) {
  if (bits <= 8) return symbol;
  const std::uint32_t half = symbol >> 1;
  return ((symbol & 1) != 0 ? ~half : half) & ((1U << bits) - 1);
}

// What is known of a pixel before its residual is decoded: the prediction, the energy that chooses
// the context, and whether the residual is negated.
struct Expectation {
  std::int32_t value = 0;
  std::uint32_t energy = 0;
  bool mirrored = false;
};

// Runs the learned predictor on one pixel: it corrects the filter's value, and gives the energy and
// the sign in place of the neighbours' magnitudes. Only the first slot of a batch is used.
template <typename T>
Expectation Correct(const WavefrontFrameJob<T>& job,
                    const std::array<std::int32_t, kIntraTapCount>& taps, std::int32_t value,
                    std::uint32_t row, std::uint32_t column) {
  PredictorBatch batch;
  SetLearnedInputs(job.learned, taps, value, static_cast<std::int32_t>(row),
                   static_cast<std::int32_t>(column), kWavefrontLanes, batch.inputs[0].data());
  RunPredictorScalar(*job.net, batch, 1);
  const std::int32_t corrected = value + static_cast<std::int8_t>(batch.corrections[0]);
  return {.value = std::clamp(corrected, 0, (1 << job.bits) - 1),
          .energy = batch.energies[0],
          .mirrored = batch.mirrored[0] != 0};
}

}  // namespace

std::uint32_t DecodeWavefrontSymbol(std::span<const WavefrontEntry> table, std::uint32_t bits,
                                    std::uint32_t& state, WavefrontStream& stream) {
  // Range ANS (J. Duda 2013) in the form of F. Giesen's "Interleaved entropy coders" (2014): the
  // low 11 bits of the state are a slot of the table, whose entry says the symbol, its frequency
  // and the slot's distance to the symbol's first one. A state below 2^16 takes the next 16-bit
  // word.
  const WavefrontEntry entry = table[state & (kWavefrontProbabilityScale - 1)];
  state = WavefrontFrequency(entry) * (state >> kWavefrontProbabilityBits) + WavefrontBias(entry);
  if (state < kWavefrontStateMin) state = state << 16 | stream.NextWord();
  const std::uint32_t symbol = WavefrontSymbol(entry);
  if (bits <= 8 || symbol < kWavefrontDirectTokens) return symbol;
  // A token of an octave has the two bits below the leading one; the bits below those lie in the
  // state without a model.
  const std::uint32_t octave = (symbol - kWavefrontDirectTokens) / 4 + 4;
  const std::uint32_t plain = octave - 2;
  const std::uint32_t low = state & ((1U << plain) - 1);
  state >>= plain;
  if (state < kWavefrontStateMin) state = state << 16 | stream.NextWord();
  return (4U | (symbol & 3)) << plain | low;
}

// The encoder started every lane at kWavefrontStateMin, and decoding runs its steps backwards:
// after the last symbol all lanes are back there, unless the stream was damaged.
bool WavefrontStream::AtEnd() const {
  return !overrun && next == end && std::ranges::all_of(states, [](std::uint32_t state) {
    return state == kWavefrontStateMin;
  });
}

template <typename T>
void DecodeWavefrontFrame(const WavefrontFrameJob<T>& job, const std::uint8_t* previous_sizes,
                          std::uint8_t* sizes, WavefrontStream& stream) {
  const PaddedFrame<T>& frame = job.current;
  const std::uint32_t period = WavefrontPeriod(frame.columns);
  const std::uint32_t steps = WavefrontSteps(frame.rows, frame.columns);
  const std::int32_t middle = 1 << (job.bits - 1);
  const std::uint32_t mask = (1U << job.bits) - 1;
  for (std::uint32_t step = 0; step < steps; ++step) {
    // Lane L decodes rows L, L + 64, ... and lags kWavefrontLag columns behind lane L - 1, so all
    // neighbours above it are there. Within a step, lanes take words of the common stream in
    // ascending order: vector kernels deal words out in that order too.
    for (std::uint32_t lane = 0; lane < kWavefrontLanes && lane * kWavefrontLag <= step; ++lane) {
      const std::uint32_t own = step - lane * kWavefrontLag;
      const std::uint32_t row = own / period * kWavefrontLanes + lane;
      const std::uint32_t column = own % period;
      if (row >= frame.rows || column >= frame.columns) continue;
      const std::size_t at = std::size_t{row} * frame.columns + column;
      const std::uint32_t log2 = job.parameters->block_log2;
      const std::uint8_t choice =
          job.blocks[(row >> log2) * job.block_columns + (column >> log2)].filter;
      const auto taps = CurrentNeighbours(frame, static_cast<std::int32_t>(row),
                                          static_cast<std::int32_t>(column));
      const WavefrontSum<T> temporal =
          job.temporal != nullptr ? job.temporal[at] : WavefrontSum<T>{0};
      const std::int32_t value =
          PredictPixel(job.group->filters[choice & 0x0F], temporal, taps, middle);
      Expectation expected{.value = value};
      if (job.net != nullptr) {
        expected = Correct(job, taps, value, row, column);
        // A filter that is not corrected keeps its value, but the network's energy still chooses
        // the context.
        if (!job.group->filters[choice & 0x0F].learned) {
          expected.value = value;
          expected.mirrored = false;
        }
      } else {
        expected.energy = PixelEnergy(sizes, previous_sizes, frame.columns, row, column);
      }
      std::uint32_t residual = 0;
      // All residuals of a skipped block are zero, and take nothing from the stream.
      if ((choice & kWavefrontSkip) == 0) {
        const std::uint32_t context = EnergyContext(*job.group, expected.energy);
        const std::uint32_t symbol = DecodeWavefrontSymbol(
            job.table.subspan(std::size_t{context} * kWavefrontProbabilityScale,
                              kWavefrontProbabilityScale),
            job.bits, stream.states[lane], stream);
        residual = ResidualOf(symbol, job.bits);
        if (expected.mirrored) residual = (0 - residual) & mask;
      }
      sizes[at] = WavefrontMagnitude(residual, job.bits, job.parameters->magnitude_shift);
      const std::uint32_t pixel = (static_cast<std::uint32_t>(expected.value) + residual) & mask;
      frame.At(static_cast<std::int32_t>(row), static_cast<std::int32_t>(column)) =
          static_cast<T>(pixel);
      if (job.errors != nullptr) {
        job.errors[at] = LearnedError(static_cast<std::int32_t>(pixel), value);
      }
    }
  }
}

template void DecodeWavefrontFrame<std::uint8_t>(const WavefrontFrameJob<std::uint8_t>&,
                                                 const std::uint8_t*, std::uint8_t*,
                                                 WavefrontStream&);
template void DecodeWavefrontFrame<std::uint16_t>(const WavefrontFrameJob<std::uint16_t>&,
                                                  const std::uint8_t*, std::uint8_t*,
                                                  WavefrontStream&);

}  // namespace forebay::compress
