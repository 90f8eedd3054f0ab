// BuildScratch: where the tables of a catalog under construction go when they outgrow memory.
#pragma once

#include <cstdint>
#include <string>

#include "proto/contract/limits.h"

namespace forebay::catalog {

struct BuildScratch {
  // Absolute; its file system must have unnamed files (O_TMPFILE) and should not be memory.
  // Empty: there is none, and a table that outgrows limits::kBuildTableNoScratchBytesMax fails
  // the build.
  std::string directory;
  std::uint64_t table_bytes = limits::kBuildTableBytesMax;  // of each table, kept in memory
};

}  // namespace forebay::catalog
