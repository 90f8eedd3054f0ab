// AnswerTimes: how long a node usually takes to answer requests for rows.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace forebay::peer {

// The estimator of TCP's retransmission timer (RFC 6298): a mean and a mean deviation, of which the
// older times count less and less. Not thread-safe.
class AnswerTimes {
 public:
  // So many answers are needed before anything is said.
  static constexpr std::uint64_t kAnswersMin = 16;

  void Add(std::int64_t ns) {
    if (answers_++ == 0) {
      mean_ns_ = ns;
      deviation_ns_ = ns / 2;
      return;
    }
    // In this order: the deviation is that from the mean before this answer.
    deviation_ns_ += (std::abs(ns - mean_ns_) - deviation_ns_) / 4;
    mean_ns_ += (ns - mean_ns_) / 8;
  }

  // Returns the time within which nearly all answers come. 0: too few have come yet.
  std::int64_t usual_ns() const {
    return answers_ < kAnswersMin ? 0 : mean_ns_ + 4 * deviation_ns_;
  }

 private:
  std::uint64_t answers_ = 0;
  std::int64_t mean_ns_ = 0;
  std::int64_t deviation_ns_ = 0;
};

}  // namespace forebay::peer
