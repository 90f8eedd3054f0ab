// Arithmetic of one patient call. Two ends count: that of the retries (retry_for_ms after the call
// began) and the caller's deadline. Errors name the end that was reached and what the daemon said
// last, because a bare "deadline exceeded" helps nobody.
#include "client/batch_retry.h"

#include <algorithm>
#include <string>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::internal {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

// The limit of the retries does not count before the first failure: even with retry_for_ms 0 the
// daemon gets its ordinary time for one answer. From then on each wait ends with the retries.
BatchRetry::Time BatchRetry::Deadline(Time now) const {
  const Time pull_end = now + milliseconds(limits::kPullDeadlineMs);
  const Time end = std::min(pull_end, caller_end_);
  return has_failed_ ? std::min(end, retry_end_) : end;
}

std::optional<BatchRetry::Time> BatchRetry::ResumeAfter(const Error& refusal, Time now) {
  has_failed_ = true;
  ++refusals_;
  refusal_ = refusal;
  const Time end = std::min(retry_end_, caller_end_);
  if (now >= end) return std::nullopt;
  // The pause does not reach beyond the end: the error comes when the limit says, not a pause
  // later.
  return std::min(now + duration_cast<Time::duration>(backoff_.Next()), end);
}

bool BatchRetry::MayWaitOn(Time now) {
  has_failed_ = true;
  return now < retry_end_ && !IsCallersTimeOver(now);
}

std::string BatchRetry::Told(Time now) const {
  const std::string limit =
      IsCallersTimeOver(now)
          ? "the caller's deadline"
          : "StreamOptions::retry_for_ms is " +
                std::to_string(duration_cast<milliseconds>(retry_end_ - began_).count());
  return std::to_string(duration_cast<milliseconds>(now - began_).count()) + " ms (" + limit +
         "); the next call asks for it again";
}

// A refusal's own code says more than "too late", unless it was the caller who would not wait.
ErrorCode BatchRetry::CodeAt(Time now) const {
  if (IsCallersTimeOver(now) || !refusal_) return ErrorCode::kDeadlineExceeded;
  return refusal_->code();
}

Error BatchRetry::RefusedError(Time now) const {
  FOREBAY_CHECK(refusal_.has_value());
  return Error(CodeAt(now), refusal_->message() + "; the batch was asked for " +
                                     std::to_string(refusals_) + " times within " + Told(now));
}

Error BatchRetry::LateError(const Error& late, Time now) const {
  const std::string text = late.message() + " within " + Told(now);
  if (!refusal_) return Error(CodeAt(now), text);
  return Error(CodeAt(now), text + "; before, the daemon said: " + refusal_->message());
}

}  // namespace forebay::internal
