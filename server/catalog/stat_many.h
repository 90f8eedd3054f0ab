// StatMany: sizes and times of many files at once. A GFS answers each request slowly but many
// at a time, so the requests of one directory are kept in flight together.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"

namespace forebay::catalog {

// One result per path, in order. Blocks until all are there; uses up to eight threads of its own.
std::vector<Result<io::FileInfo>> StatMany(io::Directory& root,
                                           std::span<const std::string> paths);

}  // namespace forebay::catalog
