// Forebay's profiles by the names that options and reports use.
#pragma once

#include <string>

#include "compress/encode/plane_encoder.h"

namespace forebay::bench {

inline Result<compress::Profile> ProfileOf(const std::string& name) {
  if (name == "fast") return compress::Profile::kFast;
  if (name == "balanced") return compress::Profile::kBalanced;
  if (name == "dense") return compress::Profile::kDense;
  if (name == "learned") return compress::Profile::kLearned;
  if (name == "auto") return compress::Profile::kAuto;
  return Error(ErrorCode::kInvalidArgument,
               "no profile " + name + "; there are fast, balanced, dense, learned, auto");
}

}  // namespace forebay::bench
