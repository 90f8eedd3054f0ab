// ShareBorrower: keeps this node's share of the job's caps on the GFS, takes that of a lost node if
// this node is its heir, and borrows parts of the shares of others while this node needs more.
// CapShare decides whom it asks, and for what.
#pragma once

#include <cstdint>

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

  // Call about once a second; without effect if it is called sooner. Does not wait for answers.
  void Tick();

 private:
  void LogChanges();

  GfsThrottle& throttle_;
  ShareSource& source_;
  const plan::Membership& nodes_;
  io::Clock& clock_;
  std::int64_t next_ns_ = 0;  // before this time, Tick does nothing
  CapShare::Held held_;     // as the log says it
  bool has_lost_ = false;   // likewise: its own share
};

}  // namespace forebay::stage
