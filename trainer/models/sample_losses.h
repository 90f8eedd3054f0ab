// Losses by name, and the losses for volumes and for numbers. The loss for classes is in
// trainer/exec/model.h.
#pragma once

#include <memory>

#include "trainer/exec/model.h"
#include "trainer/models/families/model_family.h"

namespace forebay::train {

// The losses that families of models may list.
extern const LossKind kCrossEntropy;      // with the setting label_smoothing, where there is one
extern const LossKind kDiceCrossEntropy;
extern const LossKind kSquaredError;
extern const LossKind kAbsoluteError;

// Half Dice loss (Milletari et al., 2016), half cross entropy, as MLPerf's 3D U-Net: of a sample,
// the mean of both over classes and over voxels; the background, class 0, counts in the latter
// only. Output {n, classes, D, H, W}, target class indices {n, D, H, W} or {n, 1, D, H, W} of any
// type. Score: the sum over samples of the mean Dice coefficient of the likeliest classes.
std::shared_ptr<Loss> MakeDiceCrossEntropy();

// For a sample, the mean over its numbers of the squared or absolute error. Output {n, numbers},
// target of the same size. Score: the sum over samples of the mean absolute error.
std::shared_ptr<Loss> MakeSquaredError();
std::shared_ptr<Loss> MakeAbsoluteError();

}  // namespace forebay::train
