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

}  // namespace

Remedy RemedyOf(FailureSource source, const Error& error) {
  return source == FailureSource::kGfs ? GfsRemedy(error) : LocalRemedy(error);
}

}  // namespace forebay
