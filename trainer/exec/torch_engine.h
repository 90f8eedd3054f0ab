// The engine over LibTorch. This header shows no torch, so that whoever wires it compiles fast.
#pragma once

#include <cstdint>
#include <memory>

#include "proto/contract/result.h"
#include "trainer/core/blas_check.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/engine.h"
#include "trainer/core/train_config.h"

namespace forebay::train {

// Sets LibTorch's threads for the whole process. Call once, before any other torch work.
Status SetTorchThreads(std::uint32_t threads);

// Builds the network with weights from train.seed, the same on every rank (rank 0's are
// broadcast), and SGD with momentum and weight decay. Collective. `communicator` outlives the
// engine.
//
// Gradients, weights and momentum each lie in one flat buffer, so that a step takes one
// all-reduce and one fused update. With equal batches, seeds, threads and ranks every result
// is bit-identical from run to run.
Result<std::unique_ptr<Engine>> MakeTorchEngine(const TrainConfig& config,
                                                Communicator& communicator);

// Finds the provider of sgemm_ and times a small GEMM through LibTorch.
std::unique_ptr<BlasProbe> MakeTorchBlasProbe();

}  // namespace forebay::train
