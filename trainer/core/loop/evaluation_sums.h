// EvaluationSums: an evaluation while it goes through the validation set, step by step.
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

  // Loss, score and samples; epoch and seconds are the caller's. kDataLoss where not every one of
  // `due` samples was evaluated once.
  Result<EvaluationFigures> Figures(std::uint64_t due) const;

 private:
  double loss_ = 0;
  double score_ = 0;
  std::uint64_t samples_ = 0;
};

}  // namespace forebay::train
