// GfsPatience: how long failed calls to the GFS are repeated, and with which pauses. All calls
// share one, so that an outage is one incident, however many calls it hits. PatientBackend asks it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::stage {

struct PatienceOptions {
  std::int64_t retry_for_ms = 300'000;         // for one call; 0: the first error is final
  std::int64_t retry_max_interval_ms = 3'000;  // the longest pause between two tries
};

// Failures of the GFS since the daemon's start. An incident begins when a call fails while no
// other call is failing, and ends when no call is failing any more.
struct GfsFigures {
  std::uint64_t incidents = 0;
  std::uint64_t retries = 0;    // repetitions of calls
  std::uint64_t given_up = 0;   // calls that failed and never succeeded
  std::uint64_t failing = 0;    // calls that are being repeated now
  std::string last_error;       // the first error of the last incident; empty: no incident
};

// Decides whether a call is repeated, counts, and logs one line when an incident begins and one
// when it ends, never one per try. Thread-safe.
class GfsPatience {
 public:
  explicit GfsPatience(const PatienceOptions& options) : options_(options) {}

  // One call including its retries.
  struct Attempt {
    std::int64_t begun_ns = 0;
    std::uint32_t failures = 0;
  };

  // After a failure: milliseconds to wait before the next try, or nullopt if the error is final,
  // because it is not transient, the time is used up, or the daemon stops. Call MakeFinal then.
  std::optional<std::int64_t> DelayMs(Attempt& attempt, const Error& error);
  // The error to return for a call that is not repeated any more. A transient error becomes
  // kUnavailable, with how long the GFS failed, so that a later call may try again.
  Error MakeFinal(Attempt& attempt, Error error);
  // The call succeeded. Cheap if it never failed.
  void Succeeded(Attempt& attempt) {
    if (attempt.failures > 0) End(attempt, /*has_succeeded=*/true);
  }

  // The time by which pauses are measured: that of the steady clock, in nanoseconds.
  static std::int64_t NowNs();
  // Sleeps, at most until Stop.
  void Sleep(std::int64_t ms);
  // From now on nothing is repeated, and sleeping threads wake.
  void Stop();
  bool is_stopping() const;
  GfsFigures figures() const;

 private:
  void End(Attempt& attempt, bool has_succeeded);

  const PatienceOptions options_;
  mutable Mutex mutex_;
  CondVar stopped_;
  bool stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  GfsFigures figures_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t incident_retries_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::int64_t incident_begun_ns_ FOREBAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace forebay::stage
