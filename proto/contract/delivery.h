// Delivery: the two ways in which a minibatch arrives. In a file of its own because the client's
// public headers include it, and must not show the layouts of the wire beside it.
#pragma once

#include <cstdint>

namespace forebay {

// Sent by number; never renumber.
enum class Delivery : std::uint32_t {
  kContiguous = 1,  // fixed-size fields gathered into one tensor, the rest packed, in a slot
  kViews = 2,       // spans into the RAM tier (or a slot): no copy
};

}  // namespace forebay
