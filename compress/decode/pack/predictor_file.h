// Learned predictors in files of their own, for packs that name a predictor by its SHA-256 and do
// not hold it (`forebay pack --name-model`).
#pragma once

#include <string>

#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// Reads a predictor's file. Errors: those of system calls and of Predictor::Parse; they name the
// path.
Result<std::shared_ptr<const Predictor>> LoadPredictor(const std::string& path,
                                                       const PredictorBudget& budget = {});

// FOLDER/<SHA-256 in 64 hexadecimal digits>.net; an empty folder is the current one.
std::string PredictorFileName(const std::string& folder, const Sha256Digest& id);

// Finds predictors in a folder, under these names. Errors: kFailedPrecondition (no such file),
// those of LoadPredictor.
PredictorFinder PredictorsIn(std::string folder, const PredictorBudget& budget = {});

// Finds predictors beside a pack or a set: in the folder of `path`, and, if `path` is a symbolic
// link, also in the folder of the file that it leads to. Errors: those of PredictorsIn.
PredictorFinder PredictorsBeside(std::string path, const PredictorBudget& budget = {});

}  // namespace forebay::compress
