// Step 6 of encoding wavefront planes: rANS (J. Duda, arXiv:1311.2540) in 64 lanes that share a
// stream of words. The decoder's steps are walked backwards, frames, steps and lanes, because rANS
// is last in, first out; so the words are reversed at the end.
#include <algorithm>
#include <array>
#include <utility>

#include "compress/encode/wavefront/wavefront_entropy.h"

namespace forebay::compress {
namespace {

// One lane's rANS state, which goes from the decoder's last state to its first.
class LaneState {
 public:
  // Appends to `words`, which the decoder reads from its end.
  void PutPlain(std::uint32_t value, std::uint32_t bits, std::vector<std::uint16_t>& words) {
    if (state_ >> (32 - bits) != 0) Shift(words);
    state_ = state_ << bits | value;
  }

  // Codes a symbol with slots [before, before + frequency) of 2048.
  void Put(std::uint32_t frequency, std::uint32_t before, std::vector<std::uint16_t>& words) {
    // The state must stay below 2^32 after the step. If it would not, 16 bits go to the stream
    // first; the decoder takes them back when its state falls below 2^16.
    if (std::uint64_t{state_} >= std::uint64_t{frequency} << (32 - kWavefrontProbabilityBits)) {
      Shift(words);
    }
    state_ = state_ / frequency << kWavefrontProbabilityBits | (state_ % frequency + before);
  }

  std::uint32_t value() const { return state_; }

 private:
  void Shift(std::vector<std::uint16_t>& words) {
    words.push_back(static_cast<std::uint16_t>(state_));
    state_ >>= 16;
  }

  std::uint32_t state_ = kWavefrontStateMin;
};

void AppendLe(std::uint64_t value, int bytes, std::vector<std::byte>& out) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i) & 0xFF));
}

}  // namespace

template <typename T>
std::vector<std::byte> EncodeSymbols(const WavefrontWork<T>& work,
                                     const std::array<GroupFrequencies, 2>& frequencies) {
  const PlaneShape& shape = work.shape;
  const std::uint32_t period = WavefrontPeriod(shape.columns);
  const std::uint32_t steps = WavefrontSteps(shape.rows, shape.columns);
  const std::uint32_t log2 = work.parameters.block_log2;
  const std::uint32_t lanes = std::min(shape.rows, kWavefrontLanes);
  // Where a lane is by its own count of steps.
  std::vector<std::array<std::uint32_t, 2>> places(steps);
  for (std::uint32_t own = 0; own < steps; ++own) {
    places[own] = {own / period * kWavefrontLanes, own % period};
  }
  std::array<LaneState, kWavefrontLanes> states;
  std::vector<std::uint16_t> words;
  for (std::uint32_t frame = shape.frames; frame-- > 0;) {
    const GroupFrequencies& group = frequencies[frame > 0 ? 1 : 0];
    const WavefrontBlock* const blocks =
        &work.blocks[std::size_t{frame} * work.block_rows * work.block_columns];
    for (std::uint32_t step = steps; step-- > 0;) {
      for (std::uint32_t lane = lanes; lane-- > 0;) {
        if (step < lane * kWavefrontLag) continue;
        const auto [band_row, column] = places[step - lane * kWavefrontLag];
        const std::uint32_t row = band_row + lane;
        if (row >= shape.rows || column >= shape.columns) continue;
        const WavefrontBlock& block =
            blocks[std::size_t{row >> log2} * work.block_columns + (column >> log2)];
        if ((block.filter & kWavefrontSkip) != 0) continue;
        const std::size_t at =
            frame * shape.frame_samples() + std::size_t{row} * shape.columns + column;
        const WavefrontToken token = TokenOf(work.residuals[at], shape.bits);
        const SymbolFrequencies& context = group.contexts[work.contexts[at]];
        // The decoder takes the symbol first and then the plain bits; backwards it is the other way
        // round.
        if (token.plain_bits > 0) states[lane].PutPlain(token.plain_value, token.plain_bits, words);
        states[lane].Put(context.frequency[token.symbol], context.before[token.symbol], words);
      }
    }
  }
  std::vector<std::byte> out;
  out.reserve(lanes * sizeof(std::uint32_t) + words.size() * sizeof(std::uint16_t));
  for (std::uint32_t lane = 0; lane < lanes; ++lane) AppendLe(states[lane].value(), 4, out);
  for (auto word = words.rbegin(); word != words.rend(); ++word) AppendLe(*word, 2, out);
  return out;
}

template std::vector<std::byte> EncodeSymbols(const WavefrontWork<std::uint8_t>&,
                                              const std::array<GroupFrequencies, 2>&);
template std::vector<std::byte> EncodeSymbols(const WavefrontWork<std::uint16_t>&,
                                              const std::array<GroupFrequencies, 2>&);

}  // namespace forebay::compress
