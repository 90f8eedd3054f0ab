// What a fault case makes gfs_emu do, and its expected outcome (docs/failures.md).
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "forebay/v1/admin.pb.h"
#include "proto/contract/result.h"
#include "tests/fault/fault_case.h"
#include "tests/fault/ssd_disk.h"

namespace forebay::fault {

// The rule of a fault of the GFS for gfs_emu, without the word "fault". Outages answer an errno
// that is transient (proto/contract/failure.h), which the case draws. Not EAGAIN: io_uring repeats
// such a read in the kernel, without a pause, and nobody hears of it.
std::string GfsRule(const FaultCase& fault_case, FaultKind kind);

// Streaming where the tiers hold the data set and the GFS fails, or the SSD is full: only the
// first epoch reads the GFS and writes the SSD. The others fail under a staged data set.
bool MeetsFirstEpoch(const FaultCase& fault_case);

struct Expectation {
  // Codes of the errors that batches may end with. Only UNAVAILABLE: all comes when it is asked for
  // again. Empty: there are none, and the epoch is whole at once.
  std::set<ErrorCode> errors;
  // Of order 'global', where the tiers that are left do not hold the data set.
  bool may_be_refused = false;
  // Once the faults are over and it was staged again, all of the data set lies on the tiers; or
  // it cannot. Neither: it depends on what the faults left.
  bool is_staged = false;
  bool is_partly_staged = false;
};
Expectation ExpectationOf(const FaultCase& fault_case);

// The defect for whose mend the case waits; empty where it is expected to pass. Such a case is
// run by a soak, which says what came of it, and is no failure.
std::string_view WhyAwaited(const FaultCase& fault_case);

// What `status` says and is not so, or cannot be; nothing is under way. `ssd` may be null.
std::vector<std::string> UntruthsOf(const FaultCase& fault_case, const v1::StatusReply& status,
                                    const SsdDisk* ssd);
// Faults that `status` should have counted, and has not.
std::vector<std::string> UncountedIn(const FaultCase& fault_case, const v1::StatusReply& status);

}  // namespace forebay::fault
