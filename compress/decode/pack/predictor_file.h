// Predictors in files of their own.
#pragma once

#include <string>

#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Reads one. Errors: a system's, Predictor::Parse's; the path is named.
Result<std::shared_ptr<const Predictor>> LoadPredictor(const std::string& path,
                                                       const PredictorBudget& budget = {});

// Finds FOLDER/<SHA-256 in 64 hexadecimal digits>.net; of an empty folder in the current one.
// Errors: kFailedPrecondition where there is
// no such file; LoadPredictor's.
std::string PredictorFileName(const std::string& folder, const Sha256Digest& id);
PredictorFinder PredictorsIn(std::string folder, const PredictorBudget& budget = {});

// Finds those beside the file PATH, a pack or a set: in the folder that PATH names, then, where
// PATH leads through symbolic links, in the folder of the file itself. Errors: as PredictorsIn.
PredictorFinder PredictorsBeside(std::string path, const PredictorBudget& budget = {});

}  // namespace forebay::compress
