// Runs a learned predictor's network on 64 pixels at once: a kernel per instruction set, all with
// the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/decode/isa.h"
#include "compress/format/plane/predictor.h"
#include "compress/format/plane/wavefront_format.h"

namespace forebay::compress {

using PredictorRow = std::array<std::uint8_t, kWavefrontLanes>;  // of each pixel a byte

// What goes in and comes out. Rows of inputs beyond the network's may hold anything.
struct alignas(64) PredictorBatch {
  std::array<PredictorRow, kPredictorWidthMax> inputs;  // 128 more than the input
  PredictorRow corrections;  // two's complement: whole steps of a sample
  PredictorRow mirrored;     // 255 where the correction was rounded up, so that symbols change sign
  PredictorRow energies;
};

// Widths of all layers are at most kPredictorWidthMax, so that a layer's rows fit on the stack.
using PredictorRun = void (*)(const PredictorNet& net, PredictorBatch& batch);

// The one for `isa`; where the processor lacks what it needs, the next slower one.
PredictorRun PredictorRunOf(Isa isa);

// The reference, for the first `count` pixels.
void RunPredictorScalar(const PredictorNet& net, PredictorBatch& batch, std::size_t count);

// Kernels in files of their own, which are compiled for processors that may not be present. Call
// them through PredictorRunOf. The AVX-512 kernel needs VNNI.
void RunPredictorAvx2(const PredictorNet& net, PredictorBatch& batch);
void RunPredictorAvx512(const PredictorNet& net, PredictorBatch& batch);

}  // namespace forebay::compress
