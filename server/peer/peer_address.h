// Checks addresses of nodes. Connections between nodes are not encrypted yet, so addresses of other
// machines are refused unless the configuration allows that.
#pragma once

#include <string_view>

#include "proto/contract/result.h"

namespace forebay::peer {

// `address` is "HOST:PORT" or "[HOST]:PORT". kInvalidArgument: it has another form.
// kFailedPrecondition: HOST is not a numeric loopback address, and plaintext is not allowed.
Status CheckPeerAddress(std::string_view address, bool allow_plaintext);

}  // namespace forebay::peer
