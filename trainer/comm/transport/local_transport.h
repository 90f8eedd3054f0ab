// Ranks as threads of one process: for tests, and for several stages on one accelerator.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/comm/transport/transport.h"

namespace forebay::train {

// The ends of a group of `size` ranks, by rank; each is used by one thread. A message is copied
// once, by whichever end comes second. An end that is destroyed, or that aborts, fails the
// transfers of its peers with kUnavailable.
std::vector<std::unique_ptr<Transport>> MakeLocalTransports(std::uint32_t size);

}  // namespace forebay::train
