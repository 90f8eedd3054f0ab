// Chooses the blocks that a learned predictor corrects (step 4 of encoding wavefront planes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "compress/encode/wavefront/wavefront_work.h"
#include "compress/format/plane/predictor.h"

namespace forebay::compress {

// Lets each block take the predictor's correction if that costs fewer bits. `work` has chosen
// filters and the residuals of the filters alone; filters, blocks, residuals (with the sign in
// which they are coded) and energies are changed. Returns false, and changes nothing, if no block
// gains.
bool ChooseCorrections(const Predictor& predictor, WavefrontWork<std::uint8_t>& work);

// The same with the caller's rule, which decides whether to correct a block by its number (counted
// over frames, rows and columns) and by the bits, times 4096, that it costs with and without
// correction.
using CorrectionRule =
    std::function<bool(std::size_t block, std::uint64_t with, std::uint64_t without)>;
bool CorrectBlocks(const Predictor& predictor, WavefrontWork<std::uint8_t>& work,
                   const CorrectionRule& rule);

}  // namespace forebay::compress
