// GfsCaps: the caps on the job's use of the GFS, as the configuration says, and what follows from
// them for one node.
#pragma once

#include <cstdint>
#include <string>

#include "proto/contract/result.h"
#include "server/daemon/config/config.h"
#include "server/stage/gfs/cap_share.h"

namespace forebay::daemon {

struct GfsCaps {
  stage::CapRates rates = {};    // of the job; 0: none
  std::uint64_t requests = 0;    // of the job; 0: none

  // Reads the caps from the configuration. Errors name the key.
  static Result<GfsCaps> Of(const Config& config);
  bool has_any() const { return rates != stage::CapRates{} || requests > 0; }
  // Returns text such as "50000000 bytes/s, 100 opens/s, 64 requests", or "none", by which nodes
  // compare their caps.
  std::string Text() const;
  // The size of a GFS read: `request_bytes`, or less where that would take longer than a node may
  // save up, so that the cap holds within short times, too.
  std::uint64_t RequestBytes(std::uint64_t request_bytes, std::uint32_t node_count) const;
  // Files whose sizes a node is asked for in one request: so few that it gets them from the GFS
  // long before the request's deadline.
  std::size_t StatBatchPaths(std::uint32_t node_count) const;
  // Checks that each node of the job gets one request. kInvalidArgument: there are more nodes than
  // requests.
  Status CheckNodeCount(std::size_t node_count) const;
};

}  // namespace forebay::daemon
