// RemedyOf: what the caller of a failed call should do. There is one table for the whole service,
// so that no room decides by itself whether to repeat a call after an EIO.
#pragma once

#include <cstdint>

#include "proto/contract/result.h"

namespace forebay {

// What the call was made to. One errno can mean different things: EIO of a parallel file system is
// often over in seconds, EIO of a local disk is a lost copy. kDaemon is a daemon's answer to a
// client that asked for a batch; the daemon has applied the remedies for its own calls before.
enum class FailureSource : std::uint8_t { kGfs, kLocalSsd, kDaemon };

enum class Remedy : std::uint8_t {
  kRetry,       // the same call may succeed soon: wait, and call again
  kReopen,      // open the file or directory again, and call again
  kFetchAgain,  // this copy is lost; the GFS has the bytes
  kFail,        // calling again changes nothing
};

// The table. An error without an errno comes from a check of ours, of a checksum or a length. The
// errors of a daemon have no usable errno, so their code decides.
Remedy RemedyOf(FailureSource source, const Error& error);

}  // namespace forebay
