// ShareSource: interface to the other nodes of the job, which lend parts of their shares of its
// caps, and grant leases of shares (CapShare). A transport of `peer` carries a request; GfsThrottle
// answers on the other node.
#pragma once

#include <cstdint>
#include <functional>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/stage/gfs/cap_share.h"

namespace forebay::stage {

// Thread-safe.
class ShareSource {
 public:
  virtual ~ShareSource() = default;
  using Answered = std::function<void(const Result<ShareAnswer>&)>;
  // Asks `node`. Calls `answered` once, before or soon after the deadline, by io::Clock, from any
  // thread; perhaps within this call.
  virtual void Borrow(NodeRank node, const ShareAsk& ask, std::int64_t deadline_ns,
                      Answered answered) = 0;
};

}  // namespace forebay::stage
