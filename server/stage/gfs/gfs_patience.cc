// Decides by the errno whether a failure is transient (failure.h), and by the clock whether there
// is time for another try. Times are those of the steady clock, because threads sleep by it.
#include "server/stage/gfs/gfs_patience.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/failure.h"
#include "proto/contract/mix64.h"
#include "server/io/log.h"
#include "server/stage/gfs/gfs_calls.h"

namespace forebay::stage {
namespace {

constexpr std::int64_t kFirstDelayMs = 20;

}  // namespace

std::int64_t GfsPatience::NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::optional<std::int64_t> GfsPatience::DelayMs(Attempt& attempt, const Error& error) {
  const Remedy remedy = RemedyOf(FailureSource::kGfs, error);
  if (remedy != Remedy::kRetry && remedy != Remedy::kReopen) return std::nullopt;
  const std::int64_t now_ns = NowNs();
  const MutexLock lock(mutex_);
  // The first failure of a call while no other call fails begins an incident, which is one line in
  // the log, however many calls and retries follow.
  if (attempt.failures == 0) {
    attempt.begun_ns = now_ns;
    if (figures_.failing == 0) {
      ++figures_.incidents;
      incident_begun_ns_ = now_ns;
      incident_retries_ = 0;
      figures_.last_error = error.message();
      log::Warn("the GFS fails: {}; trying again for up to {} s (stage.retry_for)",
                error.message(), options_.retry_for_ms / 1000);
    }
    ++figures_.failing;
  }
  ++attempt.failures;
  const std::int64_t left_ms =
      options_.retry_for_ms - (now_ns - attempt.begun_ns) / kNsPerMs;
  // The failure was counted above, because MakeFinal ends it again.
  if (stopping_ || left_ms <= 0) return std::nullopt;
  ++figures_.retries;
  ++incident_retries_;
  // Exponential backoff with jitter: the pause doubles, and half of it is random, so that the nodes
  // of a job do not all ask at once after an outage.
  const std::int64_t doubled = kFirstDelayMs << std::min(attempt.failures - 1, 20U);
  const std::int64_t whole = std::min(doubled, options_.retry_max_interval_ms);
  const std::uint64_t draw = Mix64(static_cast<std::uint64_t>(now_ns) + figures_.retries);
  const std::int64_t delay =
      whole / 2 + static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(whole / 2 + 1));
  // The pause ends no later than the time that is left, so that one more try is made at the limit.
  return std::clamp<std::int64_t>(delay, 1, left_ms);
}

Error GfsPatience::MakeFinal(Attempt& attempt, Error error) {
  if (attempt.failures == 0) return error;
  const std::int64_t failed_ms = (NowNs() - attempt.begun_ns) / kNsPerMs;
  End(attempt, /*has_succeeded=*/false);
  const Remedy remedy = RemedyOf(FailureSource::kGfs, error);
  // A final error after transient ones: the GFS works again, and this error is its answer.
  if (remedy == Remedy::kFail) return error;
  return Error(ErrorCode::kUnavailable,
               error.message() + "; the GFS has failed for " + std::to_string(failed_ms) +
                   " ms (stage.retry_for limits how long calls are repeated)",
               error.system_errno());
}

void GfsPatience::End(Attempt& attempt, bool has_succeeded) {
  attempt.failures = 0;
  const MutexLock lock(mutex_);
  FOREBAY_CHECK(figures_.failing > 0);
  --figures_.failing;
  if (!has_succeeded) ++figures_.given_up;
  // The incident ends with its last call, which has the one line at the end.
  if (figures_.failing > 0) return;
  const double seconds =
      static_cast<double>(NowNs() - incident_begun_ns_) / (1000.0 * kNsPerMs);
  if (has_succeeded) {
    log::Warn("the GFS answers again after {:.1f} s and {} retries", seconds,
              incident_retries_);
  } else {
    log::Error("calls to the GFS failed for {:.1f} s and {} retries, and were given up; check the "
               "file system, then run 'forebay stage': {}",
               seconds,
               incident_retries_, figures_.last_error);
  }
}

void GfsPatience::Sleep(std::int64_t ms) {
  const MutexLock lock(mutex_);
  stopped_.WaitFor(mutex_, std::chrono::milliseconds(ms),
                   [this]() FOREBAY_REQUIRES(mutex_) { return stopping_; });
}

void GfsPatience::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  stopped_.NotifyAll();
}

bool GfsPatience::is_stopping() const {
  const MutexLock lock(mutex_);
  return stopping_;
}

GfsFigures GfsPatience::figures() const {
  const MutexLock lock(mutex_);
  return figures_;
}

}  // namespace forebay::stage
