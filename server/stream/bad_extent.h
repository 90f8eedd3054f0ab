// BadExtent: a copy on a tier that a batch could not use, and what was wrong with it.
#pragma once

#include "proto/contract/result.h"
#include "server/tier/extent_cache.h"

namespace forebay::stream {

struct BadExtent {
  tier::ExtentRef extent;
  Error error;  // with an errno where the device failed; else the bytes were wrong
};

}  // namespace forebay::stream
