// Conversion of what gRPC reports into Forebay's errors.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <grpcpp/support/status.h>

#include "proto/contract/result.h"

namespace forebay::internal {

// The code of a number from the wire; kUnknown for one that does not exist.
inline ErrorCode ErrorCodeFromNumber(std::uint32_t number) {
  const bool known = number >= 1 && number <= static_cast<std::uint32_t>(
                                                  ErrorCode::kUnauthenticated);
  return known ? static_cast<ErrorCode>(number) : ErrorCode::kUnknown;
}

// A daemon that stops cancels its calls and what is under way in them, which is worth trying again.
// To the caller kCancelled means its own Cancel, and nothing else.
inline Error FromDaemon(Error error) {
  if (error.code() != ErrorCode::kCancelled) return error;
  return Error(ErrorCode::kUnavailable, "cancelled by the daemon: " + error.message());
}

// The error of a call that did not end with OK.
inline Error ErrorFromRpc(const grpc::Status& status) {
  return FromDaemon(Error(ErrorCodeFromNumber(static_cast<std::uint32_t>(status.error_code())),
                          status.error_message()));
}

inline Status StatusFromRpc(const grpc::Status& status) {
  if (status.ok()) return {};
  return ErrorFromRpc(status);
}

}  // namespace forebay::internal
