// Where a rank computes: the processor, or one of the node's GPUs. With device_link, all that knows
// that there are other devices than the processor; LibTorch without CUDA compiles it, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <torch/types.h>

#include "proto/contract/result.h"

namespace forebay::train {

// "cpu"; "cuda": the node's GPU number `local_rank`, modulo how many there are; "auto": that where
// LibTorch sees one. On a GPU, the process's algorithms become those that give one result: no
// autotuning, no sums in any order, no TF32. Call it before anything else is computed there.
// kFailedPrecondition where there is no GPU, with the remedy.
Result<torch::Device> ChooseDevice(std::string_view name, std::uint32_t local_rank);

// What results depend on: "" for the processor; else the GPU's model and its libraries.
std::string DescribeDevice(const torch::Device& device);

// Uninitialised memory of the host that a GPU's copies can be made from and to beside the
// computation.
torch::Tensor HostRoom(at::IntArrayRef shape, torch::ScalarType type, const torch::Device& device);

// Bytes of the same kind.
std::shared_ptr<std::byte[]> PinnedBytes(std::size_t bytes);

// A tensor where a rank computes: itself, or a copy that is ordered before what is computed next.
// Pageable memory is copied into pinned memory first, and free when this returns.
torch::Tensor OnDevice(const torch::Tensor& host, const torch::Device& device);

// Makes whole pages of the host, which may be read-only here, known to CUDA, so that copies to a
// GPU are made from where they lie, beside the computation. kUnimplemented where the machine
// cannot, and without CUDA.
Status RegisterForCopies(std::span<const std::byte> memory);
// Before it is unmapped.
void UnregisterForCopies(std::span<const std::byte> memory);

// Waits until what was asked of the device is done; on a processor it is.
void Synchronise(const torch::Device& device);
// The same of what this thread computes there: not of copies on streams of their own.
void SynchroniseComputation(const torch::Device& device);

}  // namespace forebay::train
