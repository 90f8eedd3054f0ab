// Delivery: the two ways in which a minibatch arrives. It has a file of its own because the
// client's public headers include it, and they must not show the layouts in wire_layout.h.
#pragma once

#include <cstdint>

namespace forebay {

// Sent by number; never renumber.
enum class Delivery : std::uint32_t {
  kContiguous = 1,  // in a slot: fixed-size fields as one tensor, other fields one after another
  kViews = 2,       // spans that point into the RAM tier (or a slot), without a copy
};

}  // namespace forebay
