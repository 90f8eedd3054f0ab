// Forebay's own codec behind the same interface as its peers.
#include "bench/codec/peer_table.h"

namespace forebay::bench {

Result<std::unique_ptr<Peer>> MakeForebayPeer(const ForebayOptions& options) {
  return Error(ErrorCode::kUnimplemented,
               "forebay_" + options.profile + ": compress/ has no codec yet");
}

}  // namespace forebay::bench
