// Which blocks a learned predictor corrects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "compress/encode/wavefront/wavefront_work.h"
#include "compress/format/plane/predictor.h"

namespace forebay::compress {

// For work whose filters are chosen and whose residuals are those of the filters alone: each block
// takes the predictor's correction where that costs fewer bits. Sets filters, blocks, residuals (of
// the sign in which they are coded) and energies anew. False where no block gains: residuals,
// blocks and filters are then as they were.
bool ChooseCorrections(const Predictor& predictor, WavefrontWork<std::uint8_t>& work);

// The same by a rule of the caller's: is the block with this number (in frames, rows, columns)
// to be corrected, which costs so many bits (times 4096) with and without?
using CorrectionRule =
    std::function<bool(std::size_t block, std::uint64_t with, std::uint64_t without)>;
bool CorrectBlocks(const Predictor& predictor, WavefrontWork<std::uint8_t>& work,
                   const CorrectionRule& rule);

}  // namespace forebay::compress
