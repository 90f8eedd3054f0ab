// PingForStatus: asks all other nodes what they report, for `forebay status --nodes`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/peer/node_report.h"

namespace forebay::daemon {

struct StatusPings {
  io::Clock& clock;  // borrowed
  std::vector<NodeRank> nodes;
  std::size_t at_a_time = 1;  // that are asked (CallRound)
  // Asks a node; `heard` is called once, at the deadline at the latest, perhaps within this call.
  using Heard = std::function<void(Result<peer::NodeReport>)>;
  std::function<void(NodeRank, std::int64_t deadline_ns, Heard heard)> ping;
};

struct StatusPing {
  bool is_unasked = true;  // there was no time left to ask the node
  std::int64_t answer_ns = 0;  // from when it was asked until it answered, or did not
  Result<peer::NodeReport> report = peer::NodeReport();
};

// Blocks until all have answered; limits::kNodesStatusMs for each, and for all together that and
// limits::kNodesStatusMsPerNode for each of them at most. The answers are in the order of the
// nodes.
std::vector<StatusPing> PingForStatus(const StatusPings& pings);

}  // namespace forebay::daemon
