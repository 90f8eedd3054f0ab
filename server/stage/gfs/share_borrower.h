// ShareBorrower: borrows parts of the shares of other nodes while this node needs more of the GFS
// than its own share of the job's caps. CapShare decides whom it asks and for how much.
#pragma once

#include "server/io/clock.h"
#include "server/plan/membership.h"
#include "server/stage/gfs/gfs_throttle.h"
#include "server/stage/gfs/share_source.h"

namespace forebay::stage {

// Used by one thread. Everything is borrowed, and must outlive the requests of `source`.
class ShareBorrower {
 public:
  ShareBorrower(GfsThrottle& throttle, ShareSource& source, const plan::Membership& nodes,
                io::Clock& clock)
      : throttle_(throttle), source_(source), nodes_(nodes), clock_(clock) {}

  // Call about once a second. Does not wait for answers.
  void Tick();

 private:
  GfsThrottle& throttle_;
  ShareSource& source_;
  const plan::Membership& nodes_;
  io::Clock& clock_;
};

}  // namespace forebay::stage
