// What the caller of a failed call should do: one table for the whole service, so that no room
// decides by itself whether an EIO is worth another try.
#pragma once

#include <cstdint>

#include "proto/contract/result.h"

namespace forebay {

// Where the call was made. The same errno means different things on the two sides: EIO of a
// parallel file system is often over in seconds, EIO of a local disk is a lost copy. kDaemon is
// what a daemon answers to a client that asks it for a batch: it has tried what is above before.
enum class FailureSource : std::uint8_t { kGfs, kLocalSsd, kDaemon };

enum class Remedy : std::uint8_t {
  kRetry,       // the same call may succeed soon: wait, and call again
  kReopen,      // likewise, after the file or directory was opened anew
  kFetchAgain,  // this copy is lost; the GFS has the bytes
  kFail,        // calling again changes nothing
};

// The table. An error without an errno was found by our own checks: a checksum, a length. A
// daemon's errors have none that counts: they are told apart by their code.
Remedy RemedyOf(FailureSource source, const Error& error);

}  // namespace forebay
