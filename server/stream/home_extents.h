// Which extents a rank reads in every epoch: in mode partial, those of its home share.
#pragma once

#include <vector>

#include "proto/contract/ids.h"
#include "server/stream/stream_spec.h"

namespace forebay::stream {

// The extents that hold the home shares of the canonical nodes whose part of each step the
// stream's rank reads (docs/order.md, section 4); those with most of its samples come first. Of
// very many samples, some are looked at. Empty in other modes, where every epoch has other samples
// for a rank, and for packs.
std::vector<ExtentId> HomeExtents(const StreamSpec& spec);

}  // namespace forebay::stream
