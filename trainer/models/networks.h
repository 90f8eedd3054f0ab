// The families of models as flat lists of parts. Every cut between two parts is a legal stage.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trainer/exec/model.h"
#include "trainer/models/model_request.h"

namespace forebay::train {

// LeCun et al., "Gradient-based learning applied to document recognition", 1998; with ReLU and max
// pooling, without dropout and batch statistics. conv1, conv2, linear1, linear2.
// {n, C, H, W} -> {n, outputs}.
std::vector<ModelPart> LeNetParts(const ModelSizes& sizes);

// He et al., "Deep residual learning", 2016, as torchvision has it: v1.5, the 3x3 convolution of a
// bottleneck has the stride. Stem, residual blocks, head; named as torchvision names them.
// {n, C, H, W} -> {n, outputs}.
std::vector<ModelPart> ResNetParts(const ModelSizes& sizes);

// Dosovitskiy et al., "An image is worth 16x16 words", 2021, as timm has it: class token, learnt
// positions, normalisation first. Patches; attention and perceptron of each block as parts of
// their own; head. {n, C, H, W} -> {n, outputs}.
std::vector<ModelPart> VisionTransformerParts(const ModelSizes& sizes);

// The 3D U-Net of MLPerf training (Isensee et al., "No new-net", 2018; Cicek et al., 2016): two
// convolutions a level, each with instance normalisation and ReLU; strided ones lead down,
// transposed ones up; `levels` skips over the bottom. {n, C, D, H, W} -> {n, outputs, D, H, W}.
std::vector<ModelPart> UNet3dParts(const ModelSizes& sizes);

// The CosmoFlow network of MLPerf HPC (Mathuriya et al., 2018): convolutions of 3x3x3, leaky ReLU
// and max pooling, then three fully connected layers with dropout; the last ends in 1.2 tanh.
// {n, C, D, H, W} -> {n, outputs}, targets in [-1, 1]. The reference trains with SGD, momentum
// 0.9, batches of 64 samples at a learning rate of 1e-3 that grows with the batch: 4 epochs of
// linear warm-up, times 0.25 from epoch 32 on, times 0.125 from 64 on, 128 in all, squared error;
// target: a mean absolute error of 0.124.
std::vector<ModelPart> CosmoFlowParts(const ModelSizes& sizes);

// What makes a T from copies of `arguments`.
template <typename T, typename... Arguments>
std::function<std::shared_ptr<Part>()> PartMaker(Arguments... arguments) {
  return [=] { return std::make_shared<T>(arguments...); };
}

}  // namespace forebay::train
