#include "proto/contract/check.h"

#include <cstdio>
#include <cstdlib>

namespace forebay::internal {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "CHECK failed at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace forebay::internal
