// How much of a GPU's memory LibTorch may take.
#pragma once

#include <cstdint>

#include <torch/types.h>

#include "proto/contract/result.h"

namespace forebay::train {

// LibTorch takes at most so many bytes of the GPU from now on; what needs more throws.
// kInvalidArgument beyond what the GPU has, kUnimplemented for a processor. May throw.
Status CapDeviceMemory(const torch::Device& device, std::uint64_t bytes);

}  // namespace forebay::train
