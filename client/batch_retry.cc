#include "client/batch_retry.h"

#include <algorithm>
#include <string>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::internal {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

BatchRetry::Time BatchRetry::Deadline(Time now) const {
  const Time pull_end = now + milliseconds(limits::kPullDeadlineMs);
  return has_failed_ ? std::min(pull_end, retry_end_) : pull_end;
}

std::optional<BatchRetry::Time> BatchRetry::ResumeAfter(const Error& refusal, Time now) {
  has_failed_ = true;
  ++refusals_;
  refusal_ = refusal;
  if (now >= retry_end_) return std::nullopt;
  return std::min(now + duration_cast<Time::duration>(backoff_.Next()), retry_end_);
}

bool BatchRetry::MayWaitOn(Time now) {
  has_failed_ = true;
  return now < retry_end_;
}

std::string BatchRetry::Told(Time now) const {
  return std::to_string(duration_cast<milliseconds>(now - began_).count()) +
         " ms (StreamOptions::retry_for_ms is " +
         std::to_string(duration_cast<milliseconds>(retry_end_ - began_).count()) +
         "); the next call asks for it again";
}

Error BatchRetry::RefusedError(Time now) const {
  FOREBAY_CHECK(refusal_.has_value());
  return Error(refusal_->code(), refusal_->message() + "; the batch was asked for " +
                                     std::to_string(refusals_) + " times within " + Told(now));
}

Error BatchRetry::LateError(const Error& late, Time now) const {
  const std::string text = late.message() + " within " + Told(now);
  if (!refusal_) return Error(late.code(), text);
  return Error(refusal_->code(), text + "; before, the daemon said: " + refusal_->message());
}

}  // namespace forebay::internal
