// Names of error codes, and the mapping from errno to a code. The mapping decides only what a
// caller may read from the code; whether a failed call is repeated is decided by failure.h, which
// sees the errno.
#include "proto/contract/result.h"

#include <cerrno>
#include <system_error>

namespace forebay {

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kCancelled: return "CANCELLED";
    case ErrorCode::kUnknown: return "UNKNOWN";
    case ErrorCode::kInvalidArgument: return "INVALID_ARGUMENT";
    case ErrorCode::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case ErrorCode::kNotFound: return "NOT_FOUND";
    case ErrorCode::kAlreadyExists: return "ALREADY_EXISTS";
    case ErrorCode::kPermissionDenied: return "PERMISSION_DENIED";
    case ErrorCode::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case ErrorCode::kFailedPrecondition: return "FAILED_PRECONDITION";
    case ErrorCode::kAborted: return "ABORTED";
    case ErrorCode::kOutOfRange: return "OUT_OF_RANGE";
    case ErrorCode::kUnimplemented: return "UNIMPLEMENTED";
    case ErrorCode::kInternal: return "INTERNAL";
    case ErrorCode::kUnavailable: return "UNAVAILABLE";
    case ErrorCode::kDataLoss: return "DATA_LOSS";
    case ErrorCode::kUnauthenticated: return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

namespace {

ErrorCode CodeOfErrno(int system_errno) {
  switch (system_errno) {
    // ELOOP and EXDEV come from openat2, for a path that leaves its root (docs/design.md, P7).
    case ENOENT: case ENOTDIR: case ESRCH: return ErrorCode::kNotFound;
    case EEXIST: return ErrorCode::kAlreadyExists;
    case EACCES: case EPERM: case ELOOP: case EXDEV: return ErrorCode::kPermissionDenied;
    case ENOSPC: case EDQUOT: case EMFILE: case ENFILE: case ENOMEM:
      return ErrorCode::kResourceExhausted;
    case EINVAL: case ENAMETOOLONG: case EISDIR: return ErrorCode::kInvalidArgument;
    // A read error of a device means that these bytes are lost, at least in this copy.
    case EIO: return ErrorCode::kDataLoss;
    case ETIMEDOUT: return ErrorCode::kDeadlineExceeded;
    case EAGAIN: case EINTR: case ECONNREFUSED: case ECONNRESET: case EPIPE:
      return ErrorCode::kUnavailable;
    case ECANCELED: return ErrorCode::kCancelled;
    case ENOSYS: case EOPNOTSUPP: return ErrorCode::kUnimplemented;
    default: return ErrorCode::kUnknown;
  }
}

// Returns an explanation of errors whose text from the system does not say what is wrong.
std::string_view HintOf(int system_errno) {
  switch (system_errno) {
    // openat2 refuses such paths, because nothing outside the root may be opened.
    case EXDEV: return " (a symbolic link leads out of the directory that may be opened)";
    case ELOOP: return " (symbolic links form a loop, or one stands where none is allowed)";
    default: return "";
  }
}

}  // namespace

Error Error::FromErrno(int system_errno, std::string_view what) {
  std::string message(what);
  message += ": ";
  message += std::generic_category().message(system_errno);
  message += HintOf(system_errno);
  return Error(CodeOfErrno(system_errno), std::move(message), system_errno);
}

Error Error::WithContext(std::string_view context) const {
  std::string message(context);
  message += ": ";
  message += message_;
  return Error(code_, std::move(message), errno_);
}

std::string Error::ToString() const {
  std::string text(ErrorCodeName(code_));
  text += ": ";
  text += message_;
  return text;
}

}  // namespace forebay
