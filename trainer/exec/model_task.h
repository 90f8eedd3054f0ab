// ModelTask: a model, and how the bytes of a data set's samples become its tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/feed/feed.h"
#include "trainer/core/loop/metric.h"
#include "trainer/exec/model.h"

namespace forebay::train {

struct ModelTask {
  Model model;
  std::string description = {};            // a line for people; empty: the model's name
  Metric metric = {};                      // what the loss's Evaluate adds up
  std::vector<std::int64_t> input_shape;   // of one sample, as the first part takes it: {C, ...}
  bool channels_last = false;              // the feed has {..., C}
  std::vector<std::int64_t> target_shape;  // of one sample; empty: a class index
  // Inputs of bytes are scaled to [0, 1]; then (x - mean) / stddev, by channel where there are as
  // many numbers.
  std::vector<double> input_mean = {0};
  std::vector<double> input_stddev = {1};
};

// {samples, ...} of single precision, on `device`. On a GPU always a copy, under way on the current
// stream, which the batch's memory must outlast. On a processor, with a `hold`, what is of that
// type already, dense and not to be standardised stays where it is: the tensor lies in read-only
// memory and keeps `hold` until the last one over it is gone; all else is copied.
// kFailedPrecondition for another number of elements than the model takes, kDataLoss where shape
// and bytes disagree, kUnimplemented for types that are not trained on. May throw.
Result<torch::Tensor> ToInput(const ModelTask& task, const FeedTensor& view,
                              std::uint32_t samples, const std::shared_ptr<const void>& hold,
                              const torch::Device& device = torch::kCPU);
// The same for targets: {samples} of int64, or {samples, ...} of single precision.
Result<torch::Tensor> ToTarget(const ModelTask& task, const FeedTensor& view,
                               std::uint32_t samples, const std::shared_ptr<const void>& hold,
                               const torch::Device& device = torch::kCPU);

// Whether ToInput and ToTarget leave the elements where they are, given a hold.
bool InputStays(const ModelTask& task, const FeedTensor& view);
bool TargetStays(const ModelTask& task, const FeedTensor& view);

// A micro-batch of zeros, for measurements.
torch::Tensor ZeroInput(const ModelTask& task, std::uint32_t samples);
torch::Tensor ZeroTarget(const ModelTask& task, std::uint32_t samples);

}  // namespace forebay::train
