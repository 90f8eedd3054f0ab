// Models of golden packs whose fields become wavefront or learned planes.
#pragma once

#include "compress/encode/testing/pack_test_model.h"

namespace forebay::compress {

// Of u8 and of u16, with more rows than a band of lanes has: parts that stand still, parts that
// move, and noise, so that bodies have filters of all kinds, motion, tokens and skipped blocks.
PackModel WavefrontPictures();
PackModel WavefrontDepths();

// Pictures that no filter predicts and the golden predictor does.
PackModel LearnablePictures();

}  // namespace forebay::compress
