// BatchRetry: how long one Next or Pull goes on asking for its batch, and what its failures say
// together.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "client/connection/connection_source.h"
#include "proto/contract/result.h"

namespace forebay::internal {

// Made when the call begins. Does not look at a clock: times are the caller's.
class BatchRetry {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `caller_end`: the caller waits no longer, whatever the retries' limit says.
  BatchRetry(Time began, std::chrono::milliseconds retry_for, Time caller_end = Time::max())
      : began_(began),
        retry_end_(began + retry_for),
        caller_end_(caller_end),
        backoff_(static_cast<std::uint64_t>(began.time_since_epoch().count())) {}

  // Until when to wait from `now` on. The first wait is never cut short by the retries' limit, but
  // by the caller's deadline.
  Time Deadline(Time now) const;
  bool IsCallersTimeOver(Time now) const { return now >= caller_end_; }
  // After the daemon's `refusal`: when to ask again, jittered, or nullopt once the time is used up.
  std::optional<Time> ResumeAfter(const Error& refusal, Time now);
  // Whether a batch that was not there by its deadline is waited for any longer.
  bool MayWaitOn(Time now);

  // What the caller is told in the end: the daemon's last refusal, or that nothing came (`late`).
  // Where the caller's own deadline ended it: kDeadlineExceeded.
  Error RefusedError(Time now) const;
  Error LateError(const Error& late, Time now) const;

 private:
  std::string Told(Time now) const;
  ErrorCode CodeAt(Time now) const;

  const Time began_;
  const Time retry_end_;
  const Time caller_end_;
  Backoff backoff_;
  bool has_failed_ = false;
  std::uint64_t refusals_ = 0;
  std::optional<Error> refusal_;  // the last
};

}  // namespace forebay::internal
