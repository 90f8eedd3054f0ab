// BuildScratch: where a catalog build puts tables that outgrow their share of memory.
#pragma once

#include <cstdint>
#include <string>

#include "proto/contract/limits.h"

namespace forebay::catalog {

struct BuildScratch {
  // Absolute. Its file system must support unnamed files (O_TMPFILE) and should not be a tmpfs.
  // Empty: there is no scratch directory, and a table that outgrows
  // limits::kBuildTableNoScratchBytesMax fails the build.
  std::string directory;
  std::uint64_t table_bytes = limits::kBuildTableBytesMax;  // that each table may keep in memory
};

}  // namespace forebay::catalog
