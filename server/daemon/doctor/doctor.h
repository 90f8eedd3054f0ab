// ExamineNode: `forebayd --doctor`, and `forebay doctor`, which runs it: tries on this node what a
// job of this configuration needs, and says for each thing whether it is right, what was measured,
// and what to do.
//
//   const FindingCounts counts =
//       ExamineNode(ChecksOf(config, clock), clock, {},
//                   [](const Finding& finding) { fmt::print("{}", FindingText(finding)); });
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "server/daemon/config/config.h"
#include "server/daemon/doctor/node_check.h"
#include "server/io/clock.h"

namespace forebay::daemon {

struct DoctorPatience {
  std::int64_t check_ms = 10'000;  // for one check
  std::int64_t total_ms = 60'000;  // for all: no check begins after this time
};

// The table of checks, in the order in which they run. Borrows its arguments.
std::vector<Check> ChecksOf(const Config& config, const io::Clock& clock);

// Runs the checks one after the other, so that no measurement disturbs another, each in a process
// of its own (RunCheck). Calls `found` for each finding as soon as it is known.
FindingCounts ExamineNode(std::span<const Check> checks, const io::Clock& clock,
                          const DoctorPatience& patience,
                          const std::function<void(const Finding&)>& found);

}  // namespace forebay::daemon
