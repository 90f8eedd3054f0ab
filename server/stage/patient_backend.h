// PatientBackend: a back end through which the GFS is used with patience. A call that fails as a
// file system does while its servers are restarted (proto/contract/failure.h) is made again, with
// growing pauses, until it succeeds or `retry_for_ms` is over. Everything above sees a slow GFS
// instead of a failed one: cataloguing, staging and streams need no retry of their own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/stage/gfs_calls.h"

namespace forebay::stage {

struct PatienceOptions {
  std::int64_t retry_for_ms = 300'000;         // of one call; 0: a failure is final at once
  std::int64_t retry_max_interval_ms = 3'000;  // the longest pause between two tries
};

// What the GFS did to this daemon, since its start.
struct GfsFigures {
  std::uint64_t incidents = 0;  // times at which it began to fail, having worked
  std::uint64_t retries = 0;    // calls that were made again
  std::uint64_t given_up = 0;   // calls that never succeeded
  std::uint64_t failing = 0;    // calls that are being repeated now
  std::string last_error;       // of the latest incident; empty: there was none
};

// Decides about repetition, counts, and writes one line when an incident begins and one when it
// ends, never one per try. Thread-safe.
class GfsPatience {
 public:
  explicit GfsPatience(const PatienceOptions& options) : options_(options) {}

  // One call and its repetitions.
  struct Attempt {
    std::int64_t begun_ns = 0;
    std::uint32_t failures = 0;
  };

  // After a failure: milliseconds to wait before the next try, or nullopt where the error is
  // final: not transient, time used up, or the daemon stops. Then MakeFinal words it.
  std::optional<std::int64_t> DelayMs(Attempt& attempt, const Error& error);
  // The error of a call that is not repeated. Where it was repeated before: kUnavailable, so
  // that who asks later tries anew, with how long the GFS failed.
  Error MakeFinal(Attempt& attempt, Error error);
  // The call succeeded after all. Cheap where it never failed.
  void Succeeded(Attempt& attempt) {
    if (attempt.failures > 0) End(attempt, /*has_succeeded=*/true);
  }

  // Sleeps, at most until Stop.
  void Sleep(std::int64_t ms);
  // From now on nothing is repeated, and whoever sleeps wakes.
  void Stop();
  bool is_stopping() const;
  GfsFigures figures() const;

 private:
  void End(Attempt& attempt, bool has_succeeded);

  const PatienceOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  GfsFigures figures_;
  std::uint64_t incident_retries_ = 0;
  std::int64_t incident_begun_ns_ = 0;
};

// Everything is borrowed. `calls` knows each call while it is under way. Thread-safe as `inner` is.
class PatientBackend final : public io::IoBackend {
 public:
  PatientBackend(io::IoBackend& inner, GfsPatience& patience, GfsCalls& calls)
      : inner_(inner),
        patience_(patience),
        calls_(calls),
        name_("patient(" + std::string(inner.name()) + ")") {}

  std::string_view name() const override { return name_; }
  // Of the local node: not repeated.
  Result<std::unique_ptr<io::Directory>> OpenDirectory(std::string_view path) override {
    return inner_.OpenDirectory(path);
  }
  // Of the GFS: this call is made once, so that a wrong path is said at once; the directory's own
  // calls and reads of its files are repeated. A root whose mount went stale is opened again.
  Result<std::unique_ptr<io::Directory>> OpenGfsDirectory(std::string_view path);
  // Takes operations on files of both kinds.
  Result<std::unique_ptr<io::IoQueue>> CreateQueue(const io::QueueOptions& options) override;

 private:
  io::IoBackend& inner_;
  GfsPatience& patience_;
  GfsCalls& calls_;
  const std::string name_;
};

}  // namespace forebay::stage
