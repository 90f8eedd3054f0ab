// The end of FOREBAY_CHECK. It prints with the C library and allocates nothing, because the heap
// may be what is broken; abort leaves a core file.
#include "proto/contract/check.h"

#include <cstdio>
#include <cstdlib>

namespace forebay::internal {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "CHECK failed at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace forebay::internal
