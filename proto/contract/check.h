// FOREBAY_CHECK: an invariant that only a programming error can break. On in every build:
// a daemon with a broken invariant must stop, not serve.
#pragma once

namespace forebay::internal {
// Prints "CHECK failed at <file>:<line>: <condition>" on stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace forebay::internal

#define FOREBAY_CHECK(condition)                                          \
  do {                                                                    \
    if (!(condition)) [[unlikely]] {                                      \
      ::forebay::internal::CheckFailed(__FILE__, __LINE__, #condition);   \
    }                                                                     \
  } while (false)
