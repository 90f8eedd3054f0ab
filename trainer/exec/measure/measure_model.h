// MeasureModel: what each part of a model costs in time and bytes, measured on this machine by
// running it. Planners and the simulator work from these figures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <torch/types.h>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/exec/model.h"
#include "trainer/numerics/precision.h"
#include "trainer/schedule/model_graph.h"

namespace forebay::train {

// What a part of the model hands on to the parts behind it.
struct PartOutput {
  std::vector<std::int64_t> shape;  // of one sample
  torch::ScalarType type = torch::kFloat32;
};

// The model's times and bytes for one micro-batch, and what its parts hand on.
struct ModelMeasure {
  ModelGraph graph;
  std::vector<PartOutput> outputs;
  std::vector<double> flops;  // by part: products and convolutions, forward and backward
  // Whether saved_bytes are those of the storages that autograd keeps. Otherwise they are the
  // bytes of inputs and outputs, because this LibTorch does not let us see what is saved.
  bool saved_exactly = true;
};

// Runs one micro-batch (`input` {samples, ...}, `target`) through all parts, forward and
// backward, on the device of `input`, and measures each part. Bytes are exact, except for the
// saved bytes of a LibTorch without hooks (see saved_exactly) and for scratch memory on a GPU,
// which is not counted.
//
// Only as many parts are in memory at a time as are needed to exceed the processor's caches. So
// times are those of training, and one rank can measure a model that needs several to train.
// Not collective, but ranks of one machine should call it at the same time, because they also
// compute at the same time. Threads of one process take turns where bytes are counted.
Result<ModelMeasure> MeasureModel(const Model& model, const torch::Tensor& input,
                                  const torch::Tensor& target,
                                  const std::function<std::uint64_t()>& now_ns,
                                  Precision precision = Precision::kFp32);

// Replaces `measure` by rank 0's, so that all ranks plan alike; on the other ranks it may be empty.
// Collective. kDataLoss if what arrives does not measure a model of `parts` parts.
Status ShareMeasure(ModelMeasure& measure, std::size_t parts, Communicator& communicator);

}  // namespace forebay::train
