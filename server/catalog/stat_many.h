// StatMany: sizes and modification times of many files. A GFS takes long for one request but serves
// many at a time, so several requests are kept in flight.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"

namespace forebay::catalog {

// Returns one result per path, in order. Blocks until all have arrived, and uses up to seven
// threads besides the caller's.
std::vector<Result<io::FileInfo>> StatMany(io::Directory& root,
                                           std::span<const std::string> paths);

}  // namespace forebay::catalog
