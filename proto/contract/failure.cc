#include "proto/contract/failure.h"

#include <cerrno>

namespace forebay {
namespace {

Remedy GfsRemedy(const Error& error) {
  switch (error.system_errno()) {
    // What clients of Lustre, GPFS and NFS answer while a server is restarted or failed over.
    case EIO: case ETIMEDOUT: case EAGAIN: case EREMOTEIO: case EHOSTDOWN: return Remedy::kRetry;
    // The handle will never work again, but the object may still be there.
    case ESTALE: case ENOTCONN: case ENODEV: return Remedy::kReopen;
    default: return Remedy::kFail;
  }
}

Remedy LocalRemedy(const Error& error) {
  switch (error.system_errno()) {
    case EIO: return Remedy::kFetchAgain;
    case EAGAIN: return Remedy::kRetry;
    case 0: return error.code() == ErrorCode::kDataLoss ? Remedy::kFetchAgain : Remedy::kFail;
    default: return Remedy::kFail;
  }
}

Remedy DaemonRemedy(const Error& error) {
  switch (error.code()) {
    // The GFS or memory was away for longer than the daemon waits; it may be back. A batch that
    // was late is asked for again by its name.
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
