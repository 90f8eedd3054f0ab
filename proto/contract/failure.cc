// The table of remedies, one function for each source of errors. What is not listed fails: to
// repeat a call whose error is unknown could hide a permanent failure for as long as the retries
// last.
#include "proto/contract/failure.h"

#include <cerrno>

namespace forebay {
namespace {

Remedy GfsRemedy(const Error& error) {
  switch (error.system_errno()) {
    // Clients of Lustre, GPFS and NFS return these while a server restarts or fails over.
    case EIO: case ETIMEDOUT: case EAGAIN: case EREMOTEIO: case EHOSTDOWN: return Remedy::kRetry;
    // The handle will never work again, but the object may still be there.
    case ESTALE: case ENOTCONN: case ENODEV: return Remedy::kReopen;
    default: return Remedy::kFail;
  }
}

Remedy LocalRemedy(const Error& error) {
  switch (error.system_errno()) {
    // A local disk does not recover a sector, but the GFS has the bytes.
    case EIO: return Remedy::kFetchAgain;
    case EAGAIN: return Remedy::kRetry;
    // No system call failed: our own check found wrong bytes, or refused the request.
    case 0: return error.code() == ErrorCode::kDataLoss ? Remedy::kFetchAgain : Remedy::kFail;
    default: return Remedy::kFail;
  }
}

Remedy DaemonRemedy(const Error& error) {
  switch (error.code()) {
    // The GFS or memory was unavailable for longer than the daemon waits, and may be back now. A
    // batch that was late is asked for again by its name; the daemon keeps no state about it.
    case ErrorCode::kUnavailable: case ErrorCode::kAborted: case ErrorCode::kDeadlineExceeded:
      return Remedy::kRetry;
    default: return Remedy::kFail;
  }
}

}  // namespace

Remedy RemedyOf(FailureSource source, const Error& error) {
  switch (source) {
    case FailureSource::kGfs: return GfsRemedy(error);
    case FailureSource::kLocalSsd: return LocalRemedy(error);
    case FailureSource::kDaemon: break;
  }
  return DaemonRemedy(error);
}

}  // namespace forebay
