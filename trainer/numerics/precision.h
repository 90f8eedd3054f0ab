// Precision: what products and convolutions compute in. Weights, sums of gradients and the
// optimiser are of single precision whatever it is.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::train {

enum class Precision : std::uint8_t {
  kFp32,
  kBf16,  // mixed, as of Micikevicius et al., 2018, with bfloat16, which needs no loss scaling
};

// "fp32", "bf16". kInvalidArgument for others; of fp16 it says why not, and what instead.
Result<Precision> ParsePrecision(std::string_view name);
std::string_view PrecisionName(Precision precision);

}  // namespace forebay::train
