// RunCheck: runs one check in a child process. A file system that does not answer blocks the child
// and not the doctor; a check that is killed, for want of memory or by a signal of a broken mount,
// is a finding like others; and whatever a check opens ends with it.
#pragma once

#include <cstdint>
#include <functional>

#include "server/daemon/doctor/node_check.h"

namespace forebay::daemon {

// Blocks for `patience_ms` and a second at most. Calls `found` for each finding as soon as it is
// known, and for a failure at the end if the check did not end in time or ended without a finding.
// To be called in a process without other threads, because the child runs more than an exec.
void RunCheck(const Check& check, std::int64_t patience_ms,
              const std::function<void(const Finding&)>& found);

}  // namespace forebay::daemon
