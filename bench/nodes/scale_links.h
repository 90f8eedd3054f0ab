// Measures, with the classes of the daemon, what a daemon of a large job needs for the other nodes
// that it may ask: the links to all of them, and the connections that are open.
#pragma once

#include <cstdint>

#include "proto/contract/result.h"

namespace forebay::bench {

struct LinksState {
  double create_s = 0;           // CPU time for the links to all nodes
  std::uint64_t kept_bytes = 0;  // private memory of these
  double look_s = 0;             // CPU time of LinkWatch::Look, ten of which are made in 2 s
};

// Makes the links of a node to the `node_count` - 1 others, with certificates.
Result<LinksState> MeasureLinks(std::uint32_t node_count);

// Each figure is that of one connection, of both ends together: a node has the near end of those
// that it has opened, and the far end of about as many.
struct ConnectionsState {
  double open_s = 0;             // CPU time to open it, with the first call
  std::uint64_t kept_bytes = 0;  // private memory
};

// Opens so many encrypted connections to a server of this process, and makes a call over each.
Result<ConnectionsState> MeasureConnections(std::uint32_t count);

}  // namespace forebay::bench
