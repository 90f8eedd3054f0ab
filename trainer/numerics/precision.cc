// Names of precisions as configurations and checkpoints have them. Half precision (fp16) is
// refused by name, because users expect it: it needs loss scaling, which the trainer does not
// have.
#include "trainer/numerics/precision.h"

#include <fmt/format.h>

namespace forebay::train {

Result<Precision> ParsePrecision(std::string_view name) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    if (name == PrecisionName(precision)) return precision;
  }
  if (name == "fp16") {
    return Error(ErrorCode::kInvalidArgument,
                 "train.precision = \"fp16\": gradients below 6e-8 would become zero, and there is "
                 "no loss scaling against it; take \"bf16\", which has the range of fp32 at the "
                 "same size");
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("train.precision = \"{}\": must be fp32 or bf16", name));
}

std::string_view PrecisionName(Precision precision) {
  return precision == Precision::kFp32 ? "fp32" : "bf16";
}

}  // namespace forebay::train
