// Result and Error: how every Forebay call that can fail reports its outcome.
//
// Bytes from disk, peers, clients and configuration produce an Error; broken invariants
// produce FOREBAY_CHECK (see check.h). Exceptions never cross a room's boundary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace forebay {

// gRPC's canonical code numbers, so that conversion to and from the wire is a cast.
enum class ErrorCode : std::uint8_t {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,   // the request is wrong in any state of the system
  kDeadlineExceeded = 4,  // no answer in time; the outcome is unknown
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,   // a published limit or a full tier; the message names the limit
  kFailedPrecondition = 9,  // valid request, wrong state (a changed object, another OrderSpec)
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,  // may succeed when tried again: peer gone, daemon draining
  kDataLoss = 15,     // bytes do not match their checksum, or a file is truncated
  kUnauthenticated = 16,
};

// The code's name as gRPC writes it, for example "DATA_LOSS".
std::string_view ErrorCodeName(ErrorCode code);

// The reason why a call failed. A value type; cheap to move. Messages contain ids, offsets, paths,
// limits and remedies, but never payload bytes or secrets.
class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string message, int system_errno = 0)
      : code_(code), errno_(system_errno), message_(std::move(message)) {}

  // Maps an errno to the nearest code and appends its text: "<what>: No space left on device".
  static Error FromErrno(int system_errno, std::string_view what);

  ErrorCode code() const { return code_; }
  int system_errno() const { return errno_; }  // 0 if no system call failed
  const std::string& message() const { return message_; }

  // True if the same call may succeed when it is repeated later.
  bool retryable() const {
    return code_ == ErrorCode::kUnavailable || code_ == ErrorCode::kAborted;
  }

  // Returns this error with "<context>: " before its message.
  Error WithContext(std::string_view context) const;

  // "DATA_LOSS: <message>".
  std::string ToString() const;

 private:
  ErrorCode code_;
  int errno_;
  std::string message_;
};

// A value of type T or an Error. The compiler warns if a caller drops it.
template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
  Result(Error error) : tl::expected<T, Error>(tl::unexpect, std::move(error)) {}  // NOLINT
};

using Status = Result<void>;

}  // namespace forebay

#define FOREBAY_CONCAT_INNER(a, b) a##b
#define FOREBAY_CONCAT(a, b) FOREBAY_CONCAT_INNER(a, b)

// Returns the error of `expression` (a Status or Result) from the enclosing function, if any.
#define FOREBAY_TRY(expression)                                  \
  do {                                                           \
    auto&& forebay_try_result = (expression);                    \
    if (!forebay_try_result.has_value()) [[unlikely]] {          \
      return ::forebay::Error(std::move(forebay_try_result.error())); \
    }                                                            \
  } while (false)

// FOREBAY_ASSIGN(auto x, F()): x takes F()'s value, or the enclosing function returns its error.
#define FOREBAY_ASSIGN(lhs, expression)                                            \
  auto FOREBAY_CONCAT(forebay_result_, __LINE__) = (expression);                   \
  if (!FOREBAY_CONCAT(forebay_result_, __LINE__).has_value()) [[unlikely]] {       \
    return ::forebay::Error(                                                       \
        std::move(FOREBAY_CONCAT(forebay_result_, __LINE__).error()));             \
  }                                                                                \
  lhs = std::move(FOREBAY_CONCAT(forebay_result_, __LINE__)).value()
