// The exit codes of `forebay`, documented in docs/cli.md, by `forebay --help` and in its manual.
#pragma once

#include <array>
#include <string_view>

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

struct ExitCodeMeaning {
  int code;
  std::string_view meaning;
};
// For people. 130 is the shell's for a program that SIGINT ended.
inline constexpr std::array<ExitCodeMeaning, 9> kExitCodeMeanings = {{
    {0, "done"},
    {1, "failed, for a reason without a code of its own"},
    {2, "the command line is wrong"},
    {3, "the check failed: damage found, audit failed, not everything staged"},
    {4, "no daemon answers at the address"},
    {5, "no such data set, selection or file"},
    {6, "refused: another user's or job's daemon, or another version or configuration"},
    {7, "no space: the tiers, the slots or another limit are too small for the request"},
    {130, "interrupted"},
}};

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
