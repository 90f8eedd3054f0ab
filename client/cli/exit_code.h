// The exit codes of `forebay`, documented in docs/cli.md and by `forebay --help`.
#pragma once

#include "proto/contract/result.h"

namespace forebay::cli {

enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,    // anything without a code of its own
  kUsage = 2,      // the command line is wrong
  kViolation = 3,  // the answer is no: damaged extents, a failed audit, a part not staged
  kNoDaemon = 4,   // no daemon answers at the address
  kNotFound = 5,   // no such data set, selection or file
  kRefused = 6,    // another user's or job's daemon, another version or configuration
  kNoRoom = 7,     // the tiers, the slots or another limit are too small for what was asked
};

inline ExitCode ExitCodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnavailable: return ExitCode::kNoDaemon;
    case ErrorCode::kNotFound: return ExitCode::kNotFound;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kOutOfRange: return ExitCode::kUsage;
    case ErrorCode::kPermissionDenied:
    case ErrorCode::kFailedPrecondition:
    case ErrorCode::kUnauthenticated: return ExitCode::kRefused;
    case ErrorCode::kResourceExhausted: return ExitCode::kNoRoom;
    case ErrorCode::kDataLoss: return ExitCode::kViolation;
    default: return ExitCode::kFailure;
  }
}

}  // namespace forebay::cli
