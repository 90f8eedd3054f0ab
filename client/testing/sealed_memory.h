// Shared memory as a daemon passes it, for tests and fuzz targets.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "proto/contract/unique_fd.h"

namespace forebay::testing {

// A memfd of zeros that can neither shrink nor grow; invalid where the system refuses.
inline UniqueFd MakeSealedMemory(std::uint64_t bytes) {
  UniqueFd memfd(::memfd_create("forebay-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd.valid() || ::ftruncate(memfd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return UniqueFd();
  }
  return memfd;
}

}  // namespace forebay::testing
