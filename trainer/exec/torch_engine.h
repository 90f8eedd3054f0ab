// The engine over LibTorch. This header does not include LibTorch, so that programs that wire the
// engine compile fast.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/config/train_config.h"
#include "trainer/core/loop/engine.h"
#include "trainer/core/machine/blas_check.h"
#include "trainer/numerics/precision.h"

namespace forebay::train {

struct ModelTask;

// Sets LibTorch's threads; those of one operation are set for the calling thread. Call it before
// any other work with LibTorch. Ranks that are threads call it again, each for itself.
Status SetTorchThreads(std::uint32_t threads);

// Whether this rank's engine computes on a GPU. kFailedPrecondition, with the remedy, if the device
// that run.device = `name` asks for does not exist.
Result<bool> ComputesOnGpu(std::string_view name, std::uint32_t local_rank);

// Makes an engine that trains the task's model, with first weights from train.seed, and begins with
// the first layout of the configuration's plan. All layouts are checked. If a cut has to be found
// or memory to be saved, this is decided by rank 0's measurement. On rank 0, `print` gets a
// description of the model and of the decisions. Collective. `communicator` outlives the engine.
//
// The same seed, micro-batches and identity (threads, LibTorch, machine) end in bit-identical
// weights under every layout.
Result<std::unique_ptr<Engine>> MakeTorchEngine(
    const TrainConfig& config, std::shared_ptr<const ModelTask> task, Communicator& communicator,
    const std::function<void(const std::string&)>& print = {});

// Finds the provider of sgemm_ and times a small GEMM through LibTorch.
std::unique_ptr<BlasProbe> MakeTorchBlasProbe();

// The GFLOP/s of that product in `precision`.
Result<double> MeasureProduct(Precision precision);

}  // namespace forebay::train
