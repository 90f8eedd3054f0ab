// One frame of a wavefront-coded chunk, and the two ways to decode it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/decode/learned/predictor_run.h"
#include "compress/decode/wavefront/wavefront_plan.h"
#include "compress/format/plane/learned_inputs.h"
#include "compress/format/plane/padded_frame.h"
#include "compress/format/plane/wavefront_predict.h"

namespace forebay::compress {

// What the lanes read and move on, from frame to frame.
struct WavefrontStream {
  std::span<std::uint32_t> states;  // kWavefrontLanes
  const std::byte* next = nullptr;  // the next 16-bit word
  const std::byte* end = nullptr;
  bool overrun = false;

  // Zero beyond the end, which is remembered.
  std::uint32_t NextWord() {
    if (end - next < 2) {
      overrun = true;
      return 0;
    }
    const auto low = std::to_integer<std::uint32_t>(next[0]);
    const auto high = std::to_integer<std::uint32_t>(next[1]);
    next += 2;
    return low | high << 8;
  }

  // True where every lane ended as the encoder began and no word is left over.
  bool AtEnd() const;
};

// What a lane's state and the words behind it hold next: a residual modulo 2^bits up to 8 bits, a
// folded one beyond. `table` is the context's.
std::uint32_t DecodeWavefrontSymbol(std::span<const WavefrontEntry> table, std::uint32_t bits,
                                    std::uint32_t& state, WavefrontStream& stream);

// A frame to decode. T is uint8_t or uint16_t.
template <typename T>
struct WavefrontFrameJob {
  const WavefrontParameters* parameters = nullptr;
  const WavefrontGroup* group = nullptr;
  std::span<const WavefrontEntry> table;   // the group's
  std::span<const WavefrontBlock> blocks;  // this frame's
  std::uint32_t block_columns = 0;
  std::uint32_t bits = 8;
  PaddedFrame<T> current;                 // rows -1 and -2 hold what lies above
  const WavefrontSum<T>* temporal = nullptr;  // [rows][columns]; null in an intra frame
  // Of a learned chunk, T then being uint8_t: what corrects filters, if any are in this frame;
  // what it looks at; where the frame's errors go.
  const PredictorNet* net = nullptr;
  LearnedFrame learned = {};
  std::int8_t* errors = nullptr;
};

// Decodes a frame lane by lane: the reference that every kernel must equal.
// `previous_sizes` (null in an intra frame) and `sizes` are magnitudes, [rows][columns].
template <typename T>
void DecodeWavefrontFrame(const WavefrontFrameJob<T>& job, const std::uint8_t* previous_sizes,
                          std::uint8_t* sizes, WavefrontStream& stream);

extern template void DecodeWavefrontFrame<std::uint8_t>(const WavefrontFrameJob<std::uint8_t>&,
                                                        const std::uint8_t*, std::uint8_t*,
                                                        WavefrontStream&);
extern template void DecodeWavefrontFrame<std::uint16_t>(const WavefrontFrameJob<std::uint16_t>&,
                                                         const std::uint8_t*, std::uint8_t*,
                                                         WavefrontStream&);

}  // namespace forebay::compress
