// The memory of a GPU: how much of it LibTorch may take, and took.
#pragma once

#include <cstdint>

#include <torch/types.h>

#include "proto/contract/result.h"

namespace forebay::train {

// LibTorch takes at most so many bytes of the GPU from now on; what needs more throws.
// kInvalidArgument beyond what the GPU has, kUnimplemented for a processor. May throw.
Status CapDeviceMemory(const torch::Device& device, std::uint64_t bytes);

// Bytes of tensors, scratch of operators included, at their peak since BeginDevicePeak. 0 for a
// processor. May throw.
std::uint64_t DevicePeakBytes(const torch::Device& device);
void BeginDevicePeak(const torch::Device& device);

}  // namespace forebay::train
