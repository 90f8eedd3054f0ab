// The count of samples is compared with what the data set has: a feed that lost or repeated a batch
// must not produce a slightly wrong figure.
#include "trainer/core/loop/evaluation_sums.h"

#include <fmt/format.h>

namespace forebay::train {

Result<EvaluationFigures> EvaluationSums::Figures(std::uint64_t due) const {
  if (samples_ != due || due == 0) {
    return Error(ErrorCode::kDataLoss, fmt::format("{} of {} validation samples were evaluated",
                                                   samples_, due));
  }
  // Means over all samples, whatever the sizes of steps and micro-batches were.
  const auto samples = static_cast<double>(samples_);
  EvaluationFigures figures;
  figures.samples = samples_;
  figures.loss = loss_ / samples;
  figures.score = score_ / samples;
  return figures;
}

}  // namespace forebay::train
