// ShareSource: interface to the other nodes of the job, which lend parts of their shares of its
// caps (CapShare). A transport of `peer` carries a request; GfsThrottle answers on the other node.
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
  using Lent = std::function<void(const Result<CapRates>&)>;
  // Asks `lender` for at most so much. Calls `lent` once, before or soon after the deadline, by
  // io::Clock, from any thread; perhaps within this call.
  virtual void Borrow(NodeRank lender, const CapRates& wanted, std::int64_t deadline_ns,
                      Lent lent) = 0;
};

}  // namespace forebay::stage
