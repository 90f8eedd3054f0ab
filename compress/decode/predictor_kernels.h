// Kernels of predictor_run.h that are compiled for processors which may not be there.
#pragma once

#include "compress/decode/predictor_run.h"

namespace forebay::compress {

void RunPredictorAvx2(const PredictorNet& net, PredictorBatch& batch);
void RunPredictorAvx512(const PredictorNet& net, PredictorBatch& batch);  // with VNNI

}  // namespace forebay::compress
