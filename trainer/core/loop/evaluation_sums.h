// EvaluationSums: the sums of an evaluation, collected step by step over the validation set.
#pragma once

#include <cstdint>

#include "proto/contract/result.h"
#include "trainer/core/loop/engine.h"
#include "trainer/core/metrics/training_report.h"

namespace forebay::train {

class EvaluationSums {
 public:
  void Add(const BatchOutcome& outcome) {
    loss_ += outcome.loss_sum;
    score_ += outcome.score_sum;
    samples_ += outcome.samples;
  }

  // Returns loss, score and samples; the caller adds epoch and seconds. kDataLoss unless each of
  // the `due` samples was evaluated once.
  Result<EvaluationFigures> Figures(std::uint64_t due) const;

 private:
  double loss_ = 0;
  double score_ = 0;
  std::uint64_t samples_ = 0;
};

}  // namespace forebay::train
