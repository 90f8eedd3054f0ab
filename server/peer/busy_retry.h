// BusyRetry: decides whether a call is made again that a node has refused because it answers as
// many as it may (stage::TooBusy). Such a node is neither dead nor wrong: it has room again as soon
// as it has answered others. So the call is repeated until its deadline. A call whose connection
// was lost while the node waited for the GFS is made once more, as gRPC does with others. A call
// that was not sent before its deadline (stage::NotSent) is not made again.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "proto/contract/result.h"
#include "server/stage/extent_source.h"
#include "server/stage/growing_pause.h"

namespace forebay::peer {

// What one request knows of its calls so far. A value type; not thread-safe.
class BusyRetry {
 public:
  // Returns when the call that has failed with `error` is to be made again, or nothing if it is
  // not: it failed for another reason, or the deadline comes first. Times are by io::Clock.
  // `was_interrupted`: as PeerCall says.
  std::optional<std::int64_t> AgainNs(const Error& error, std::int64_t now_ns,
                                      std::int64_t deadline_ns, bool was_interrupted = false) {
    if (was_interrupted && error.code() == ErrorCode::kUnavailable) {
      if (std::exchange(has_second_attempt_, true)) return std::nullopt;
      if (kSecondAttemptNs >= deadline_ns - now_ns) return std::nullopt;
      return now_ns + kSecondAttemptNs;
    }
    if (!stage::IsTooBusy(error) || stage::IsNotSent(error)) return std::nullopt;
    refusal_ = error;
    const std::int64_t pause_ns = pause_.NextNs();
    if (pause_ns >= deadline_ns - now_ns) return std::nullopt;
    return now_ns + pause_ns;
  }

  // Returns the error of the request, of which the last call has failed with `error`. A node that
  // has refused calls, and did not answer the last one before the deadline, is busy and not dead.
  Error Outcome(const Error& error) const {
    return refusal_ && error.code() == ErrorCode::kDeadlineExceeded ? *refusal_ : error;
  }

 private:
  // As long as gRPC's pause (channel_settings.cc), for the same reasons.
  static constexpr std::int64_t kSecondAttemptNs = 200'000'000;
  bool has_second_attempt_ = false;
  stage::GrowingPause pause_;
  std::optional<Error> refusal_;  // the last one
};

}  // namespace forebay::peer
