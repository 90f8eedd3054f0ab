// ReadMeans: what the bytes of pinned extents are read with.
#pragma once

#include <span>
#include <vector>

#include "server/io/io_backend.h"
#include "server/tier/extent_cache.h"
#include "server/tier/piece_reader.h"

namespace forebay::fetch {

// Everything is borrowed.
struct ReadMeans {
  std::span<const tier::ExtentRef> refs;  // in the order in which their user has listed them
  io::IoQueue& queue;
  std::vector<tier::BadExtent>& bad;  // receives extents whose bytes were wrong
};

}  // namespace forebay::fetch
