// Trains a network with LibTorch and rounds it to integers. The only part that links LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compress/format/plane/predictor.h"
#include "compress/train/training_rows.h"
#include "proto/contract/result.h"

namespace forebay::compress {

struct NetOptions {
  std::vector<std::uint32_t> hidden = {32, 12};  // outputs of the hidden layers
  std::uint32_t epochs = 8;
  std::uint32_t batch_rows = 4096;
  double learning_rate = 8e-3;  // at its peak
  std::uint64_t seed = 1;
  std::uint32_t threads = 1;
};

struct TrainedNet {
  std::vector<PredictorLayer> layers;
  double bits_per_pixel = 0;  // estimated, of the last epoch
};

// Called after each epoch with its number, from 1 on, and its mean estimated bits per pixel.
using EpochReport = std::function<void(std::uint32_t epoch, double bits_per_pixel)>;

// Minimises the bits of a discretised logistic density around the corrected prediction. For the
// last third of the steps weights and activations are rounded as in the integer network, gradients
// passing straight through (Bengio et al., arXiv:1308.3432). The same rows, options and LibTorch
// give the same network. Errors: kInvalidArgument (too few rows, widths out of range), kInternal.
Result<TrainedNet> TrainNet(const TrainingRows& rows, const NetOptions& options,
                            const EpochReport& report);

}  // namespace forebay::compress
